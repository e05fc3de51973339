"""Requests of the chat-completions wire, as bytes. Each message is encoded once in its life.

What was encoded is kept (`aar.providers.encoded`), so a request costs one copy of the bytes, however many
messages they are of.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from aar.protocol.messages import (
    ImageBlock,
    Message,
    ReasoningBlock,
    ResourceBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from aar.protocol.tool import ToolSpec
from aar.providers.base import ProviderRequest
from aar.providers.chat_completions.reasoning import unseal
from aar.providers.encoded import (
    KeptForms,
    arguments_of,
    call_digest,
    conversation_key,
    resource_text,
    to_json,
)

ReasoningStyle = Literal["effort", "openrouter", "template", "thinking", "thinking_effort", "none"]
"""How a server is told to think: ``reasoning_effort``, OpenRouter's ``reasoning`` object,
``chat_template_kwargs`` (vLLM, llama.cpp), a ``thinking`` switch (Kimi, GLM), both the switch and the effort
(DeepSeek), or not at all."""

_BUDGETS = ((1, "none"), (2_000, "minimal"), (6_000, "low"), (20_000, "medium"))
_MARKED = "anthropic/"
_BRIDGE = "I have the results."


@dataclass(frozen=True, slots=True)
class WireOptions:
    """What a server's dialect of the wire needs.

    Attributes:
        server: Host; opaque thinking goes back only to the server that gave it.
        max_tokens_field: Name of the field that limits the answer.
        reasoning: See `ReasoningStyle`.
        cache_key: Whether ``prompt_cache_key`` is understood.
        short_ids: Whether ids of tool calls must be nine letters and digits (Mistral).
        top_effort: What ``max`` is called here.
        stream_options: Whether usage must be, and may be, asked for in a stream.
        fill_reasoning: Whether each earlier tool call must come with ``reasoning_content``, be it empty, as
            is so of DeepSeek and Kimi when they think.
        bridge_tools: Whether an answer must stand between a tool's result and what the user says (Mistral).
        cache_marks: Whether prompts of Claude models are kept in a cache only when that is asked for
            (OpenRouter); the mark stands at the end of the prompt and moves with it.
    """

    server: str
    max_tokens_field: str = "max_tokens"
    reasoning: ReasoningStyle = "effort"
    cache_key: bool = False
    short_ids: bool = False
    top_effort: str = "high"
    stream_options: bool = True
    fill_reasoning: bool = False
    bridge_tools: bool = False
    cache_marks: bool = False


@dataclass(frozen=True, slots=True)
class ImageLoad:
    """How many images a body carries, and how many of its bytes are theirs: those are no tokens."""

    count: int = 0
    size: int = 0

    def __add__(self, other: ImageLoad) -> ImageLoad:
        return ImageLoad(self.count + other.count, self.size + other.size)


_NO_IMAGES = ImageLoad()


@dataclass(frozen=True, slots=True)
class _Encoded:
    body: bytes
    call_ids: tuple[str, ...]
    images: ImageLoad


@dataclass(slots=True)
class _Joined:
    """The conversation as it was sent last, and the ids of its tool calls."""

    system: str
    messages: list[Message]
    body: bytes
    call_ids: set[str]
    images: ImageLoad = _NO_IMAGES


@dataclass(frozen=True, slots=True)
class EncodedRequest:
    """A request ready to be sent.

    Attributes:
        body: JSON.
        fields: All of it but the conversation and the tools; a server may refuse some.
        call_ids: Ids of all tool calls in the conversation.
        images: What images add to the body.
    """

    body: bytes
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    call_ids: Collection[str] = ()
    images: ImageLoad = _NO_IMAGES


class RequestEncoder:
    """Encodes requests to one server.

    Attributes:
        adapt: Makes the fields of a request such as the server takes for a model; ``None``: it takes all.
    """

    _max_id = 40

    def __init__(self, options: WireOptions) -> None:
        self.options = options
        self.adapt: Callable[[str, dict[str, Any]], dict[str, Any]] | None = None
        self._kept = KeptForms[_Encoded, _Joined]()

    def encode(
        self,
        request: ProviderRequest,
        *,
        stream: bool,
        extra: Mapping[str, Any] | None = None,
    ) -> EncodedRequest:
        """Return the body of ``request``.

        Args:
            request: What to ask.
            stream: Whether the answer should come piece by piece.
            extra: Fields from the config; ``request.extra`` goes over them; a null removes a field.
        """
        fields = self._fields(request, stream=stream)
        for more in (extra or {}, request.extra):
            fields.update(more)
        if self.adapt is not None:
            fields = self.adapt(request.model, fields)
        kept = {name: value for name, value in fields.items() if value is not None}
        joined = self._conversation(request)
        parts = [*self._before(request), joined.body, b"]"]
        tools = self._kept.tools(request.tools, self._tool_list) if request.tools else b""
        more_tools = kept.pop("tools", None)
        if tools:
            # Tools that the config adds are the server's own; they stand beside aar's.
            added = b"," + to_json(more_tools)[1:] if isinstance(more_tools, list) and more_tools else b"]"
            parts += [b',"tools":', tools[:-1], added]
        parts.append(b"," + to_json(kept)[1:] if kept else b"}")
        return EncodedRequest(b"".join(parts), kept, joined.call_ids, joined.images)

    def _before(self, request: ProviderRequest) -> list[bytes]:
        """Return what stands before the conversation."""
        return [to_json({"model": request.model})[:-1], b',"messages":[']

    def learn(self, **options: bool) -> None:
        """Change the dialect, as the server has shown that it needs another; all is encoded anew."""
        self.options = replace(self.options, **options)
        self.clear()

    def clear(self) -> None:
        """Forget all messages."""
        self._kept.clear()

    def _fields(self, request: ProviderRequest, *, stream: bool) -> dict[str, Any]:
        fields: dict[str, Any] = {"stream": stream}
        if stream and self.options.stream_options:
            fields["stream_options"] = {"include_usage": True}
        if request.max_output_tokens is not None:
            fields[self.options.max_tokens_field] = request.max_output_tokens
        if request.temperature is not None:
            fields["temperature"] = request.temperature
        if request.stop:
            fields["stop"] = list(request.stop)
        if request.output_schema is not None:
            fields["response_format"] = _response_format(request.output_schema)
        if request.cache_key and self.options.cache_key:
            fields["prompt_cache_key"] = request.cache_key
        if self.options.cache_marks and request.model.startswith(_MARKED):
            fields["cache_control"] = {"type": "ephemeral"}
        if request.reasoning is not None:
            fields.update(chat_reasoning(self.options, request.reasoning))
        return fields

    def _conversation(self, request: ProviderRequest) -> _Joined:
        messages = list(request.messages)
        key = conversation_key(messages)
        joined = self._kept.take(key)
        known = 0
        if joined is not None and joined.system == request.system:
            known = len(joined.messages)
            if messages[:known] != joined.messages:
                known = 0
        if joined is None or not known:
            joined = _Joined(request.system, [], self._system(request.system), set())
        parts = [joined.body] if joined.body else []
        for message in messages[known:]:
            encoded = self._kept.form(message, self._message)
            if encoded.body:
                parts.append(encoded.body)
            joined.call_ids.update(encoded.call_ids)
            joined.images += encoded.images
        joined.messages, joined.body = messages, b",".join(parts)
        self._kept.put(key, joined)
        return joined

    def _system(self, system: str) -> bytes:
        return to_json({"role": "system", "content": system}) if system else b""

    def _message(self, message: Message) -> _Encoded:
        wire = self._assistant(message) if message.role == "assistant" else self._user(message)
        body = b",".join(to_json(item) for item in wire)
        ids = tuple(block.call_id for block in message.tool_uses)
        return _Encoded(body, ids, _image_load(message))

    def _tool_list(self, tools: tuple[ToolSpec, ...]) -> bytes:
        return to_json([self._tool(tool) for tool in tools])

    def _tool(self, tool: ToolSpec) -> dict[str, Any]:
        function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
        return {"type": "function", "function": function}

    def _user(self, message: Message) -> list[dict[str, Any]]:
        """Return the tool results, one message each, and then one message with all the rest."""
        wire: list[dict[str, Any]] = []
        content: list[TextBlock | ImageBlock] = []
        for block in message.content:
            if isinstance(block, ToolResultBlock):
                call_id = self._wire_id(block.call_id)
                wire.append({"role": "tool", "tool_call_id": call_id, "content": block.output})
                if block.images:
                    content.append(TextBlock(text=f"Images from {block.name or 'the tool'} ({call_id}):"))
                    content += block.images
            elif isinstance(block, ResourceBlock):
                content.append(TextBlock(text=resource_text(block)))
            elif isinstance(block, TextBlock | ImageBlock):
                content.append(block)
        if content and wire and self.options.bridge_tools:
            wire.append({"role": "assistant", "content": _BRIDGE})
        if content:
            wire.append({"role": "user", "content": _content(content)})
        return wire

    def _assistant(self, message: Message) -> list[dict[str, Any]]:
        wire: dict[str, Any] = {"role": "assistant", "content": message.text or None}
        thinking = [block for block in message.content if isinstance(block, ReasoningBlock)]
        if thinking:
            wire.update(_thinking(thinking, self.options.server, message.text))
        calls = [self._call(block) for block in message.tool_uses]
        if calls:
            wire["tool_calls"] = calls
            if self.options.fill_reasoning:
                wire.setdefault("reasoning_content", "")
        return [wire] if calls or wire["content"] else []

    def _call(self, block: ToolUseBlock) -> dict[str, Any]:
        function = {"name": block.name, "arguments": to_json(arguments_of(block)).decode()}
        return {"id": self._wire_id(block.call_id), "type": "function", "function": function}

    def _wire_id(self, call_id: str) -> str:
        """Return an id that the server takes; the same for the call and its result."""
        if self.options.short_ids:
            if re.fullmatch(r"[A-Za-z0-9]{9}", call_id):
                return call_id
            return hashlib.sha256(call_id.encode()).hexdigest()[:9]
        if len(call_id) <= self._max_id:
            return call_id
        return call_digest(call_id)


def _image_load(message: Message) -> ImageLoad:
    images = [block for block in message.content if isinstance(block, ImageBlock)]
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            images += block.images
    return ImageLoad(len(images), sum(len(image.data) for image in images)) if images else _NO_IMAGES


def _content(blocks: Sequence[TextBlock | ImageBlock]) -> str | list[dict[str, Any]]:
    """Return plain text where there are no images: the form that every server understands."""
    texts = [block.text for block in blocks if isinstance(block, TextBlock)]
    if len(texts) == len(blocks):
        return "\n\n".join(texts)
    parts: list[dict[str, Any]] = []
    for block in blocks:
        if isinstance(block, TextBlock):
            parts.append({"type": "text", "text": block.text})
        else:
            url = f"data:{block.media_type};base64,{block.data}"
            parts.append({"type": "image_url", "image_url": {"url": url}})
    return parts


def _thinking(blocks: Sequence[ReasoningBlock], server: str, text: str) -> dict[str, Any]:
    """Return the fields with which thinking goes back to the server that gave it."""
    sealed = [(block, unseal(block.data, server)) for block in blocks]
    details = [item for _, seal in sealed if seal for item in seal.get("reasoning_details", ())]
    if details:
        return {"reasoning_details": details}
    own = [(block, seal["field"]) for block, seal in sealed if seal and seal.get("field")]
    if not own:
        return {}
    thought = "".join(block.text for block, _ in own)
    name = own[0][1]
    if name != "thinking_parts":
        return {name: thought}
    parts: list[dict[str, Any]] = [{"type": "thinking", "thinking": [{"type": "text", "text": thought}]}]
    if text:
        parts.append({"type": "text", "text": text})
    return {"content": parts}


def chat_reasoning(options: WireOptions, level: str | int) -> dict[str, Any]:
    """Return the fields that ask a chat-completions server for a reasoning level or a number of tokens."""
    style, effort = options.reasoning, effort_of(level, options.top_effort)
    if style == "effort":
        return {"reasoning_effort": effort}
    if style == "openrouter":
        if isinstance(level, int) and level > 0:
            return {"reasoning": {"max_tokens": level}}
        return {"reasoning": {"enabled": False} if effort == "none" else {"effort": effort}}
    if style == "template":
        # Templates take what they know: Qwen's the switch, gpt-oss's the effort.
        told: dict[str, Any] = {"enable_thinking": effort != "none"}
        return {"chat_template_kwargs": told if effort == "none" else {**told, "reasoning_effort": effort}}
    if style in {"thinking", "thinking_effort"}:
        switch = {"thinking": {"type": "disabled" if effort == "none" else "enabled"}}
        return switch if effort == "none" or style == "thinking" else {**switch, "reasoning_effort": effort}
    return {}


def effort_of(level: str | int, top: str) -> str:
    """Return a level or a number of tokens as an effort; ``top`` is the word for the most."""
    if isinstance(level, str):
        return {"off": "none", "max": top}.get(level, level)
    return next((name for limit, name in _BUDGETS if level < limit), "high")


def _response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    form = {"name": "answer", "schema": dict(schema), "strict": is_strict(schema)}
    return {"type": "json_schema", "json_schema": form}


def is_strict(schema: Any) -> bool:
    """Tell whether a schema may be enforced: every object closed and all its properties required."""
    if isinstance(schema, Mapping):
        fields = cast("Mapping[str, Any]", schema)
        if "properties" in fields and (
            fields.get("additionalProperties") is not False
            or set(fields["properties"]) != set(fields.get("required", ()))
        ):
            return False
        return all(is_strict(value) for value in fields.values())
    if isinstance(schema, list | tuple):
        return all(is_strict(item) for item in cast("Sequence[Any]", schema))
    return True
