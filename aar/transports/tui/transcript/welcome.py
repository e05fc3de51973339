"""What stands where the transcript is still empty: what may happen here, and how to begin."""

from __future__ import annotations

from collections.abc import Sequence

from aar import __version__
from aar.transports.tui.transcript.text import Line, Run, wrap

_INDENT: tuple[Run, ...] = (("  ", ""),)
_WIDEST = 84
"""Cells: longer lines are hard to read."""

_MODES = {
    "plan": "reads only; every change is refused.",
    "ask": "asks before edits and commands.",
    "edit": "edits unasked, asks before commands that do not build or test.",
    "auto": "edits and runs commands inside the wall; asks for what would leave it.",
    "unsafe": "asks nothing, and nothing holds what it runs.",
}
_SIGNS = (("@", "names a file"), ("!", "runs a command"), ("/", "lists commands"))


def welcome(mode: str, wall: str, keys: Sequence[tuple[str, str]], width: int) -> list[Line]:
    """Return the lines for an empty transcript of ``width`` cells.

    Args:
        mode: Permission mode; what is none gives no lines.
        wall: Around commands; empty: not known yet.
        keys: Key and what it does, as they are now.
        width: Cells.
    """
    if mode not in _MODES:
        return []
    width = min(width, _WIDEST)
    paragraphs: list[list[Run]] = [[], [("aar", "verb"), (f" {__version__}", "muted")], []]
    paragraphs.append([(f"Mode {mode}: {_MODES[mode]}", "muted")])
    if wall == "none" and mode != "unsafe":
        paragraphs.append([("No wall holds commands here: /sandbox tells why.", "warn")])
    paragraphs += [[], _tips([*_SIGNS, *keys])]
    lines: list[Line] = []
    for runs in paragraphs:
        lines += wrap(runs, width, prefix=_INDENT) if runs else [Line()]
    return lines


def _tips(tips: Sequence[tuple[str, str]]) -> list[Run]:
    runs: list[Run] = []
    for key, what in tips:
        runs += [(" · ", "faint")] if runs else []
        runs += [(key, "busy"), (f" {what}", "muted")]
    return runs
