"""A session as Markdown, and as JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pydantic_core import to_json

from aar.memory.export_items import Heading, Item
from aar.protocol.events import Event

_TICKS = re.compile(r"`{3,}")


def to_markdown(top: Heading, parts: Iterable[Item]) -> Iterator[str]:
    """Yield the pieces of a Markdown document."""
    yield f"# {_line(top.title or 'Session')}\n\n"
    for name, value in top.rows():
        yield f"- {name}: {_line(value)}\n"
    for item in parts:
        yield "\n" + _section(item)


def _section(item: Item) -> str:
    who = "" if item.agent_id == "main" else f" ({item.agent_id})"
    if item.kind == "user":
        return f"## You{who}\n\n{item.text.strip()}\n"
    if item.kind == "assistant":
        cut_off = "\n\n*This answer was cut off.*" if item.facts else ""
        return f"## Assistant{who}\n\n{item.text.strip()}{cut_off}\n"
    if item.kind == "thinking":
        return _folded(f"Thinking{who}", _fenced(item.text))
    if item.kind == "note":
        # Lines of a note stay one quotation.
        quoted = item.text.strip().replace("\n", "\n> ")
        return f"> **{_line(item.title)}**{who}: {quoted}\n"
    failed = "failed, " if item.failed else ""
    parts = [_fenced(item.arguments, "json")]
    if item.diff:
        parts.append(_fenced(item.diff, "diff"))
    if item.text:
        parts.append(_fenced(item.text))
    return _folded(f"{item.title}{who} ({failed}{', '.join(item.facts)})", "\n".join(parts))


def _folded(title: str, body: str) -> str:
    safe = _line(title).replace("&", "&amp;").replace("<", "&lt;")
    return f"<details><summary>{safe}</summary>\n\n{body}\n</details>\n"


def _fenced(text: str, language: str = "") -> str:
    longest = max((len(ticks) for ticks in _TICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}\n"


def _line(text: str) -> str:
    return " ".join(text.split())


def to_json_document(
    top: Heading, events: Iterable[Event], redact_json: Callable[[Any], Any]
) -> Iterator[str]:
    """Yield the pieces of one JSON object: ``session`` (facts) and ``events`` (all, redacted)."""
    facts = {name: getattr(top, name) for name in Heading.__slots__}
    yield '{"session":' + to_json(facts).decode() + ',"events":[\n'
    separator = ""
    for event in events:
        plain = redact_json(event.model_dump(mode="json", by_alias=True))
        yield separator + to_json(plain, inf_nan_mode="null").decode()
        separator = ",\n"
    yield "\n]}\n"
