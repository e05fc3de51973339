"""Requests of Anthropic's Messages wire, as bytes. Each message is encoded once in its life.

What was encoded is kept (`aar.providers.encoded`). Marks for the prompt cache are put between the kept
bytes, so that the bytes of a message never change.

Source: https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aar.protocol.images import IMAGE_TYPES
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

_MARK = b',"cache_control":{"type":"ephemeral"}'
_THINKING = frozenset({"thinking", "redacted_thinking"})
_MARKED_TURNS = 2


@dataclass(frozen=True, slots=True)
class _Encoded:
    body: bytes
    calls: dict[str, str]
    thinks_first: bool


@dataclass(slots=True)
class _Joined:
    """The conversation as it was sent last.

    Attributes:
        body: All messages, joined; it only grows.
        calls: Names of the tools that were called, by the id of the call.
        turn_ends: Where the last user turns end in ``body``.
        tools: The tools of the last request that had any.
    """

    messages: list[Message] = field(default_factory=list[Message])
    body: bytearray = field(default_factory=bytearray)
    calls: dict[str, str] = field(default_factory=dict[str, str])
    turn_ends: list[int] = field(default_factory=list[int])
    tools: tuple[ToolSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class EncodedRequest:
    """A request ready to be sent: JSON, and the ids of all tool calls in the conversation."""

    body: bytes
    call_ids: Collection[str] = ()


class RequestEncoder:
    """Encodes requests to one server."""

    def __init__(self, seal: str, *, cache: bool = True) -> None:
        """Args: ``seal`` is the name under which blocks are kept for this server; ``cache``: put marks."""
        self._seal = seal
        self.cache = cache
        self._keeps_thinking = True
        self._kept = KeptForms[_Encoded, _Joined]()

    def encode(
        self, request: ProviderRequest, head: Mapping[str, Any], fields: Mapping[str, Any]
    ) -> EncodedRequest:
        """Return the body of ``request``.

        Args:
            request: The conversation, the system prompt and the tools.
            head: What stands before them (the model); not empty.
            fields: What stands behind them (the limit of the answer …); not empty.
        """
        joined = self._conversation(request)
        rest = dict(fields)
        tools = request.tools
        if tools:
            joined.tools = tools
        elif joined.calls:
            # Calls in the history need tools in the request, and the same ones keep the cached prefix.
            tools = joined.tools or _past_tools(joined)
            rest.setdefault("tool_choice", {"type": "none"})
        parts: list[bytes | memoryview] = [to_json(dict(head))[:-1]]
        if tools:
            parts += [b',"tools":', self._kept.tools(tools, self._tool_list)]
        if request.system:
            system = to_json([{"type": "text", "text": request.system}])
            parts += [b',"system":', _marked(system, 2) if self.cache else system]
        parts += [b',"messages":[', *self._marked_turns(joined), b"],", to_json(rest)[1:]]
        return EncodedRequest(b"".join(parts), joined.calls.keys())

    def may_budget(self, messages: Sequence[Message]) -> bool:
        """Tell whether a budget of thinking may be asked for.

        With one, the answer whose tool results are being sent must begin with thinking; another vendor's,
        or one that was given without thinking, does not.
        """
        last = next((message for message in reversed(messages) if message.role == "assistant"), None)
        return last is None or not last.tool_uses or self._kept.form(last, self._message).thinks_first

    def forget_thinking(self) -> bool:
        """Send no earlier thinking from now on; false if none is sent any more."""
        if not self._keeps_thinking:
            return False
        self._keeps_thinking = False
        self.clear()
        return True

    def clear(self) -> None:
        """Forget all messages."""
        self._kept.clear()

    def _conversation(self, request: ProviderRequest) -> _Joined:
        messages = list(request.messages)
        key = conversation_key(messages)
        joined = self._kept.take(key)
        if joined is None or messages[: len(joined.messages)] != joined.messages:
            joined = _Joined(tools=joined.tools if joined is not None else ())
        body = joined.body
        for message in messages[len(joined.messages) :]:
            encoded = self._kept.form(message, self._message)
            joined.calls.update(encoded.calls)
            if not encoded.body:
                continue
            if not body and message.role == "assistant":
                body += to_json({"role": "user", "content": [_text("(The conversation goes on.)")]})
            if body:
                body += b","
            body += encoded.body
            if message.role == "user":
                joined.turn_ends.append(len(body))
        joined.messages = messages
        del joined.turn_ends[:-_MARKED_TURNS]
        self._kept.put(key, joined)
        return joined

    def _marked_turns(self, joined: _Joined) -> list[bytes | memoryview]:
        """Return the conversation in pieces, so that its bytes are copied once."""
        view = memoryview(joined.body)
        parts: list[bytes | memoryview] = []
        start = 0
        for end in joined.turn_ends if self.cache else ():
            # A message ends with the brackets of its last block, its content and itself.
            parts += [view[start : end - 3], _MARK]
            start = end - 3
        return [*parts, view[start:]]

    def _message(self, message: Message) -> _Encoded:
        blocks = self._assistant(message) if message.role == "assistant" else _user(message)
        return _Encoded(
            to_json({"role": message.role, "content": blocks}) if blocks else b"",
            {block.call_id: _wire_name(block.name) for block in message.tool_uses},
            bool(blocks) and blocks[0]["type"] in _THINKING,
        )

    def _tool_list(self, tools: tuple[ToolSpec, ...]) -> bytes:
        body = to_json([_tool(tool) for tool in tools])
        return _marked(body, 2) if self.cache else body

    def _assistant(self, message: Message) -> list[dict[str, Any]]:
        wire: list[dict[str, Any]] = []
        for block in message.content:
            if isinstance(block, ReasoningBlock):
                thinking = self._thinking(block)
                if thinking is not None:
                    wire.append(thinking)
            elif isinstance(block, TextBlock) and block.text.strip():
                wire.append(_text(block.text))
            elif isinstance(block, ToolUseBlock):
                wire.append(_call(block))
        while wire and wire[-1]["type"] in _THINKING:
            wire.pop()  # An answer may not end with thinking.
        return wire

    def _thinking(self, block: ReasoningBlock) -> dict[str, Any] | None:
        """Return thinking in the form in which it came; ``None`` for another vendor's."""
        kept = unseal(block.data, self._seal)
        if kept is not None:
            return kept.get("block")
        sealed = block.data is not None and block.data.startswith("{")
        if sealed or not self._keeps_thinking:
            return None
        if block.redacted:
            return {"type": "redacted_thinking", "data": block.data} if block.data else None
        if not block.signature:
            return None
        return {"type": "thinking", "thinking": block.text, "signature": block.signature}


