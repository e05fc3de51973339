"""Function calls as Gemini tells them: mostly whole, in parts of a stream only where that was asked for.

Arguments that come in parts are told as JSON paths with values (``$.city``, ``$.items[0].name``).
Source: https://cloud.google.com/vertex-ai/generative-ai/docs/multimodal/function-calling
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

from aar.protocol.ids import new_id
from aar.protocol.messages import ToolUseBlock

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")
_MAX_INDEX = 10_000


@dataclass(slots=True)
class Call:
    """One call as far as it has come.

    Attributes:
        name: Of the tool.
        server_id: The server's own id.
        arguments: Object, or whatever else the server told.
        signature: Thought signature.
        open: Whether more of it is to come.
    """

    name: str
    server_id: str | None = None
    arguments: Any = None
    signature: str | None = None
    open: bool = False
    call_id: str = ""
    _partial: dict[str, Any] = field(default_factory=dict[str, Any])
    _going_on: str | None = None

    def take(self, told: dict[str, Any], signature: str | None) -> None:
        """Take one ``functionCall``."""
        self.signature = self.signature or signature
        self.server_id = self.server_id or _text(told.get("id"))
        self.open = told.get("willContinue") is True
        if told.get("args") is not None:
            self.arguments = told["args"]
        partial = told.get("partialArgs")
        for piece in cast("list[Any]", partial) if isinstance(partial, list) else []:
            if isinstance(piece, dict):
                self._set(cast("dict[str, Any]", piece))
        if self._partial:
            self.arguments = self._partial

    def _set(self, piece: dict[str, Any]) -> None:
        path = piece.get("jsonPath")
        name = next((name for name in _VALUES if name in piece), None)
        if not isinstance(path, str) or name is None:
            return
        value = None if name == "nullValue" else piece[name]
        _put(self._partial, path, value, append=self._going_on == path)
        self._going_on = path if piece.get("willContinue") is True else None

    def block(self, taken: Collection[str]) -> ToolUseBlock:
        """Return the call; its id is the server's where that is new, else one is made up."""
        known = self.server_id
        self.call_id = known if known and known not in taken else f"call_{new_id()}"
        told: Any = {} if self.arguments is None else self.arguments
        if self.open or not isinstance(told, dict):
            raw = json.dumps(told, ensure_ascii=False)
            return ToolUseBlock(call_id=self.call_id, name=self.name, raw_arguments=raw)
        arguments = cast("dict[str, Any]", told)
        return ToolUseBlock(call_id=self.call_id, name=self.name, arguments=arguments)

    @property
    def note(self) -> dict[str, str]:
        """What must go back with the call."""
        told = {"id": self.server_id, "signature": self.signature}
        return {name: value for name, value in told.items() if value}


def _put(target: Any, path: str, value: Any, *, append: bool) -> None:
    steps: list[str | int] = [
        int(index) if index else name or quoted or double
        for name, index, quoted, double in _STEP.findall(path.removeprefix("$"))
    ]
    if not steps:
        return
    for step, following in pairwise(steps):
        target = _inside(target, step, [] if isinstance(following, int) else {})
        if target is None:
            return
    before = _inside(target, steps[-1], None)
    if append and isinstance(before, str) and isinstance(value, str):
        value = before + value
    if isinstance(target, dict) or isinstance(steps[-1], int):
        target[steps[-1]] = value


def _inside(target: Any, step: str | int, empty: Any) -> Any:
    """Return what is at ``step``, put there empty if there is nothing; ``None`` where it cannot be."""
    if isinstance(target, dict) and isinstance(step, str):
        fields = cast("dict[str, Any]", target)
        if fields.get(step) is None:
            fields[step] = empty
        return fields[step]
    if isinstance(target, list) and isinstance(step, int) and step < _MAX_INDEX:
        items = cast("list[Any]", target)
        items += [None] * (step + 1 - len(items))
        if items[step] is None:
            items[step] = empty
        return items[step]
    return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
