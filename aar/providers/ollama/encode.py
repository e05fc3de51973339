"""Requests of Ollama's own wire, ``POST /api/chat`` (https://docs.ollama.com/api/chat), as bytes.

Where it differs from chat completions: arguments of tool calls are objects, results name their tool,
images stand beside the text as bare base64, thinking goes back as text, and what other servers take as
fields of the request are ``options``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeGuard, cast

from aar.protocol.messages import (
    ImageBlock,
    Message,
    MessageBlock,
    ReasoningBlock,
    ResourceBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from aar.providers.base import ProviderRequest
from aar.providers.chat_completions.encode import EncodedRequest, RequestEncoder
from aar.providers.encoded import arguments_of, resource_text

KEEP_ALIVE = "30m"
"""How long the model stays in memory after a request: a person reads and thinks longer than Ollama's five
minutes, and loading it again would read the whole prompt again."""

_LEVELS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "max": "high"}
_BUDGETS = ((6_000, "low"), (20_000, "medium"))
_TAKES_LEVELS = re.compile(r"gpt-oss")


class OllamaEncoder(RequestEncoder):
    """Encodes requests to one Ollama."""

    def encode(
        self,
        request: ProviderRequest,
        *,
        stream: bool,
        extra: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> EncodedRequest:
        """Return the body of ``request``; ``options`` of the config are merged, not put in place of aar's."""
        own = self._options(request)
        for fields in (extra or {}, request.extra):
            own.update(_options_of(fields))
        merged = {**(extra or {}), **request.extra, "options": own}
        return super().encode(replace(request, extra={}), stream=stream, extra=merged, **more)

    def _options(self, request: ProviderRequest) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if request.max_output_tokens is not None:
            options["num_predict"] = request.max_output_tokens
        if request.temperature is not None:
            options["temperature"] = request.temperature
        if request.stop:
            options["stop"] = list(request.stop)
        return options

    def _fields(self, request: ProviderRequest, *, stream: bool) -> dict[str, Any]:
        # Without these two a prompt that is too long loses its beginning, and nobody hears of it.
        fields: dict[str, Any] = {
            "stream": stream,
            "truncate": False,
            "shift": False,
            "keep_alive": KEEP_ALIVE,
        }
        if request.output_schema is not None:
            fields["format"] = dict(request.output_schema)
        if request.reasoning is not None:
            fields["think"] = think_value(request.model, request.reasoning)
        return fields

    def _user(self, message: Message) -> list[dict[str, Any]]:
        wire: list[dict[str, Any]] = []
        texts: list[str] = []
        images: list[str] = []
        for block in message.content:
            if isinstance(block, ToolResultBlock):
                wire.append(_result(block))
            elif isinstance(block, ResourceBlock):
                texts.append(resource_text(block))
            elif isinstance(block, TextBlock):
                texts.append(block.text)
            elif isinstance(block, ImageBlock):
                images.append(block.data)
        if texts or images:
            said: dict[str, Any] = {"role": "user", "content": "\n\n".join(texts)}
            if images:
                said["images"] = images
            wire.append(said)
        return wire

    def _assistant(self, message: Message) -> list[dict[str, Any]]:
        wire: dict[str, Any] = {"role": "assistant", "content": message.text}
        thought = "".join(block.text for block in message.content if _is_plain(block))
        if thought:
            wire["thinking"] = thought
        calls = [self._call(block) for block in message.tool_uses]
        if calls:
            wire["tool_calls"] = calls
        return [wire] if calls or message.text else []

    def _call(self, block: ToolUseBlock) -> dict[str, Any]:
        return {"id": block.call_id, "function": {"name": block.name, "arguments": arguments_of(block)}}


def think_value(model: str, level: str | int) -> bool | str:
    """Return the value of ``think`` for a reasoning level, or for a number of tokens.

    Only models that were trained for levels are told one; the others think or do not.
    """
    if level in {"off", 0}:
        return "low" if _TAKES_LEVELS.search(model.lower()) else False
    if not _TAKES_LEVELS.search(model.lower()):
        return True
    if isinstance(level, str):
        return _LEVELS.get(level, "medium")
    return next((name for limit, name in _BUDGETS if level < limit), "high")


def _result(block: ToolResultBlock) -> dict[str, Any]:
    result: dict[str, Any] = {"role": "tool", "tool_name": block.name, "content": block.output}
    result["tool_call_id"] = block.call_id
    if block.images:
        result["images"] = [image.data for image in block.images]
    return result


def _is_plain(block: MessageBlock) -> TypeGuard[ReasoningBlock]:
    """Tell whether ``block`` is thinking as Ollama gives it; other servers' is sealed or signed."""
    return isinstance(block, ReasoningBlock) and block.data is None and block.signature is None


def _options_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    options = fields.get("options")
    return cast("dict[str, Any]", options) if isinstance(options, dict) else {}
