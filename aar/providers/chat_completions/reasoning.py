"""Thinking on the chat-completions wire, and what of it goes back to the server that gave it.

Servers tell thinking in ``reasoning_content``, ``reasoning``, ``reasoning_details`` (OpenRouter and
gateways; with signatures that must go back unchanged) or in content parts (Mistral). What is needed to
send it back in the same form is sealed into ``ReasoningBlock.data`` with the name of the server, so that
no other server ever gets it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from pydantic_core import from_json

_FIELDS = ("reasoning_content", "reasoning", "reasoning_text")


def plain_reasoning(delta: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return the field that tells thinking as text, and the text; servers that tell two repeat themselves."""
    for name in _FIELDS:
        value = delta.get(name)
        if isinstance(value, str) and value:
            return name, value
    return None, ""


class ReasoningDetails:
    """Joins the pieces of ``reasoning_details`` into whole items, in order."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []

    def feed(self, details: Any) -> str:
        """Take the details of one chunk and return the readable text in them."""
        text = ""
        for detail in cast("list[Any]", details) if isinstance(details, list) else []:
            if isinstance(detail, dict):
                item = cast("dict[str, Any]", detail)
                for name in ("text", "summary"):
                    text += item[name] if isinstance(item.get(name), str) else ""
                self._add(item)
        return text

    def _add(self, item: dict[str, Any]) -> None:
        last = self.items[-1] if self.items else None
        if last is None or not _continues(last, item):
            self.items.append(dict(item))
            return
        for name, value in item.items():
            if name in {"text", "summary"} and isinstance(value, str):
                last[name] = (last.get(name) or "") + value
            elif value is not None:
                last[name] = value


def _continues(last: dict[str, Any], item: dict[str, Any]) -> bool:
    if item.get("type") not in {"reasoning.text", "reasoning.summary"} or last.get("type") != item.get(
        "type"
    ):
        return False
    if last.get("signature") and item.get("text"):
        return False
    return all(item.get(name) in {None, last.get(name)} for name in ("index", "id"))


class Envelope:
    """Seals what goes back with a block of thinking.

    Attributes:
        field: The field in which the server told it: ``reasoning_content``, ``thinking_parts`` …
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self.field: str | None = None

    def seal(self, details: list[dict[str, Any]]) -> str | None:
        """Return the opaque data of a block; ``None`` when nothing need go back."""
        if self.field is None and not details:
            return None
        sealed: dict[str, Any] = {"server": self._server}
        if self.field is not None:
            sealed["field"] = self.field
        if details:
            sealed["reasoning_details"] = details
        return json.dumps(sealed, ensure_ascii=False, separators=(",", ":"))


def unseal(data: str | None, server: str) -> dict[str, Any] | None:
    """Return what was sealed for ``server``; ``None`` for another server's, or anything else."""
    if not data or not data.startswith('{"server":'):
        return None
    try:
        sealed = from_json(data)
    except ValueError:
        return None
    return cast("dict[str, Any]", sealed) if sealed.get("server") == server else None
