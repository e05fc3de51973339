"""Tables that fit the width: narrow columns stay whole, wide ones are wrapped."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from rich.cells import cell_len

from aar.transports.tui.transcript.text import Line, Run, wrap

Cell = Sequence[Run]
_GAP = 2
_MIN_COLUMN = 5
_MAX_COLUMNS = 40


def render_table(
    rows: Sequence[Sequence[Cell]], aligns: Sequence[str], width: int, *, widths: Sequence[int] | None = None
) -> list[Line]:
    """Return the lines of a table whose first row is its head.

    Args:
        rows: Cells as runs.
        aligns: ``left``, ``right`` or ``center`` for each column.
        width: Cells.
        widths: Widths of the columns, where they are settled.
    """
    count = min(_MAX_COLUMNS, max((len(row) for row in rows), default=0))
    if not count:
        return []
    chosen = list(widths) if widths is not None else column_widths(rows, width)
    if chosen[0] == 0:
        return _records(rows, width)
    lines = _row(_strong(rows[0]), chosen, aligns)
    lines.append(Line((("  ".join("─" * size for size in chosen), "rule"),), 0))
    for row in rows[1:]:
        lines.extend(_row(row, chosen, aligns))
    return lines


def column_widths(rows: Sequence[Sequence[Cell]], width: int) -> list[int]:
    """Return a width for each column so that all fit into ``width``; zeros when they cannot."""
    count = min(_MAX_COLUMNS, max(len(row) for row in rows))
    natural = [max(1, *(_cells(row[n]) for row in rows if n < len(row))) for n in range(count)]
    room = width - _GAP * (count - 1)
    if sum(natural) <= room:
        return natural
    if room < _MIN_COLUMN * count:
        return [0] * count
    # Columns that need less than an equal share keep their size; the others share what is left.
    sizes = [0] * count
    open_columns = sorted(range(count), key=natural.__getitem__)
    while open_columns:
        share = room // len(open_columns)
        column = open_columns.pop(0)
        sizes[column] = min(natural[column], share)
        room -= sizes[column]
    return sizes


def _cells(cell: Cell) -> int:
    return sum(cell_len(text) for text, _ in cell)


def _strong(row: Sequence[Cell]) -> list[Cell]:
    return [[(text, f"{role} strong".strip()) for text, role in cell] for cell in row]


def _row(row: Sequence[Cell], widths: Sequence[int], aligns: Sequence[str]) -> list[Line]:
    cells = [wrap(row[n] if n < len(row) else [], size) for n, size in enumerate(widths)]
    lines: list[Line] = []
    for pieces in zip_longest(*cells):
        runs: list[Run] = []
        for n, (piece, size) in enumerate(zip(pieces, widths, strict=True)):
            inner = list(piece.runs) if piece is not None else []
            space = max(0, size - _cells(inner))
            align = aligns[n] if n < len(aligns) else "left"
            left = space if align == "right" else space // 2 if align == "center" else 0
            last = n == len(widths) - 1
            right = 0 if last else space - left + _GAP
            runs += [(" " * left, ""), *inner, (" " * right, "")]
        lines.append(Line(tuple(run for run in runs if run[0])))
    return lines


def _records(rows: Sequence[Sequence[Cell]], width: int) -> list[Line]:
    """Return one ``head: value`` line for each cell: for a screen too narrow for columns."""
    lines: list[Line] = []
    head = rows[0]
    for row in rows[1:] or [head]:
        if lines:
            lines.append(Line())
        for n, cell in enumerate(row[:_MAX_COLUMNS]):
            name = list(_strong([head[n]])[0]) if n < len(head) and len(rows) > 1 else []
            lines += wrap([*name, (": ", "muted"), *cell] if name else list(cell), width)
    return lines
