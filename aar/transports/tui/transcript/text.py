"""Styled text in lines of a given width: runs with a role each, wrapped where people would break them.

A role names what a piece of text is (``code``, ``muted``); `palette` says how that looks. Two roles in one
string (``strong link``) add up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from rich.cells import cell_len, split_graphemes

from aar.safety.sanitize import sanitize, sanitize_prose

if TYPE_CHECKING:
    from textual.strip import Strip

Run = tuple[str, str]
"""A piece of text and its role."""

TAB_CELLS = 4
MIN_WIDTH = 2
"""Narrower than a wide character nothing can be wrapped."""

_WIDE = (
    r"\u1100-\u115e\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97c\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60"
    r"\uffe0-\uffe6\U0001f300-\U0001faff\U00020000-\U0003fffd"
)
_CLOSING = r"、。，．：；？！」』】〉》〕）］｝ー\u0300-\u036f\ufe0f\U0001f3fb-\U0001f3ff"


@cache
def _word() -> re.Pattern[str]:
    # Compiled when text is first wrapped: its large classes take longer than the first frame should wait.
    return re.compile(rf"(\s*)((?:[{_WIDE}]|[^\s\u200d{_WIDE}]+)(?:[{_CLOSING}]|\u200d.)*)")


@dataclass(slots=True, eq=False)
class Code:
    """Source text that stands behind some lines: what is copied for a code block."""

    text: str


@dataclass(slots=True, eq=False)
class Line:
    """One line of the transcript.

    Attributes:
        runs: What is drawn.
        margin: Characters at its beginning that are decoration, not text: they are not copied.
        joined: Text that was left out where the line before was broken; ``None``: a line of its own.
        fill: Role of the rest of the row.
        code: Code block that the line is a part of.
        strip: Row that was drawn of it; kept by whoever draws.
        strip_of: What the row was drawn for.
    """

    runs: tuple[Run, ...] = ()
    margin: int = 0
    joined: str | None = None
    fill: str = ""
    code: Code | None = None
    strip: Strip | None = field(default=None, repr=False)
    strip_of: object = field(default=None, repr=False)

    @property
    def text(self) -> str:
        """Everything that is drawn."""
        return "".join(text for text, _ in self.runs)

    @property
    def body(self) -> str:
        """The text without decoration."""
        return self.text[self.margin :]


def clean(text: str) -> str:
    """Return ``text`` safe to show: `sanitize`, and tabs as spaces."""
    text = sanitize(text)
    return text.expandtabs(TAB_CELLS) if "\t" in text else text


def clean_prose(text: str) -> str:
    """Return what somebody says, safe to show: as `clean` does, with emoji that are made of several."""
    text = sanitize_prose(text)
    return text.expandtabs(TAB_CELLS) if "\t" in text else text


def clean_line(text: str) -> str:
    """Return ``text`` safe to show in one line, with single spaces."""
    return " ".join(sanitize(text, keep_newlines=True).split())


def shorten(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` cells; what is cut shows as an ellipsis."""
    if cell_len(text) <= width:
        return text
    return _head(text, max(0, width - 1)) + "…" if width > 0 else ""


