"""Requests to Gemini's ``generateContent``, as bytes. Each message is encoded once in its life.

The stable parts come first (system prompt, tools, the conversation from its start), so that the bytes of
one request are the beginning of the next one and implicit prompt caches hit.
Source: https://ai.google.dev/api/generate-content
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from aar.protocol.messages import Message
from aar.protocol.tool import ToolSpec
from aar.providers.base import ProviderRequest
from aar.providers.catalog import GeminiThinking
from aar.providers.encoded import KeptForms, conversation_key, to_json
from aar.providers.gemini import parts as gemini_parts
from aar.providers.gemini.schema import clean_schema
from aar.providers.gemini.thinking import thinking_config

_RESERVED = frozenset({"contents", "systemInstruction", "system_instruction"})


@dataclass(slots=True)
class _Encoded:
    """One message, what it is on the wire, and the server's own ids of its calls by aar's."""

    message: Message
    body: bytes
    calls: dict[str, str | None]


@dataclass(slots=True)
class _Conversation:
    """A conversation as it was sent last."""

    encoded: list[_Encoded] = field(default_factory=list[_Encoded])
    messages: list[Message] = field(default_factory=list[Message])
    body: bytes = b""
    calls: dict[str, str | None] = field(default_factory=dict[str, "str | None"])

    def cut_to(self, messages: list[Message]) -> None:
        """Forget everything from the first message on that is another one now."""
        if messages[: len(self.messages)] == self.messages:
            return  # By identity, at the speed of C: what a run does step by step.
        same = 0
        for item, message in zip(self.encoded, messages, strict=False):
            if item.message is not message:
                break
            same += 1
        if same < len(self.encoded):
            kept = self.encoded[:same]
            self.encoded, self.messages, self.body, self.calls = [], [], b"", {}
            self.add(kept)

    def add(self, more: list[_Encoded]) -> None:
        """Go on with ``more``."""
        bodies = [item.body for item in more if item.body]
        self.body = b",".join([self.body, *bodies] if self.body else bodies)
        self.encoded += more
        self.messages += [item.message for item in more]
        for item in more:
            self.calls.update(item.calls)


@dataclass(frozen=True, slots=True)
class EncodedRequest:
    """A request ready to be sent.

    Attributes:
        body: JSON.
        fields: Names of the optional fields of ``generationConfig``, which a model may refuse.
        call_ids: Ids of all tool calls in the conversation.
    """

    body: bytes
    fields: frozenset[str] = frozenset()
    call_ids: Collection[str] = ()


class RequestEncoder:
    """Encodes requests to one server."""

    def __init__(self, server: str) -> None:
        """Args: ``server`` is the name under which things were sealed (`gemini_seal.seal_name`)."""
        self._server = server
        self._kept = KeptForms[_Encoded, _Conversation]()

    def encode(
        self,
        request: ProviderRequest,
        thinking: GeminiThinking,
        *,
        extra: Mapping[str, Any] | None = None,
        left_out: frozenset[str] = frozenset(),
    ) -> EncodedRequest:
        """Return the body of ``request``.

        Args:
            request: What to ask.
            thinking: How the model is told to think.
            extra: Fields from the config; ``request.extra`` goes over them; a null removes a field;
                ``tools`` are added to those of the request.
            left_out: Optional fields that this model does not take.
        """
        config = _generation_config(request, thinking)
        others: dict[str, Any] = {}
        tools: list[Any] = []
        for more in (extra or {}, request.extra):
            for name, value in more.items():
                if name in {"generationConfig", "generation_config"} and isinstance(value, Mapping):
                    config.update(cast("Mapping[str, Any]", value))
                elif name == "tools" and isinstance(value, list):
                    tools += cast("list[Any]", value)
                elif name not in _RESERVED:
                    others[name] = value
        kept = {name: value for name, value in config.items() if value is not None and name not in left_out}
        amount = _leave_amount(kept, left_out)
        if kept:
            others["generationConfig"] = kept
        others = {name: value for name, value in others.items() if value is not None}
        talk = self._conversation(request, modern=thinking in {"level", "coarse_level"})
        parts = [b"{", _system(request.system), self._tool_list(request.tools, tools)]
        parts += [b'"contents":[', talk.body, b"]", b"," + to_json(others)[1:] if others else b"}"]
        return EncodedRequest(b"".join(parts), frozenset(kept) | amount, talk.calls.keys())

    def clear(self) -> None:
        """Forget all messages."""
        self._kept.clear()

    def _conversation(self, request: ProviderRequest, *, modern: bool) -> _Conversation:
        """Return the conversation, of which only what is new since the last request is encoded."""
        messages = list(request.messages)
        key = (conversation_key(messages), modern)
        talk = self._kept.take(key) or _Conversation()
        talk.cut_to(messages)
        more: list[_Encoded] = []
        for message in messages[len(talk.encoded) :]:
            more.append(self._message(message, talk.calls, modern=modern))
            talk.calls.update(more[-1].calls)
        talk.add(more)
        self._kept.put(key, talk)
        return talk

    def _message(self, message: Message, calls: dict[str, str | None], *, modern: bool) -> _Encoded:
        own: dict[str, str | None] = {}
        if message.role == "user":
            role, parts = "user", gemini_parts.user_parts(message, calls, images_inside=modern)
        else:
            told = gemini_parts.model_parts(message, self._server, demand_signature=modern)
            role, parts, own = "model", told.parts, told.calls
        return _Encoded(message, to_json({"role": role, "parts": parts}) if parts else b"", own)

    def _tool_list(self, tools: tuple[ToolSpec, ...], more: list[Any]) -> bytes:
        listed = [self._kept.tools(tools, _declarations)] if tools else []
        listed += [to_json(tool) for tool in more]
        return b'"tools":[' + b",".join(listed) + b"]," if listed else b""


def _leave_amount(config: dict[str, Any], left_out: frozenset[str]) -> frozenset[str]:
    """Take out how much to think, if the model does not take it; tell whether it is still there."""
    thinking = config.get("thinkingConfig")
    if not isinstance(thinking, dict) or set(cast("dict[str, Any]", thinking)) == {"includeThoughts"}:
        return frozenset()
    if "thinkingAmount" in left_out:
        config["thinkingConfig"] = {"includeThoughts": True}
        return frozenset()
    return frozenset({"thinkingAmount"})


def _system(text: str) -> bytes:
    return b'"systemInstruction":' + to_json({"parts": [{"text": text}]}) + b"," if text else b""


def _declarations(tools: tuple[ToolSpec, ...]) -> bytes:
    return to_json({"functionDeclarations": [_declaration(tool) for tool in tools]})


def _declaration(tool: ToolSpec) -> dict[str, Any]:
    declared: dict[str, Any] = {"name": tool.name, "description": tool.description}
    if tool.input_schema.get("properties"):
        declared["parametersJsonSchema"] = clean_schema(tool.input_schema)
    return declared


def _generation_config(request: ProviderRequest, thinking: GeminiThinking) -> dict[str, Any]:
    config: dict[str, Any] = {
        "temperature": request.temperature,
        "maxOutputTokens": request.max_output_tokens,
        "stopSequences": list(request.stop) or None,
        "thinkingConfig": thinking_config(thinking, request.reasoning),
    }
    # Models before the third generation refuse the JSON mode together with function calls.
    if request.output_schema is not None and (not request.tools or thinking in {"level", "coarse_level"}):
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = clean_schema(request.output_schema)
    return config
