"""Places in the transcript: what is selected, what a search found, which link stands under the mouse."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from rich.cells import cell_len, split_graphemes

from aar.transports.tui.transcript.text import Line

_LINK = (
    r"(?P<url>https?://[^\s<>\"'`│]+[^\s<>\"'`│.,;:!?)\]}])"
    r"|(?<![\w/.@+~-])(?P<path>(?:~|\.{1,2})?/?(?:[\w.@+-]++/)*+[\w@+-][\w.@+-]*\.[A-Za-z]\w{0,9})"
    r"(?::(?P<line>\d{1,7}))?(?![\w/])"
)


class Spot(NamedTuple):
    """A character: key of its block, line within the block, character within the line. They have an order."""

    key: int
    line: int
    column: int


class Span(NamedTuple):
    """Characters ``start`` to ``end`` of a line of a block."""

    line: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Link:
    """Where a piece of text points to: a ``url``, or a file with a line."""

    url: str | None = None
    path: str | None = None
    line: int | None = None


def column_at(text: str, cell: int) -> int:
    """Return the character of ``text`` that covers ``cell``; its length when there is none."""
    if text.isascii():
        return max(0, min(cell, len(text)))
    used = 0
    for start, _, cells in split_graphemes(text)[0]:
        used += cells
        if used > cell:
            return start
    return len(text)


def cells_of(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the cells that the characters ``start`` to ``end`` cover."""
    return cell_len(text[:start]), cell_len(text[:end])


def groups(lines: Sequence[Line]) -> Iterator[tuple[str, list[tuple[int, int, Line]]]]:
    """Join lines that were broken: each text with (line, where it begins in the text, the line itself)."""
    text, parts = "", list[tuple[int, int, Line]]()
    for number, line in enumerate(lines):
        if line.joined is None:
            if parts:
                yield text, parts
            text, parts = line.body, [(number, 0, line)]
        else:
            text += line.joined
            parts.append((number, len(text), line))
            text += line.body
    if parts:
        yield text, parts


def find_all(lines: Sequence[Line], query: str) -> list[list[Span]]:
    """Return every place of ``query``, each as the spans that it covers. Capitals in the query are minded."""
    if not query:
        return []
    pattern = re.compile(re.escape(query), 0 if query != query.lower() else re.IGNORECASE)
    found: list[list[Span]] = []
    for text, parts in groups(lines):
        found += [_spans(match.start(), match.end(), parts) for match in pattern.finditer(text)]
    return [spans for spans in found if spans]


def _spans(start: int, end: int, parts: Sequence[tuple[int, int, Line]]) -> list[Span]:
    spans: list[Span] = []
    for number, begin, line in parts:
        size = len(line.body)
        left, right = max(start, begin) - begin, min(end, begin + size) - begin
        if left < right:
            spans.append(Span(number, left + line.margin, right + line.margin))
    return spans


def link_at(lines: Sequence[Line], number: int, column: int) -> Link | None:
    """Return the link that a character is part of. On the words of a link, that is the target behind them."""
    for text, parts in groups(lines):
        for at, begin, line in parts:
            if at != number:
                continue
            place = begin + column - line.margin
            if column < line.margin or place >= len(text):
                return None
            return _link_around(text, place, _role_at(line, column))
    return None


def _link_around(text: str, place: int, role: str) -> Link | None:
    for match in _link().finditer(text[:4_000]):
        behind = "link" in role.split() and match.start() > place
        if match.start() <= place < match.end() or behind:
            return _as_link(match)
    return None


@cache
def _link() -> re.Pattern[str]:
    # Not compiled before there is text to look at: the first frame has none.
    return re.compile(_LINK)


def links_in(lines: Sequence[Line]) -> list[Link]:
    """Return all links of some lines, in their order."""
    return [_as_link(match) for text, _ in groups(lines) for match in _link().finditer(text[:4_000])]


def _as_link(match: re.Match[str]) -> Link:
    line = match["line"]
    return Link(match["url"], match["path"], int(line) if line else None)


def _role_at(line: Line, column: int) -> str:
    for text, role in line.runs:
        if column < len(text):
            return role
        column -= len(text)
    return ""


def copy_lines(lines: Sequence[Line], first: tuple[int, int], last: tuple[int, int]) -> str:
    """Return the text between two places (line, character) without decoration, ends included as given."""
    parts: list[str] = []
    for number in range(max(0, first[0]), min(len(lines), last[0] + 1)):
        line = lines[number]
        start = max(line.margin, first[1] if number == first[0] else 0)
        end = last[1] if number == last[0] else len(line.text)
        if parts:
            parts.append("\n" if line.joined is None else line.joined)
        parts.append(line.text[start:end])
    return "".join(parts)
