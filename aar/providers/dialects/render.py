"""Turns tools, calls and results into text, for models without trained tool calls."""

from __future__ import annotations

import json
import re
import weakref
from collections.abc import Callable, Sequence
from typing import Any, cast

from aar.protocol.messages import Message, MessageBlock, TextBlock, ToolResultBlock, ToolUseBlock
from aar.protocol.tool import ToolSpec
from aar.providers.base import Dialect
from aar.providers.dialects import files_text

_HEAD = (
    "You have tools. To use one, end your answer with the call and write nothing after it:\n"
    '<tool_call>\n{"name": "read_file", "arguments": {"path": "src/app.py"}}\n</tool_call>\n'
    "The result comes in the next message. Never invent a result. When the task is done, answer in words "
    "without a call.\nTools (? marks what may be left out):\n"
)
_LED_HEAD = """\
You do the user's task with tools. You know no file before you have read it.
To use a tool, answer with one call and nothing else:
<tool_call>
{"name": "read_file", "arguments": {"path": "shop/cart.py"}}
</tool_call>
Work in this order: read_file, then edit_file (or write_file with the complete new content), \
then bash to test it (python -m pytest -q). When the task is done, say in one sentence what you changed.
Tools:
"""
_TYPES = {"string": "text", "integer": "int", "number": "number", "boolean": "bool"}


def render_tools_prompt(tools: Sequence[ToolSpec], *, led: bool = False) -> str:
    """Return the part of the system prompt that teaches ``tools`` to a model of the ``text`` dialect.

    Args:
        tools: What it may use.
        led: For a small model that is led step by step: the fewest words, and what it must give only.
    """
    if led and tools:
        return _LED_HEAD + "\n".join(_tool_line(tool, led=True) for tool in tools)
    return _HEAD.replace("read_file", _example(tools)) + "\n".join(map(_tool_line, tools)) if tools else ""


def _example(tools: Sequence[ToolSpec]) -> str:
    names = [tool.name for tool in tools]
    takes_path = [tool.name for tool in tools if "path" in tool.input_schema.get("properties", {})]
    return "read_file" if "read_file" in names or not takes_path else takes_path[0]


def _tool_line(tool: ToolSpec, led: bool = False) -> str:
    properties = cast("dict[str, dict[str, Any]]", tool.input_schema.get("properties", {}))
    required = cast("list[str]", tool.input_schema.get("required", []))
    arguments = ", ".join(
        f"{name}{'' if name in required else '?'}{_type(schema)}"
        for name, schema in properties.items()
        if not led or name in required
    )
    return f"- {tool.name}({arguments}): {tool.summary or _first_sentence(tool.description)}"


def _type(schema: dict[str, Any]) -> str:
    kind = schema.get("type")
    options = [one.get("type") for one in schema.get("anyOf", []) if one.get("type") != "null"]
    kind = options[0] if kind is None and options else kind
    return "" if kind in (None, "string") else f" {_TYPES.get(kind, kind)}"


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.!?])\s", text.strip(), maxsplit=1)[0]


def render_text_call(call: ToolUseBlock) -> str:
    """Return a call as dialect ``text`` writes it."""
    body = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def render_text_result(result: ToolResultBlock) -> str:
    """Return a result as dialect ``text`` tells it."""
    head = "failed" if result.is_error else "result"
    return f"<tool_response>\n{result.name}, {head}:\n{result.output.rstrip()}\n</tool_response>"


class MessageRenderer:
    """Renders each message once, so that the rendered ones keep their bytes and their identity."""

    def __init__(self, dialect: Dialect) -> None:
        files = dialect == "files"
        self._call: Callable[[ToolUseBlock], str] = files_text.render_call if files else render_text_call
        self._result: Callable[[ToolResultBlock], str] = (
            files_text.render_result if files else render_text_result
        )
        # The weak reference drops its entry when the message goes, before its id can be used again.
        self._done: dict[int, tuple[weakref.ref[Message], Message]] = {}

    def render(self, messages: Sequence[Message]) -> list[Message]:
        """Return ``messages`` with calls and results as text; the others are returned as they are."""
        return [self._rendered(message) for message in messages]

    def _rendered(self, message: Message) -> Message:
        if not any(isinstance(block, ToolUseBlock | ToolResultBlock) for block in message.content):
            return message
        key = id(message)
        known = self._done.get(key)
        if known is None:
            reference = weakref.ref(message, lambda _: self._done.pop(key, None))
            known = self._done[key] = (reference, self._convert(message))
        return known[1]

    def _convert(self, message: Message) -> Message:
        blocks: list[MessageBlock] = []
        for block in message.content:
            if isinstance(block, ToolUseBlock):
                _add_text(blocks, self._call(block))
            elif isinstance(block, ToolResultBlock):
                _add_text(blocks, self._result(block))
                blocks.extend(block.images)
            elif isinstance(block, TextBlock):
                _add_text(blocks, block.text)
            else:
                blocks.append(block)
        return Message(role=message.role, content=tuple(blocks))


def _add_text(blocks: list[MessageBlock], text: str) -> None:
    """Join neighbouring texts with an empty line: some chat templates take one text only."""
    last = blocks[-1] if blocks else None
    if isinstance(last, TextBlock):
        blocks[-1] = TextBlock(text=f"{last.text.rstrip()}\n\n{text}")
    else:
        blocks.append(TextBlock(text=text))


_renderers: dict[str, MessageRenderer] = {}


def render_messages(messages: Sequence[Message], dialect: Dialect) -> list[Message]:
    """Return ``messages`` as a model of ``dialect`` is to see them; ``native`` ones are left alone."""
    if dialect == "native":
        return list(messages)
    renderer = _renderers.get(dialect)
    if renderer is None:
        renderer = _renderers[dialect] = MessageRenderer(dialect)
    return renderer.render(messages)
