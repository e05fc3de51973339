"""Requests of the Responses API, as bytes. Each message is encoded once in its life.

Nothing is stored at the server: every request carries the whole conversation, with the reasoning items in
encrypted form (https://platform.openai.com/docs/api-reference/responses/create).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
from aar.providers.chat_completions.encode import RequestEncoder, WireOptions, effort_of, is_strict
from aar.providers.encoded import arguments_of, resource_text, to_json
from aar.providers.openai.seal import unsealed


class ResponsesEncoder(RequestEncoder):
    """Encodes requests to one server."""

    _max_id = 64

    def __init__(self, options: WireOptions, *, thinks: bool, returns_items: bool = True) -> None:
        """Make the encoder.

        Args:
            options: The server, and what ``max`` is called there.
            thinks: Whether the model is known to think: then its thinking is asked for.
            returns_items: Whether reasoning and other sealed items go back.
        """
        super().__init__(options)
        self._thinks = thinks
        self._returns_items = returns_items

    def _before(self, request: ProviderRequest) -> list[bytes]:
        head: dict[str, Any] = {"model": request.model}
        if request.system:
            head["instructions"] = request.system
        return [to_json(head)[:-1], b',"input":[']

    def _system(self, system: str) -> bytes:
        return b""

    def _fields(self, request: ProviderRequest, *, stream: bool) -> dict[str, Any]:
        fields: dict[str, Any] = {"stream": stream, "store": False}
        reasoning = self._reasoning(request.reasoning)
        if reasoning:
            fields["include"] = ["reasoning.encrypted_content"]
            fields["reasoning"] = reasoning
        if request.max_output_tokens is not None:
            fields["max_output_tokens"] = request.max_output_tokens
        if request.temperature is not None:
            fields["temperature"] = request.temperature
        if request.output_schema is not None:
            fields["text"] = {"format": _text_format(request.output_schema)}
        if request.cache_key:
            fields["prompt_cache_key"] = request.cache_key
        return fields

    def _reasoning(self, level: str | int | None) -> dict[str, Any]:
        if level is None:
            return {"summary": "auto"} if self._thinks else {}
        effort = effort_of(level, self.options.top_effort)
        return {"effort": effort} if effort == "none" else {"effort": effort, "summary": "auto"}

    def _tool(self, tool: ToolSpec) -> dict[str, Any]:
        # Where `strict` is not told it is true, which many schemas are not fit for.
        return {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.input_schema,
            "strict": False,
        }

    def _user(self, message: Message) -> list[dict[str, Any]]:
        """Return the tool results, and then one message with all the rest."""
        wire: list[dict[str, Any]] = []
        content: list[TextBlock | ImageBlock] = []
        for block in message.content:
            if isinstance(block, ToolResultBlock):
                wire.append(self._result(block))
            elif isinstance(block, ResourceBlock):
                content.append(TextBlock(text=resource_text(block)))
            elif isinstance(block, TextBlock | ImageBlock):
                content.append(block)
        if content:
            wire.append({"type": "message", "role": "user", "content": _parts(content)})
        return wire

    def _result(self, block: ToolResultBlock) -> dict[str, Any]:
        call_id = self._wire_id(block.call_id)
        output: Any = block.output
        if block.images:
            text = [TextBlock(text=block.output)] if block.output else []
            output = _parts([*text, *block.images])
        return {"type": "function_call_output", "call_id": call_id, "output": output}

    def _assistant(self, message: Message) -> list[dict[str, Any]]:
        wire: list[dict[str, Any]] = []
        phase: str | None = None
        for block in message.content:
            if isinstance(block, ReasoningBlock):
                item, phase = unsealed(block, self.options.server) if self._returns_items else (None, None)
                if item is not None:
                    wire.append(item)
            elif isinstance(block, TextBlock) and block.text:
                said = {"type": "message", "role": "assistant", "content": block.text}
                wire.append(said if phase is None else {**said, "phase": phase})
                phase = None
            elif isinstance(block, ToolUseBlock):
                wire.append(self._function_call(block))
        # The server refuses a reasoning item that nothing follows: what it led to was cut off.
        while wire and wire[-1]["type"] == "reasoning":
            wire.pop()
        return wire

    def _function_call(self, block: ToolUseBlock) -> dict[str, Any]:
        return {
            "type": "function_call",
            "call_id": self._wire_id(block.call_id),
            "name": block.name,
            "arguments": to_json(arguments_of(block)).decode(),
        }


def _parts(blocks: Sequence[TextBlock | ImageBlock]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for block in blocks:
        if isinstance(block, TextBlock):
            parts.append({"type": "input_text", "text": block.text})
        else:
            url = f"data:{block.media_type};base64,{block.data}"
            parts.append({"type": "input_image", "image_url": url, "detail": "auto"})
    return parts


def _text_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "name": "answer", "schema": dict(schema), "strict": is_strict(schema)}
