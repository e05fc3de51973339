"""Unified diffs as lines: numbers, colours of the language, and marks on the words that changed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import pairwise, zip_longest

from aar.transports.tui.transcript.highlight import highlight, language_of
from aar.transports.tui.transcript.text import Line, Run, clean, wrap

_HUNK = re.compile(r"^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)$")
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_MAX_WORD_LINE = 400
_MAX_PAIRS = 300
_ALIKE = 0.35
"""Lines that have less in common than this get no marks on words: all of them changed."""


@dataclass(slots=True)
class Hunk:
    """A hunk: the lines with their signs."""

    old: int
    new: int
    rows: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


@dataclass(slots=True)
class FileDiff:
    """All hunks of one file."""

    path: str
    hunks: list[Hunk] = field(default_factory=list[Hunk])


def parse_diff(diff: str) -> list[FileDiff]:
    """Return the files of a unified diff. Lines that belong to no hunk are left out."""
    files: list[FileDiff] = []
    hunk: Hunk | None = None
    old_name = ""
    for row in diff.split("\n"):
        if found := _HUNK.match(row):
            hunk = Hunk(int(found[1][:9]), int(found[2][:9]))
            if not files:
                files.append(FileDiff(""))
            files[-1].hunks.append(hunk)
        elif row.startswith("--- ") and (hunk is None or _ended(hunk, row)):
            old_name, hunk = _name(row), None
        elif row.startswith("+++ ") and hunk is None:
            name = _name(row)
            files.append(FileDiff(old_name if name == "/dev/null" else name))
        elif hunk is not None and row[:1] in {"+", "-", " "}:
            hunk.rows.append((row[0], row[1:]))
        elif row.startswith("diff "):
            hunk = None
    return files


def _ended(hunk: Hunk, row: str) -> bool:
    # "--- a/x" inside a hunk would be a removed line "-- a/x".
    return bool(hunk.rows) and row.startswith(("--- a/", "--- /dev/null"))


def _name(row: str) -> str:
    name = row[4:].split("\t")[0].strip()
    return name[2:] if name.startswith(("a/", "b/")) else name


def count_changes(diff: str) -> tuple[int, int]:
    """Return how many lines a diff adds and removes."""
    signs = [sign for item in parse_diff(diff) for hunk in item.hunks for sign, _ in hunk.rows]
    return signs.count("+"), signs.count("-")


def render_diff(diff: str, width: int, limit: int | None = None) -> list[Line]:
    """Return the lines of a unified diff.

    Args:
        diff: As the tool gave it.
        width: Cells.
        limit: At most about so many rows are looked at; ``None``: all.
    """
    lines: list[Line] = []
    files = parse_diff(clean(diff))
    if not files:
        return [line for row in clean(diff).split("\n") for line in wrap([(row, "output")], width, code=True)]
    for item in files:
        if len(files) > 1:
            lines += wrap([(item.path, "aim strong")], width)
        lines += _file(item, width, limit)
        if limit is not None and len(lines) > limit:
            break
    return lines


def _file(item: FileDiff, width: int, limit: int | None) -> list[Line]:
    language = language_of(item.path)
    digits = max((len(str(max(hunk.old, hunk.new) + len(hunk.rows))) for hunk in item.hunks), default=1)
    lines: list[Line] = []
    for number, hunk in enumerate(item.hunks):
        if number:
            lines.append(Line(((" " * digits + " ⋮", "faint"),), digits + 2))
        if limit is not None:
            hunk.rows = hunk.rows[: max(1, limit - len(lines) + 1)]
        lines += _hunk(hunk, language, digits, width)
        if limit is not None and len(lines) > limit:
            break
    return lines


def _hunk(hunk: Hunk, language: str, digits: int, width: int) -> list[Line]:
    old = iter(_coloured(hunk, "-", language))
    new = iter(_coloured(hunk, "+", language))
    marks = _marks(hunk.rows)
    old_number, new_number = hunk.old, hunk.new
    lines: list[Line] = []
    for place, (sign, _) in enumerate(hunk.rows):
        if sign == "-":
            runs, number, role = next(old), old_number, "diff.del"
            old_number += 1
        else:
            runs = next(new)
            number, role = new_number, "diff.add" if sign == "+" else ""
            new_number += 1
            if sign == " ":
                next(old)
                old_number += 1
        lines += _row(runs, sign, number, role, marks.get(place, ()), digits, width)
    return lines


def _coloured(hunk: Hunk, side: str, language: str) -> list[list[Run]]:
    """Return the rows of one side in the colours of its language."""
    text = "\n".join(row for sign, row in hunk.rows if sign in {" ", side})
    return highlight(text, language)


def _row(
    runs: Sequence[Run],
    sign: str,
    number: int,
    role: str,
    marks: Sequence[tuple[int, int]],
    digits: int,
    width: int,
) -> list[Line]:
    tone = {"+": "add", "-": "del"}.get(sign, "faint")
    shown = {"+": "+", "-": "−"}.get(sign, " ")
    prefix = [(f"{number:>{digits}} ", f"faint {role}".strip()), (f"{shown} ", f"{tone} {role}".strip())]
    hang = [(" " * (digits + 3), role)]
    marked = list(_marked(runs, role, marks))
    return wrap(marked, width, prefix=prefix, hang=hang, code=True, fill=role)


def _marked(runs: Sequence[Run], role: str, marks: Sequence[tuple[int, int]]) -> Iterator[Run]:
    """Add the background of the row, and that of changed words."""
    cuts = sorted({edge for mark in marks for edge in mark})
    place = 0
    for text, colour in runs:
        edges = [place, *(cut for cut in cuts if place < cut < place + len(text)), place + len(text)]
        for start, end in pairwise(edges):
            inside = any(begin <= start < stop for begin, stop in marks)
            yield text[start - place : end - place], f"{colour} {role}{'.word' if inside else ''}".strip()
        place += len(text)


def _marks(rows: Sequence[tuple[str, str]]) -> dict[int, list[tuple[int, int]]]:
    """Return, for rows that were changed and not only added or removed, where their changed words stand."""
    marks: dict[int, list[tuple[int, int]]] = {}
    place, pairs = 0, 0
    while place < len(rows):
        gone = _run_of(rows, place, "-")
        come = _run_of(rows, place + gone, "+")
        for n, (one, two) in enumerate(zip_longest(range(gone), range(come))):
            if one is None or two is None or pairs >= _MAX_PAIRS:
                break
            pairs += 1
            before, after = place + n, place + gone + n
            left, right = changed_words(rows[before][1], rows[after][1])
            if left:
                marks[before] = left
            if right:
                marks[after] = right
        place += max(1, gone + come)
    return marks


def _run_of(rows: Sequence[tuple[str, str]], start: int, sign: str) -> int:
    end = start
    while end < len(rows) and rows[end][0] == sign:
        end += 1
    return end - start


def changed_words(old: str, new: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the spans of ``old`` and of ``new`` that differ; none where nearly everything does."""
    if max(len(old), len(new)) > _MAX_WORD_LINE:
        return [], []
    one, two = _WORDS.findall(old), _WORDS.findall(new)
    matcher = SequenceMatcher(None, one, two, autojunk=False)
    if matcher.ratio() < _ALIKE:
        return [], []
    starts_one, starts_two = _starts(one), _starts(two)
    left: list[tuple[int, int]] = []
    right: list[tuple[int, int]] = []
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            if b > a:
                left.append((starts_one[a], starts_one[b]))
            if d > c:
                right.append((starts_two[c], starts_two[d]))
    return left, right


def _starts(words: Sequence[str]) -> list[int]:
    starts = [0]
    for word in words:
        starts.append(starts[-1] + len(word))
    return starts
