"""Where an edit's old text stands in a file: five strategies, each tried only when the former found nothing.

1. exact; 2. whole lines without trailing white space; 3. whole lines at another, uniform indentation (the
replacement is re-indented alike); 4. typographic characters folded to their plain form; 5. the one block
of lines that is at least 90 % alike, with a clear margin to the next. The result names spans of the
original text, so that nothing outside them can change.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

from aar.protocol.late import late_pattern

_DASHES: Final = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
_SINGLE: Final = "\u2018\u2019\u201a\u201b\u2032\u02bc\uff07"
_DOUBLE: Final = "\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb\uff02"
_SPACES: Final = "\u00a0\u1680\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_PLAIN: Final = ((_DASHES, "-"), (_SINGLE, "'"), (_DOUBLE, '"'), (_SPACES, " "))
_FOLDED: Final = str.maketrans({char: plain for chars, plain in _PLAIN for char in chars})
"""Characters that models like to write plainly; each stands for one other, so that offsets stay."""

RATIO: Final = 0.9
MARGIN: Final = 0.05
_LINE_RATIO: Final = 0.6
_SHORTEST: Final = 24
_MOST_WORK: Final = 30_000_000
_INDENT: Final = late_pattern(r"[ \t]*")


@dataclass(frozen=True, slots=True)
class Match:
    """A place to splice: ``text[start:end]`` becomes ``replacement``. ``line`` counts from 1."""

    start: int
    end: int
    replacement: str
    line: int


@dataclass(frozen=True, slots=True)
class Found:
    """All places that the first successful strategy found, in order."""

    strategy: str
    matches: tuple[Match, ...]


@dataclass(frozen=True, slots=True)
class Nearest:
    """The block most like the old text: its first line (from 1), its lines, and how much alike it is."""

    line: int
    lines: tuple[str, ...]
    ratio: float


class _Source:
    r"""A text seen with ``\n`` line ends, and the way back to offsets of the original."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.plain = text.replace("\r\n", "\n")
        self._dropped: list[int] = []
        if "\r\n" in text:
            found = enumerate(match.start() for match in re.finditer("\r\n", text))
            self._dropped = [position - index for index, position in found]
        self.lines = self.plain.split("\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)

    def original(self, offset: int) -> int:
        r"""Map an offset of ``plain``; at a ``\r\n`` the offset before the ``\r``."""
        return offset + bisect_right(self._dropped, offset - 1)

    def line_at(self, offset: int) -> int:
        return bisect_right(self.starts, offset)

    def match(self, start: int, end: int, replacement: str) -> Match:
        first, last = self.original(start), self.original(end)
        return Match(first, last, self._with_line_ends(replacement, first), self.line_at(start))

    def _with_line_ends(self, replacement: str, first: int) -> str:
        r"""Give the replacement the line ends of the lines around it."""
        if not self._dropped or "\n" not in replacement:
            return replacement
        near = self.text.find("\n", first)
        if near < 0:
            near = self.text.rfind("\n", 0, first)
        crlf = near > 0 and self.text[near - 1] == "\r"
        return replacement.replace("\n", "\r\n") if crlf else replacement


def find(text: str, old: str, new: str) -> Found | None:
    """Return where ``old`` stands in ``text`` and by which strategy, or ``None``.

    Args:
        text: Content of the file.
        old: Text to replace; not empty. Its line ends do not matter.
        new: Replacement, adapted to what was found (indentation, line ends).
    """
    source = _Source(text)
    old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    for strategy, search in _STRATEGIES:
        matches = search(source, old, new)
        if matches:
            return Found(strategy, tuple(matches))
    return None


def fold(text: str) -> str:
    """Return ``text`` with typographic dashes, quotes and spaces as plain ones; its length stays."""
    return text.translate(_FOLDED)


def splice(text: str, matches: Sequence[Match]) -> str:
    """Return ``text`` with every match replaced."""
    pieces: list[str] = []
    position = 0
    for match in matches:
        pieces += [text[position : match.start], match.replacement]
        position = match.end
    return "".join([*pieces, text[position:]])


def nearest(text: str, old: str) -> Nearest | None:
    """Return the block of ``text`` that is most like ``old``, if any is somewhat like it."""
    source = _Source(text)
    wanted, _ = _block(old.replace("\r\n", "\n").strip("\n"))
    scores = _scores(source, wanted, lowest=0.0)
    if not scores:
        return None
    ratio, index = max(scores, key=lambda item: (item[0], -item[1]))
    if ratio < 0.4:
        return None
    return Nearest(index + 1, tuple(source.lines[index : index + len(wanted)]), ratio)


def _exact(source: _Source, old: str, new: str) -> list[Match]:
    return _occurrences(source, source.plain, old, lambda _start: new)


def _occurrences(source: _Source, hay: str, needle: str, replacement: Callable[[int], str]) -> list[Match]:
    matches: list[Match] = []
    position = hay.find(needle)
    while position >= 0:
        end = position + len(needle)
        matches.append(source.match(position, end, replacement(position)))
        position = hay.find(needle, end)
    return matches


def _block(old: str) -> tuple[list[str], bool]:
    """Return the lines of ``old`` and whether it ends with a line end."""
    ends = old.endswith("\n")
    return (old[:-1] if ends else old).split("\n"), ends


def _windows(source: _Source, key: Callable[[str], str], wanted: Sequence[str]) -> list[int]:
    """Return the first lines (from 0) of the blocks that equal ``wanted`` under ``key``, not overlapping."""
    keys = [key(line) for line in source.lines]
    target = [key(line) for line in wanted]
    if not any(target):
        return []
    found: list[int] = []
    index = 0
    while index + len(target) <= len(keys):
        if keys[index] == target[0] and keys[index : index + len(target)] == target:
            found.append(index)
            index += len(target)
        else:
            index += 1
    return found


def _line_match(source: _Source, index: int, count: int, ends: bool, new: str) -> Match:
    """Match whole lines; a missing final newline of the file stays missing."""
    start = source.starts[index]
    end = source.starts[index + count] - 1
    if ends and end < len(source.plain):
        end += 1
    elif ends:
        new = new.removesuffix("\n")
    return source.match(start, end, new)


def _trailing_space(source: _Source, old: str, new: str) -> list[Match]:
    wanted, ends = _block(old)
    found = _windows(source, str.rstrip, wanted)
    return [_line_match(source, index, len(wanted), ends, new) for index in found]


def _indentation(source: _Source, old: str, new: str) -> list[Match]:
    wanted, ends = _block(old)
    matches: list[Match] = []
    for index in _windows(source, str.strip, wanted):
        lines = source.lines[index : index + len(wanted)]
        for change in _TAB_FORMS:
            shift = _shift(lines, [change(line) for line in wanted])
            if shift is not None:
                moved = _reindent(change(new), shift)
                matches.append(_line_match(source, index, len(wanted), ends, moved))
                break
    return matches


def _identity(text: str) -> str:
    return text


def _spaces_to_tabs(width: int) -> Callable[[str], str]:
    def change(text: str) -> str:
        return re.sub(rf"(?m)^(?: {{{width}}})+", lambda match: "\t" * (len(match.group()) // width), text)

    return change


def _tabs_to_spaces(width: int) -> Callable[[str], str]:
    def change(text: str) -> str:
        return re.sub(r"(?m)^\t+", lambda match: " " * (len(match.group()) * width), text)

    return change


_TAB_FORMS: Final[tuple[Callable[[str], str], ...]] = (
    _identity,
    *(_spaces_to_tabs(width) for width in (4, 2, 8)),
    *(_tabs_to_spaces(width) for width in (4, 2, 8)),
)


def _shift(lines: Sequence[str], wanted: Sequence[str]) -> tuple[str, str] | None:
    """Return (indent to take off, indent to put on) if it is the same for all lines that are not blank."""
    shifts: set[tuple[str, str]] = set()
    for have, want in zip(lines, wanted, strict=True):
        if not want.strip():
            continue
        actual, written = _indent(have), _indent(want)
        if actual.endswith(written):
            shifts.add(("", actual[: len(actual) - len(written)]))
        elif written.endswith(actual):
            shifts.add((written[: len(written) - len(actual)], ""))
        else:
            return None
    return shifts.pop() if len(shifts) == 1 else None


def _indent(line: str) -> str:
    found = _INDENT.match(line)
    return found.group() if found else ""


def _reindent(new: str, shift: tuple[str, str]) -> str:
    off, on = shift
    lines = [(on + line.removeprefix(off)) if line.strip() else line for line in new.split("\n")]
    return "\n".join(lines)


def _unicode(source: _Source, old: str, new: str) -> list[Match]:
    folded, needle = source.plain.translate(_FOLDED), old.translate(_FOLDED)

    def kept(start: int) -> str:
        return _keep_typography(source.plain[start : start + len(needle)], old, new)

    matches = _occurrences(source, folded, needle, kept)
    if matches:
        return matches
    wanted, ends = _block(old)
    found = _windows(source, _fold_line, wanted)
    return [_line_match(source, index, len(wanted), ends, new) for index in found]


def _fold_line(line: str) -> str:
    return unicodedata.normalize("NFKC", line).translate(_FOLDED).rstrip()


def _keep_typography(actual: str, old: str, new: str) -> str:
    """Return ``new`` with the characters of ``actual`` wherever ``new`` repeats ``old``."""
    if len(old) * len(new) > 4_000_000:
        return new
    pieces: list[str] = []
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        pieces.append(actual[i1:i2] if tag == "equal" else new[j1:j2])
    return "".join(pieces)


def _similar(source: _Source, old: str, new: str) -> list[Match]:
    wanted, ends = _block(old)
    if sum(len(line.strip()) for line in wanted) < _SHORTEST:
        return []
    scores = _scores(source, wanted, lowest=_LINE_RATIO)
    best = max(scores, default=(0.0, 0))
    if best[0] < RATIO or any(score > best[0] - MARGIN for score, index in scores if index != best[1]):
        return []
    index = best[1]
    moved = _follow_indent(source.lines[index : index + len(wanted)], wanted, new)
    return [_line_match(source, index, len(wanted), ends, moved)]


def _follow_indent(lines: Sequence[str], wanted: Sequence[str], new: str) -> str:
    first = next((position for position, line in enumerate(wanted) if line.strip()), 0)
    shift = _shift([lines[first]], [wanted[first]])
    return new if shift is None else _reindent(new, shift)


def _scores(source: _Source, wanted: Sequence[str], lowest: float) -> list[tuple[float, int]]:
    """Rate every block of as many lines: mean likeness of its lines, by length.

    Blocks with a line less alike than ``lowest`` are left out. Too much work gives nothing.
    """
    target = [line.strip().translate(_FOLDED) for line in wanted]
    lines = [line.strip().translate(_FOLDED) for line in source.lines]
    weights = [max(len(line), 1) for line in target]
    if len(lines) * sum(weights) > _MOST_WORK:
        return []
    table = [_line_ratios(line, lines) for line in dict.fromkeys(target)]
    rows = dict(zip(dict.fromkeys(target), table, strict=True))
    total = sum(weights)
    scores: list[tuple[float, int]] = []
    for index in range(len(lines) - len(target) + 1):
        ratios = [rows[line][lines[index + offset]] for offset, line in enumerate(target)]
        if min(ratios) >= lowest:
            score = sum(ratio * weight for ratio, weight in zip(ratios, weights, strict=True)) / total
            scores.append((score, index))
    return scores


def _line_ratios(wanted: str, lines: Sequence[str]) -> dict[str, float]:
    """Return how much each distinct line is like ``wanted``; 0 when it is clearly not."""
    matcher = SequenceMatcher(None, autojunk=False)
    matcher.set_seq2(wanted)
    ratios: dict[str, float] = {}
    for line in lines:
        if line in ratios:
            continue
        if line == wanted:
            ratios[line] = 1.0
            continue
        matcher.set_seq1(line)
        alike = matcher.real_quick_ratio() >= 0.4 and matcher.quick_ratio() >= 0.4
        ratios[line] = matcher.ratio() if alike else 0.0
    return ratios


_STRATEGIES: Final[tuple[tuple[str, Callable[[_Source, str, str], list[Match]]], ...]] = (
    ("exact", _exact),
    ("trailing space ignored", _trailing_space),
    ("indentation adapted", _indentation),
    ("typographic characters folded", _unicode),
    ("nearest block", _similar),
)
