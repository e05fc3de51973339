"""Keeps columns where they are, however wide the terminal draws an emoji.

Terminals do not agree how many cells emoji with modifiers, flags, stacked accents and letters of some scripts
take. Behind each of those the cursor is put where the next character belongs, so that one that is wider or
narrower than was reckoned moves nothing else and leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len, split_graphemes

from aar.protocol.late import late_pattern

_UNSURE = late_pattern(
    # Combining marks and scripts that have them, Hangul from parts, marks that choose or join emoji, emoji.
    "[\u0300-\u036f\u0483-\u0489\u0590-\u109f\u1100-\u11ff\u1700-\u1cff\u1dc0-\u1dff\u200c\u200d\u20d0-\u20ff"
    "\u231a-\u23ff\u2600-\u2712\u2714-\u2716\u2718-\u27bf\u2b05-\u2b55\ua8e0-\uabff\ud7b0-\ud7ff\ufe00-\ufe2f"
    "\U0001f000-\U0001faff]"
)
_PIECES = late_pattern(r"(\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.|\n)")
_FLAGS = range(0x1F1E6, 0x1F200)


def steady(data: str) -> str:
    """Return ``data``, text and sequences on the way to a terminal, with columns that hold."""
    if data.isascii() or _UNSURE.search(data) is None:
        return data
    out: list[str] = []
    column: int | None = None
    for place, piece in enumerate(_PIECES.split(data)):
        if place % 2:
            column = _after(piece, column)
            out.append(piece)
        elif piece:
            text, column = _held(piece, column)
            out.append(text)
    return "".join(out)


def _after(sequence: str, column: int | None) -> int | None:
    """Return the cursor's column behind a sequence, from 0; ``None``: not known."""
    if sequence[-1] == "m" and sequence[1:2] == "[":
        return column
    if sequence[-1] == "H" and sequence[1:2] == "[":
        _, _, wanted = sequence[2:-1].partition(";")
        return int(wanted) - 1 if wanted.isdigit() else 0
    return None


def _held(text: str, column: int | None) -> tuple[str, int | None]:
    if column is None:
        return text, None
    if _UNSURE.search(text) is None:
        return text, column + cell_len(text)
    out: list[str] = []
    for cluster, cells in _clusters(text):
        if cells and _UNSURE.search(cluster):
            # Emptied first: a terminal that draws it narrower would show there what was before.
            cluster = f"{' ' * cells}\x1b[{column + 1}G{cluster}\x1b[{column + cells + 1}G"
        out.append(cluster)
        column += cells
    return "".join(out), column


def _clusters(text: str) -> Iterator[tuple[str, int]]:
    """Yield what one looks at as a character, with its cells; the two letters of a flag are one."""
    flag, flag_cells = "", 0
    for start, end, cells in split_graphemes(text)[0]:
        cluster = text[start:end]
        half = ord(cluster[0]) in _FLAGS
        if flag:
            yield flag + cluster if half else flag, flag_cells + (cells if half else 0)
            flag = ""
            if half:
                continue
        if half:
            flag, flag_cells = cluster, cells
        else:
            yield cluster, cells
    if flag:
        yield flag, flag_cells