def _marked(body: bytes, closing: int) -> bytes:
    """Return ``body`` with a mark in its last object, behind which ``closing`` brackets stand."""
    return body[:-closing] + _MARK + body[-closing:]


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _user(message: Message) -> list[dict[str, Any]]:
    """Return the tool results, which must come first, and then all the rest."""
    results: list[dict[str, Any]] = []
    rest: list[dict[str, Any]] = []
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            results.append(_result(block))
        elif isinstance(block, ResourceBlock):
            rest.append(_text(resource_text(block)))
        elif isinstance(block, ImageBlock):
            rest.append(_image(block))
        elif isinstance(block, TextBlock) and block.text.strip():
            rest.append(_text(block.text))
    return results + rest


def _result(block: ToolResultBlock) -> dict[str, Any]:
    wire: dict[str, Any] = {"type": "tool_result", "tool_use_id": _wire_id(block.call_id)}
    texts = [_text(block.output)] if block.output.strip() else []
    content = texts + [_image(image) for image in block.images]
    if content:
        wire["content"] = content if block.images else block.output
    elif block.is_error:
        wire["content"] = "(no output)"
    if block.is_error:
        wire["is_error"] = True
    return wire


def _image(block: ImageBlock) -> dict[str, Any]:
    if block.media_type not in IMAGE_TYPES:
        return _text(f"[An image of type {block.media_type} stood here; this model does not take it.]")
    source = {"type": "base64", "media_type": block.media_type, "data": block.data}
    return {"type": "image", "source": source}


def _call(block: ToolUseBlock) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": _wire_id(block.call_id),
        "name": _wire_name(block.name),
        "input": arguments_of(block),
    }


def _tool(tool: ToolSpec) -> dict[str, Any]:
    schema = tool.input_schema if "type" in tool.input_schema else {"type": "object", **tool.input_schema}
    return {"name": _wire_name(tool.name), "description": tool.description, "input_schema": schema}


def _past_tools(joined: _Joined) -> tuple[ToolSpec, ...]:
    """Return tools by the names that were called, for a conversation whose tools are not known here."""
    names = sorted(set(joined.calls.values()))
    joined.tools = tuple(ToolSpec(name, name, {"type": "object"}, frozenset(), None) for name in names)
    return joined.tools


def _wire_id(call_id: str) -> str:
    """Return an id of the form that is taken; the same for the call and its result."""
    if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", call_id):
        return call_id
    return call_digest(call_id)


def _wire_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:128] or "tool"
