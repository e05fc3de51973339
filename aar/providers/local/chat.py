"""Messages as the embedded model reads them: role and plain text.

What it cannot take as such is written out: tool calls and results in the tags that Qwen2.5 was trained on,
resources as named blocks, images as a remark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

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
from aar.protocol.tool import ToolSpec
from aar.providers.base import ProviderRequest


def chat_messages(request: ProviderRequest) -> list[dict[str, str]]:
    """Return ``[{"role", "content"}]``, the system prompt first if there is one."""
    system = "\n\n".join(part for part in (request.system, _tools_text(request.tools)) if part)
    messages = [{"role": "system", "content": system}] if system else []
    for message in request.messages:
        content = _content(message)
        if content:
            messages.append({"role": message.role, "content": content})
    return messages


def _content(message: Message) -> str:
    parts = [text for block in message.content if (text := _block_text(block))]
    return "\n".join(parts)


def _block_text(block: MessageBlock) -> str:
    match block:
        case TextBlock():
            return block.text
        case ResourceBlock():
            return f"{block.uri}:\n```\n{block.text}\n```"
        case ImageBlock():
            return f"[the image {block.name or block.media_type} cannot be shown to this model]"
        case ToolUseBlock():
            return _call_text(block)
        case ToolResultBlock():
            return f"<tool_response>\n{block.output}\n</tool_response>"
        case ReasoningBlock():
            return ""


def _call_text(block: ToolUseBlock) -> str:
    if block.raw_arguments is not None:
        return f"<tool_call>\n{block.raw_arguments}\n</tool_call>"
    call = json.dumps({"name": block.name, "arguments": block.arguments}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>"


def _tools_text(tools: Iterable[ToolSpec]) -> str:
    lines = [
        json.dumps(
            {"name": tool.name, "description": tool.description, "parameters": tool.input_schema},
            ensure_ascii=False,
        )
        for tool in tools
    ]
    if not lines:
        return ""
    return (
        "# Tools\n\nCall a tool by answering with one JSON object between <tool_call></tool_call> tags, with "
        'the keys "name" and "arguments". These tools exist:\n<tools>\n' + "\n".join(lines) + "\n</tools>"
    )
