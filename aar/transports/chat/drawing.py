"""What a command answers, as plain lines."""

from __future__ import annotations

from aar.commands.base import Choice, Table
from aar.safety.sanitize import sanitize
from aar.transports.chat.paper import Paper, cells

_GAP = 2
_MOST = 60


def draw_table(paper: Paper, table: Table, width: int) -> None:
    """Write a table: columns below each other, the last one as wide as it is."""
    paper.line(table.title, "bold")
    rows = [[sanitize(cell, keep_newlines=False) for cell in row] for row in table.rows]
    if table.columns:
        rows.insert(0, [sanitize(name, keep_newlines=False) for name in table.columns])
    count = max((len(row) for row in rows), default=0)
    sizes = [min(max(cells(row[place]) for row in rows), _MOST) for place in range(max(count - 1, 0))]
    for number, row in enumerate(rows):
        head = bool(table.columns) and number == 0
        paper.line(_joined(row, sizes, table.right, width), "dim" if head else "")
    if table.note:
        paper.line(table.note, "dim")


def _joined(row: list[str], sizes: list[int], right: frozenset[int], width: int) -> str:
    parts = [
        " " * max(size - cells(cell), 0) + cell if place in right else cell + " " * max(size - cells(cell), 0)
        for place, (cell, size) in enumerate(zip(row, sizes, strict=False))
    ]
    start = (" " * _GAP).join(parts)
    last = row[-1] if row else ""
    if not sizes:
        return last
    if cells(start) + _GAP + cells(last) > width and cells(start) > width // 2:
        return f"{start.rstrip()}\n    {last}"
    return f"{start}{' ' * _GAP}{last}".rstrip()


def draw_choice(paper: Paper, choice: Choice) -> None:
    """Write a choice with a number for each item."""
    paper.line(choice.title, "bold")
    size = len(str(len(choice.items)))
    for number, item in enumerate(choice.items, 1):
        mark = "*" if item.current else " "
        detail = f"  {item.detail}" if item.detail else ""
        label = sanitize(item.label, keep_newlines=False)
        paper.line(f"{mark}{number:{size}}. {label}{sanitize(detail, keep_newlines=False)}")
    if choice.note:
        paper.line(choice.note, "dim")
