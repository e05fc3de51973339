"""Applying the hunks of a patch to a text. Context lines stay as the file has them."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import Final

from aar.protocol.errors import ToolCategory, ToolFailure
from aar.tools.builtin.common import numbered
from aar.tools.builtin.diff import split_lines
from aar.tools.builtin.edit_match import fold, nearest
from aar.tools.builtin.patch_parse import FilePatch, Hunk


def _same(line: str) -> str:
    return line


def _folded(line: str) -> str:
    return fold(unicodedata.normalize("NFKC", line)).strip()


_KEYS: Final[tuple[Callable[[str], str], ...]] = (_same, str.rstrip, str.strip, _folded)
"""How lines are compared: each way is tried only when the former found no place."""


def apply_hunks(text: str, patch: FilePatch, newline: str = "\n") -> str:
    r"""Return ``text`` with the hunks of ``patch`` applied in order.

    Args:
        text: Content of the file, with its own line ends.
        patch: The changes.
        newline: Line end for new lines where no neighbour tells.

    Raises:
        ToolFailure: ``not_found`` when the context of a hunk is not in the file.
    """
    raw = split_lines(text)
    content = [line.removesuffix("\n").removesuffix("\r") for line in raw]
    out: list[str] = []
    cursor = drift = 0
    for number, hunk in enumerate(patch.hunks, 1):
        start = _locate(content, hunk, cursor, drift)
        if start is None:
            raise ToolFailure(ToolCategory.NOT_FOUND, _not_found(patch.path, number, hunk, text))
        if hunk.old_start is not None:
            drift = start - (hunk.old_start - 1)
        out += raw[cursor:start]
        cursor = _splice(raw, start, hunk, out, newline)
    out += raw[cursor:]
    return _finish(out, patch.hunks, bare=bool(raw) and not raw[-1].endswith("\n"), newline=newline)


def _splice(raw: Sequence[str], at: int, hunk: Hunk, out: list[str], newline: str) -> int:
    ending = _ending(raw, at, newline)
    for mark, line in hunk.lines:
        if mark == "+":
            out.append(line + ending)
            continue
        if mark == " ":
            out.append(raw[at])
        at += 1
    return at


def _ending(raw: Sequence[str], at: int, newline: str) -> str:
    """Return the line end of the line at ``at``, or of the one before."""
    for line in (*raw[at : at + 1], *raw[max(at - 1, 0) : at]):
        if line.endswith("\n"):
            return "\r\n" if line.endswith("\r\n") else "\n"
    return newline


def _finish(out: list[str], hunks: Sequence[Hunk], *, bare: bool, newline: str) -> str:
    """Give every line its end, and the last one what the patch says, or else what the file had."""
    told = [hunk for hunk in hunks if hunk.old_ends_bare or hunk.new_ends_bare]
    if told:
        bare = told[-1].new_ends_bare
    for index, line in enumerate(out[:-1]):
        if not line.endswith("\n"):
            out[index] = line + newline
    if out:
        last = out[-1].removesuffix("\n").removesuffix("\r") if bare else out[-1]
        out[-1] = last if bare or last.endswith("\n") else last + newline
    return "".join(out)


def _locate(content: Sequence[str], hunk: Hunk, cursor: int, drift: int) -> int | None:
    for anchor in hunk.anchors:
        found = _anchor(content, anchor, cursor)
        if found is None:
            return None
        cursor = found + 1
    hint = None if hunk.old_start is None else max(hunk.old_start - 1 + drift, cursor)
    while True:
        old = hunk.old
        if not old:
            at = cursor if hunk.anchors else len(content)
            return at if hint is None else min(hint, len(content))
        start = _seek(content, old, cursor, hint, at_end=hunk.at_end)
        if start is not None or hunk.lines[-1] != (" ", "") or len(old) == 1:
            return start
        hunk.lines.pop()


def _anchor(content: Sequence[str], anchor: str, cursor: int) -> int | None:
    found = _seek(content, [anchor], cursor, None, at_end=False)
    if found is not None:
        return found
    return next((index for index in range(cursor, len(content)) if anchor in content[index]), None)


def _seek(
    content: Sequence[str], old: Sequence[str], cursor: int, hint: int | None, *, at_end: bool
) -> int | None:
    for key in _KEYS:
        lines = [key(line) for line in content]
        wanted = [key(line) for line in old]
        starts = [
            start
            for start in range(cursor, len(lines) - len(wanted) + 1)
            if lines[start] == wanted[0] and lines[start : start + len(wanted)] == wanted
        ]
        if not starts:
            continue
        if at_end:
            return starts[-1]
        return starts[0] if hint is None else min(starts, key=lambda start: abs(start - hint))
    return None


def _not_found(path: str, number: int, hunk: Hunk, text: str) -> str:
    message = f"Change {number} for {path} does not fit: its context is not in the file. Nothing was changed."
    missing = [anchor for anchor in hunk.anchors if anchor not in text]
    if missing:
        return f"{message} The line {missing[0]!r} after @@ was not found."
    near = nearest(text, "\n".join(hunk.old))
    if near is None:
        return message + " Read the file again and take the context lines from it."
    return (
        f"{message} The nearest lines ({near.ratio:.0%} alike) are:\n"
        f"{numbered(list(near.lines[:12]), near.line)}\nTake the context lines exactly from the file."
    )
