"""Differences of one file by hunks, which can be taken back one by one; on bytes, so nothing else changes."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

MAX_LINES: Final = 20_000
"""Longer files are shown as one hunk: to compare them line by line takes too long."""
_CONTEXT: Final = 3


@dataclass(frozen=True, slots=True)
class Hunk:
    """A run of changed lines.

    Attributes:
        index: Place among the hunks of the file, from 0.
        old_start: First line in the old file, from 1 (for an insertion: the line after which it stands).
        new_start: The same in the new file.
        old: Lines of the old file, with their ends.
        new: Lines of the new file.
        before: Up to three unchanged lines above.
        after: Up to three unchanged lines below.
    """

    index: int
    old_start: int
    new_start: int
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]
    before: tuple[bytes, ...] = ()
    after: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class FileDiff:
    """How a file differs from what it was.

    Attributes:
        path: Relative to the workspace.
        action: What happened to it.
        old: Content before; ``None``: there was none.
        new: Content now; ``None``: there is none.
        binary: Whether it is no text; then there are no hunks.
        hunks: The changes in order.
        mode: What changed besides the content (``executable``, ``not executable``, ``link``, ``file``).
    """

    path: str
    action: Literal["create", "modify", "delete"]
    old: bytes | None
    new: bytes | None
    binary: bool
    hunks: tuple[Hunk, ...]
    mode: str = ""

    @property
    def added(self) -> int:
        """Lines that came."""
        return sum(len(hunk.new) for hunk in self.hunks)

    @property
    def removed(self) -> int:
        """Lines that went."""
        return sum(len(hunk.old) for hunk in self.hunks)


def split_lines(data: bytes) -> list[bytes]:
    """Cut after each line feed; joined again it is the same."""
    lines = data.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def hunks_of(old: bytes, new: bytes) -> tuple[Hunk, ...]:
    """Return the changed runs of lines from ``old`` to ``new``."""
    before, after = split_lines(old), split_lines(new)
    hunks: list[Hunk] = []
    for tag, a, b, c, d in _opcodes(before, after):
        if tag != "equal":
            hunks.append(
                Hunk(
                    len(hunks),
                    a + (b > a),
                    c + (d > c),
                    tuple(before[a:b]),
                    tuple(after[c:d]),
                    tuple(before[max(0, a - _CONTEXT) : a]),
                    tuple(before[b : b + _CONTEXT]),
                )
            )
    return tuple(hunks)


def without_hunks(old: bytes, new: bytes, taken_back: Collection[int]) -> bytes:
    """Return ``new`` with the hunks of these indexes as they are in ``old``."""
    before, after = split_lines(old), split_lines(new)
    pieces: list[bytes] = []
    index = 0
    for tag, a, b, c, d in _opcodes(before, after):
        if tag == "equal":
            pieces += after[c:d]
            continue
        pieces += before[a:b] if index in taken_back else after[c:d]
        index += 1
    return b"".join(pieces)


def _opcodes(before: list[bytes], after: list[bytes]) -> list[tuple[str, int, int, int, int]]:
    if max(len(before), len(after)) > MAX_LINES:
        return [("equal" if before == after else "replace", 0, len(before), 0, len(after))]
    return list(difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes())


def file_diff(path: str, old: bytes | None, new: bytes | None, mode: str = "") -> FileDiff:
    """Return the difference of one file."""
    action: Literal["create", "modify", "delete"] = "modify"
    if old is None:
        action = "create"
    elif new is None:
        action = "delete"
    binary = any(data is not None and b"\0" in data[:8000] for data in (old, new))
    hunks = () if binary else hunks_of(old or b"", new or b"")
    return FileDiff(path, action, old, new, binary, hunks, mode)