def shorten_start(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` cells; where it is too long its beginning is left out."""
    if cell_len(text) <= width:
        return text
    room = max(0, width - 1)
    start = next((at for at, _, _ in _graphemes(text) if cell_len(text[at:]) <= room), len(text))
    return "…" + text[start:] if width > 0 else ""


def _head(text: str, width: int) -> str:
    used = 0
    for start, end, cells in _graphemes(text):
        used += cells
        if used > width:
            return text[:start]
        _ = end
    return text


def _graphemes(text: str) -> list[tuple[int, int, int]]:
    return split_graphemes(text)[0]


def wrap(
    runs: Sequence[Run],
    width: int,
    *,
    prefix: Sequence[Run] = (),
    hang: Sequence[Run] | None = None,
    code: bool = False,
    fill: str = "",
) -> list[Line]:
    """Break one line of text into lines of at most ``width`` cells.

    Args:
        runs: The text, without newlines.
        width: Cells, decoration included.
        prefix: Decoration before the first line.
        hang: Decoration before the others; ``None``: as ``prefix``.
        code: Whether every space counts: broken at the edge, not between words.
        fill: Role of the rest of the rows.
    """
    hang = prefix if hang is None else hang
    text = "".join(piece for piece, _ in runs)
    room = max(MIN_WIDTH, width - max(_cells(prefix), _cells(hang)))
    lines: list[Line] = []
    before = 0
    for number, (start, end) in enumerate(_spans(text, room, code)):
        lead = hang if number else prefix
        joined = text[before:start] if number else None
        margin = sum(len(piece) for piece, _ in lead)
        lines.append(Line((*lead, *_slice(runs, start, end)), margin, joined, fill))
        before = end
    return lines


def _cells(runs: Iterable[Run]) -> int:
    return sum(cell_len(text) for text, _ in runs)


def _slice(runs: Sequence[Run], start: int, end: int) -> Iterator[Run]:
    place = 0
    for text, role in runs:
        after = place + len(text)
        if after > start and place < end:
            piece = text[max(0, start - place) : end - place]
            if piece:
                yield piece, role
        place = after
        if place >= end:
            return


def _spans(text: str, width: int, code: bool) -> list[tuple[int, int]]:
    """Return where each line begins and ends."""
    if cell_len(text) <= width:
        return [(0, len(text))]
    return list(_fold(text, 0, width)) if code else _break_words(text, width)


def _fold(text: str, offset: int, width: int) -> Iterator[tuple[int, int]]:
    if text.isascii():
        for start in range(0, len(text), width):
            yield offset + start, offset + min(len(text), start + width)
        return
    begin = used = 0
    for start, _, cells in _graphemes(text):
        if used + cells > width and start > begin:
            yield offset + begin, offset + start
            begin, used = start, 0
        used += cells
    yield offset + begin, offset + len(text)


def _break_words(text: str, width: int) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    start = end = used = 0
    for match in _word().finditer(text):
        gap, word = cell_len(match[1]), cell_len(match[2])
        if used + gap + word <= width:
            used, end = used + gap + word, match.end()
            continue
        if end > start:
            spans.append((start, end))
            start, used = match.start(2), 0
        elif gap > width // 2:
            start = match.start(2)
        else:
            used = gap
        if used + word <= width:
            used, end = used + word, match.end()
            continue
        pieces = list(_fold(text[start : match.end()], start, width))
        spans.extend(pieces[:-1])
        start, end = pieces[-1]
        used = cell_len(text[start:end])
    tail = len(text) if used + cell_len(text[end:]) <= width else end
    spans.append((start, tail))
    return spans


def plain_lines(
    text: str, width: int, role: str, *, prefix: Sequence[Run] = (), code: bool = True, fill: str = ""
) -> list[Line]:
    """Wrap text with newlines that was cleaned before."""
    return [
        line
        for row in text.split("\n")
        for line in wrap([(row, role)] if row else [], width, prefix=prefix, code=code, fill=fill)
    ]


def indent(lines: Iterable[Line], first: Sequence[Run], rest: Sequence[Run]) -> list[Line]:
    """Put decoration before lines: ``first`` before the first, ``rest`` before the others."""
    out: list[Line] = []
    for number, line in enumerate(lines):
        lead = rest if number else first
        margin = sum(len(text) for text, _ in lead) + line.margin
        out.append(Line((*lead, *line.runs), margin, line.joined, line.fill, line.code))
    return out


def joined_text(lines: Iterable[Line]) -> str:
    """Return the text of ``lines`` without decoration, with the line breaks of the source."""
    parts: list[str] = []
    for line in lines:
        if parts:
            parts.append("\n" if line.joined is None else line.joined)
        parts.append(line.body)
    return "".join(parts)
