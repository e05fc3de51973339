"""The items of one answer of the Responses API, put together from events that tell them in part and whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from aar.protocol.ids import new_id
from aar.protocol.messages import ReasoningBlock, TextBlock, ToolUseBlock
from aar.protocol.text import clean_text
from aar.providers.base import AnswerPart, Delta
from aar.providers.chat_completions.decode import AnswerContext
from aar.providers.chat_completions.tools import parse_arguments
from aar.providers.openai.seal import seal, with_phase

_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
"""Calls that the client answers, and the field with their arguments."""
_PARTS = {
    "output_text": ("text", "text"),
    "text": ("text", "text"),
    "refusal": ("refusal", "refusal"),
    "summary_text": ("summary", "text"),
    "reasoning_text": ("content", "text"),
}


@dataclass(slots=True)
class Item:
    """One item as far as it has come.

    Attributes:
        kind: Its type.
        raw: What the server told of it last.
        pieces: Texts by kind and number: ``text``, ``refusal``, ``summary``, ``content``, ``arguments``.
        position: Which call of the answer it is.
        finished: Whether it was told whole.
    """

    kind: str
    raw: dict[str, Any] = field(default_factory=dict[str, Any])
    pieces: dict[tuple[str, int], list[str]] = field(default_factory=dict[tuple[str, int], list[str]])
    position: int | None = None
    named: bool = False
    finished: bool = False

    def text(self, *parts: str) -> str:
        """Return the pieces of these kinds, joined."""
        return "".join(
            "".join(self.pieces[key]) for part in parts for key in sorted(self.pieces) if key[0] == part
        )


class Items:
    """All items of one answer, by their place in its output."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._items: dict[int, Item] = {}
        self.calls = 0
        self.refused = False

    def piece(self, event: Mapping[str, Any], kind: str, part: str, text: Any) -> list[Delta]:
        """Take the next piece of a part."""
        return self._add(self._find(event, kind), _key(event, part), text)

    def whole(self, event: Mapping[str, Any], kind: str, part: str, text: Any) -> list[Delta]:
        """Take a part told in full: what was not sent in pieces is added."""
        return self._complete(self._find(event, kind), _key(event, part), text)

    def part(self, event: Mapping[str, Any]) -> list[Delta]:
        """Take a part of a message or of a reasoning item as an object."""
        told: Any = event.get("part")
        if not isinstance(told, dict):
            return []
        fields = cast("dict[str, Any]", told)
        known = _PARTS.get(str(fields.get("type")))
        if known is None:
            return []
        kind = "message" if known[0] in {"text", "refusal"} else "reasoning"
        return self._complete(self._find(event, kind), _key(event, known[0]), fields.get(known[1]))

    def item(self, event: Mapping[str, Any], *, finished: bool) -> list[Delta]:
        """Take an item as an object, at its beginning or at its end."""
        told: Any = event.get("item")
        if not isinstance(told, dict):
            return []
        fields = cast("dict[str, Any]", told)
        index = _index(event, len(self._items) if not finished else max(self._items, default=0))
        return self._take(index, fields, finished=finished)

    def output(self, output: list[Any]) -> list[Delta]:
        """Take the whole output, with which a response ends: items that were not told before are added."""
        told = _objects(output)
        places = sorted(self._items)
        if places and len(places) >= len(told):
            pairs = list(zip(places, told, strict=False))
        else:
            pairs = list(enumerate(told))
        deltas: list[Delta] = []
        for index, fields in pairs:
            known = self._items.get(index)
            if known is None or known.kind == fields.get("type"):
                deltas += self._take(index, fields, finished=True)
        return deltas

    def _take(self, index: int, fields: dict[str, Any], *, finished: bool) -> list[Delta]:
        item = self._items.get(index)
        if item is None:
            item = self._new(index, str(fields.get("type") or ""))
        item.raw = {**item.raw, **{name: value for name, value in fields.items() if value is not None}}
        item.finished = item.finished or finished
        deltas: list[Delta] = []
        if item.position is not None:
            name = _string(item.raw.get("name"))
            if name and not item.named:
                item.named = True
                deltas.append(Delta(tool_index=item.position, tool_name=name))
            arguments = fields.get(_CALLS[item.kind])
            if isinstance(arguments, dict):
                arguments = json.dumps(arguments, ensure_ascii=False)
            return deltas + self._complete(item, ("arguments", 0), arguments)
        for name in ("summary", "content"):
            for number, part in enumerate(_objects(fields.get(name))):
                known = _PARTS.get(str(part.get("type")))
                if known is not None:
                    deltas += self._complete(item, (known[0], number), part.get(known[1]))
        return deltas

    def _new(self, index: int, kind: str) -> Item:
        item = self._items[index] = Item(kind)
        if kind in _CALLS:
            item.position = self.calls
            self.calls += 1
        return item

    def _find(self, event: Mapping[str, Any], kind: str) -> Item:
        index = _index(event, max(self._items, default=0))
        item = self._items.get(index)
        return self._new(index, kind) if item is None else item

    def _add(self, item: Item, key: tuple[str, int], text: Any) -> list[Delta]:
        if not isinstance(text, str) or not text:
            return []
        item.pieces.setdefault(key, []).append(text)
        if key[0] == "arguments":
            return [] if item.position is None else [Delta(tool_index=item.position, tool_arguments=text)]
        self.refused = self.refused or key[0] == "refusal"
        return [Delta(text=text) if key[0] in {"text", "refusal"} else Delta(reasoning=text)]

    def _complete(self, item: Item, key: tuple[str, int], text: Any) -> list[Delta]:
        if not isinstance(text, str):
            return []
        known = "".join(item.pieces.get(key, ()))
        if text.startswith(known):
            return self._add(item, key, text[len(known) :])
        return []

    def blocks(self, context: AnswerContext, *, cut: bool) -> list[AnswerPart]:
        """Return the answer's blocks in order.

        Args:
            context: For errors, and for the ids that are taken.
            cut: Whether the answer was cut at its limit: then calls that were not finished must not run.

        Raises:
            ProviderError: A call has no name.
        """
        blocks: list[AnswerPart] = []
        used: set[str] = set()
        for _, item in sorted(self._items.items()):
            if item.position is not None:
                blocks.append(self._call(item, context, used, cut=cut))
            elif item.kind == "message":
                self._message(item, blocks)
            else:
                text = clean_text(item.text("summary", "content"))
                # Until an item is told whole, what it holds in encrypted form may be cut.
                data = seal(self._server, item.raw) if item.finished else None
                if text or data:
                    blocks.append(ReasoningBlock(text=text, data=data, redacted=not text))
        return blocks

    def _message(self, item: Item, blocks: list[AnswerPart]) -> None:
        text = clean_text(item.text("text", "refusal"))
        if not text:
            return
        phase = _string(item.raw.get("phase"))
        if phase is not None:
            last = blocks[-1] if blocks else None
            carrier = with_phase(last, self._server, phase) if isinstance(last, ReasoningBlock) else None
            if carrier is not None:
                blocks[-1] = carrier
            else:
                blocks.append(ReasoningBlock(data=seal(self._server, None, phase), redacted=True))
        blocks.append(TextBlock(text=text))

    def _call(self, item: Item, context: AnswerContext, used: set[str], *, cut: bool) -> ToolUseBlock:
        name, call_id = _string(item.raw.get("name")), _string(item.raw.get("call_id"))
        if name is None:
            raise context.malformed("a tool call without a name")
        raw = item.text("arguments")
        arguments = parse_arguments(raw)
        unfinished = cut and (not item.finished or item.raw.get("status") in {"incomplete", "in_progress"})
        if unfinished or not (item.finished or raw):
            arguments = None
        if call_id is None or call_id in used or call_id in context.taken_ids:
            call_id = f"call_{new_id()}"
        used.add(call_id)
        return ToolUseBlock(
            call_id=call_id,
            name=name,
            arguments=arguments or {},
            raw_arguments=raw if arguments is None else None,
        )


def _index(event: Mapping[str, Any], default: int) -> int:
    value = event.get("output_index")
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _key(event: Mapping[str, Any], part: str) -> tuple[str, int]:
    value = event.get("summary_index" if part == "summary" else "content_index")
    return part, value if isinstance(value, int) and part != "arguments" else 0


def _objects(value: Any) -> list[dict[str, Any]]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) if isinstance(item, dict) else {} for item in items]


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
