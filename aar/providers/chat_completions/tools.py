"""Tool calls put together from fragments, as the many servers of the chat-completions wire cut them.

Seen in real traffic: no index, a first index of 1, every call at index 0, ids that are absent, empty,
repeated or given once, names repeated or emptied later, arguments as text, as an object, or absent.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic_core import from_json

from aar.protocol.ids import new_id
from aar.protocol.messages import ToolUseBlock
from aar.providers.base import Delta

_CLIENT_TYPES = frozenset({None, "", "function", "custom"})


@dataclass(slots=True)
class Call:
    """One call as far as it has come."""

    position: int
    name: str = ""
    call_id: str = ""
    pieces: list[str] = field(default_factory=list[str])

    @property
    def raw(self) -> str:
        """The arguments as the model wrote them."""
        return "".join(self.pieces)


def parse_arguments(raw: str) -> dict[str, Any] | None:
    """Return the arguments; nothing written means none; ``None`` when it is no JSON object."""
    if not raw.strip():
        return {}
    try:
        value = from_json(raw)
    except ValueError:
        return None
    if value is None:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


class ToolCalls:
    """Collects the calls of one answer, in the order in which they appear."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._by_index: dict[int, Call] = {}
        self._by_id: dict[str, Call] = {}

    def feed(self, fragments: Iterable[Any]) -> list[Delta]:
        """Take the fragments of one chunk; return what they add."""
        deltas: list[Delta] = []
        for fragment in fragments:
            if isinstance(fragment, dict):
                delta = self._fragment(cast("dict[str, Any]", fragment))
                if delta is not None:
                    deltas.append(delta)
        return deltas

    def _fragment(self, fragment: dict[str, Any]) -> Delta | None:
        kind = fragment.get("type")
        if kind is not None and kind not in _CLIENT_TYPES:
            return None  # run by the server itself
        name, arguments = _function(fragment)
        call_id = _text(fragment.get("id"))
        index = fragment.get("index")
        index = index if isinstance(index, int) and not isinstance(index, bool) else None
        call = self._find(index, call_id, name, arguments)
        if call is None:
            call = Call(len(self.calls))
            self.calls.append(call)
        if index is not None:
            self._by_index[index] = call
        if call_id:
            self._by_id.setdefault(call_id, call)
            call.call_id = call.call_id or call_id
        first = bool(name) and not call.name
        if first:
            call.name = name
        if arguments:
            call.pieces.append(arguments)
        if not first and not arguments:
            return None
        return Delta(tool_index=call.position, tool_name=name if first else None, tool_arguments=arguments)

    def _find(self, index: int | None, call_id: str, name: str, arguments: str) -> Call | None:
        if index is None:
            if call_id:
                return self._by_id.get(call_id) if not name else self._same(call_id, arguments)
            return None if name or not self.calls else self.calls[-1]
        call = self._by_index.get(index)
        if call is None or not name or not call.name:
            return call
        if call_id and call.call_id:
            return call if call_id == call.call_id else None
        if name != call.name:
            return None
        return None if arguments and call.raw and parse_arguments(call.raw) is not None else call

    def _same(self, call_id: str, arguments: str) -> Call | None:
        call = self._by_id.get(call_id)
        if call is None or (arguments and call.raw and parse_arguments(call.raw) is not None):
            return None
        return call

    def blocks(self, taken: Collection[str], *, cut: bool) -> list[ToolUseBlock]:
        """Return the finished calls.

        Args:
            taken: Ids of earlier calls of the conversation, which may not come again.
            cut: Whether the answer was cut at its limit: then a last call without arguments was not
                finished, and must not be taken for one without any.
        """
        used: set[str] = set()
        blocks: list[ToolUseBlock] = []
        for call in self.calls:
            arguments = parse_arguments(call.raw)
            if cut and call is self.calls[-1] and not call.raw.strip():
                arguments = None
            free = call.call_id and call.call_id not in used and call.call_id not in taken
            call_id = call.call_id if free else f"call_{new_id()}"
            used.add(call_id)
            raw = call.raw if arguments is None else None
            block = ToolUseBlock(
                call_id=call_id, name=call.name, arguments=arguments or {}, raw_arguments=raw
            )
            blocks.append(block)
        return blocks


def _function(fragment: dict[str, Any]) -> tuple[str, str]:
    for part, written in (("function", "arguments"), ("custom", "input")):
        value = fragment.get(part)
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            name, arguments = _text(fields.get("name")), _json_text(fields.get(written))
            if name or arguments:
                return name, arguments
    return "", ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _json_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
