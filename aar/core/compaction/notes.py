"""Notes in sections: what a model writes of a conversation, read tolerantly, and joined with earlier ones."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

from aar.core.tokens import estimate_text

Notes = dict[str, tuple[str, ...]]

SECTIONS: dict[str, str] = {
    "goal": "Goal",
    "constraints": "Constraints and rules",
    "decisions": "Decisions, with their reasons",
    "facts": "Facts worth keeping",
    "state": "What is done",
    "open": "Open work",
    "next": "Next step",
}
"""Sections by key, with the headings that are shown."""

LASTING = frozenset({"constraints", "decisions", "facts"})
"""Sections that are added to; in the others the newest word counts."""

_TITLES = frozenset(heading.lower() for heading in SECTIONS.values())

_WORDS = {
    "goal": r"goals?\b|task\b|objective",
    "constraints": r"constraints?\b|rules?\b|requirements?\b|instructions?\b",
    "decisions": r"decisions?\b|decided\b",
    "facts": r"(?:key |important |other )?(?:facts?|findings?|details|notes?)\b",
    "state": r"(?:what (?:is|was) )?done\b|state\b|status\b|progress\b|completed\b",
    "open": r"open\b|todos?\b|to do\b|remaining\b|pending\b",
    "next": r"next\b",
}
_HEADING = re.compile(
    r"^\s*(?P<mark>#{1,6}\s*|\*\*\s*|\d+[.)]\s*(?:\*\*)?)?(?P<title>[A-Za-z][A-Za-z ,/&'-]{1,60}?)\s*"
    r"(?:\*\*)?\s*(?:(?P<colon>:)\s*(?:\*\*)?\s*(?P<rest>.*))?$"
)
_BULLET = re.compile(r"^\s*(?:[-*•+]|\d+[.)])\s+")
_NOTHING = re.compile(r"^\W*(?:none|nothing(?: missing)?|n/?a|no|-|not known|unknown)\W*$", re.IGNORECASE)
_LINE_CHARS = 600
_LOOKED_AT_CHARS = 4000
_TELLING = re.compile(
    # Numbers, paths, names of code, quotes, reasons and rules. A run of characters is begun at its edge only,
    # else a long one is looked through from each of its letters.
    r"\d{2,}|(?<![\w.-])[\w.-]+/[\w./-]+|\b\w+\.\w{1,4}\b|\b\w+_\w+|\b[A-Z]\w*[a-z][A-Z]\w*|\b[A-Z]{2,}\b"
    r"|(?<=[a-z] )[A-Z]\w{3,}|`[^`]+`"
    r"|\b(?:because|decided?|chose|must|never|always|cause[ds]?|fails?|failing|todo|remains?|still|instead|called)\b"
)


def parse_notes(text: str) -> Notes:
    """Return the sections of a model's notes; lines under no known heading are ``facts``.

    Headings may be Markdown, bold, numbered or end in a colon; items may be bullets or plain lines.
    """
    found: dict[str, list[str]] = {}
    section = "facts"
    for line in text.splitlines():
        if not line.strip() or line.strip().startswith("```"):
            continue
        key, rest = _heading(line)
        if key is not None:
            section = key
            line = rest
        item = _BULLET.sub("", line).strip().lstrip("#").strip()
        # A line of JSON or of tags is a tool call that nobody asked for, or the frame of the question.
        if item and not _NOTHING.match(item) and item[0] not in "{<[":
            found.setdefault(section, []).append(item[:_LINE_CHARS])
    return {key: tuple(dict.fromkeys(found[key])) for key in SECTIONS if key in found}


def has_headings(text: str) -> bool:
    """Tell whether ``text`` has at least two of the sections."""
    return len({key for line in text.splitlines() if (key := _heading(line)[0]) is not None}) >= 2


def _heading(line: str) -> tuple[str | None, str]:
    """Return the section that ``line`` opens, and what stands behind the heading."""
    bare = _BULLET.sub("", line).strip()
    bullet = bare != line.strip() and not bare.startswith("**")
    match = None if bullet else _HEADING.match(bare)
    if match is None:
        return None, line
    title = match["title"].strip().lower()
    if not (match["colon"] or match["mark"]) and title not in _TITLES:
        return None, line
    for key, words in _WORDS.items():
        if re.match(words, title):
            return key, (match["rest"] or "").strip("* ")
    return None, line


def parse_missing(text: str) -> Notes:
    """Return what the second question brought: bullets ``- section: what``; other lines are no answer."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if not _BULLET.match(line):
            continue
        item = _BULLET.sub("", line).strip()
        head, colon, rest = item.partition(":")
        key = next((k for k, words in _WORDS.items() if re.match(words, head.strip("* ").lower())), None)
        if not colon or key is None or key not in LASTING | {"open"}:
            key, rest = "facts", item
        if rest.strip() and not _NOTHING.match(rest):
            found.setdefault(key, []).append(rest.strip()[:_LINE_CHARS])
    return {key: tuple(lines) for key, lines in found.items()}


def merge_notes(earlier: Mapping[str, Sequence[str]], later: Mapping[str, Sequence[str]]) -> Notes:
    """Return both: lasting sections are added to, of the others the later one holds if it says anything."""
    merged: Notes = {}
    for key in SECTIONS:
        old, new = tuple(earlier.get(key, ())), tuple(later.get(key, ()))
        lines = _joined(old, new) if key in LASTING else new or old
        if lines:
            merged[key] = lines
    return merged


def add_missing(notes: Notes, missing: Notes) -> Notes:
    """Return ``notes`` with what the second question brought, in every section."""
    both = {key: _joined(notes.get(key, ()), missing.get(key, ())) for key in SECTIONS}
    return {key: lines for key, lines in both.items() if lines}


def _joined(old: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    lines: dict[str, str] = {}
    for line in (*old, *new):
        lines.setdefault(re.sub(r"\W+", " ", line.lower()).strip(), line)
    return tuple(lines.values())


def telling(line: str) -> float:
    """Return how much a line tells for its length: names, numbers, paths, reasons and rules count."""
    found = sum(1 for _ in itertools.islice(_TELLING.finditer(line, 0, _LOOKED_AT_CHARS), 3))
    return found / (40 + len(line))


def trim_notes(notes: Notes, tokens: int) -> Notes:
    """Return ``notes`` in at most about ``tokens``: long lines are cut, then those that tell least go."""
    for limit in (_LINE_CHARS, 300, 160, 100):
        trimmed = {key: tuple(_cut(line, limit) for line in lines) for key, lines in notes.items()}
        if notes_tokens(trimmed) <= tokens:
            return trimmed
    while notes_tokens(trimmed) > tokens:
        longest = max(trimmed, key=lambda key: len(trimmed[key]))
        lines = trimmed[longest]
        if len(lines) <= 1:
            break
        least = sorted(range(len(lines)), key=lambda at: telling(lines[at]))
        dropped = set(least[: max(1, len(lines) // 8)])
        trimmed[longest] = tuple(line for at, line in enumerate(lines) if at not in dropped)
    return trimmed


def notes_tokens(notes: Mapping[str, Sequence[str]]) -> int:
    """Return about how many tokens ``notes`` are when shown."""
    return estimate_text(render_notes(notes))


def render_notes(notes: Mapping[str, Sequence[str]]) -> str:
    """Return ``notes`` as Markdown."""
    parts = [
        f"## {heading}\n" + "\n".join(f"- {line}" for line in notes[key])
        for key, heading in SECTIONS.items()
        if notes.get(key)
    ]
    return "\n\n".join(parts)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
