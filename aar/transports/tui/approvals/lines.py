"""Scrollable lines that know whether all of them were seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from aar.transports.tui.approvals.view import Line


def fold(text: str, width: int) -> list[str]:
    """Return ``text`` in rows of at most ``width`` cells, broken after spaces where possible; all is kept."""
    rows: list[str] = []
    start = 0
    while start < len(text):
        piece = text[start : start + 8 * width]
        if cell_len(piece) > width:
            piece = chop_cells(piece, width)[0]
            # Joined characters are measured by the row, not one by one.
            while len(piece) > 1 and cell_len(piece) > width:
                piece = piece[:-1]
            space = piece.rfind(" ") + 1
            if space > len(piece) // 2 and not text.startswith(" ", start + len(piece)):
                piece = piece[:space]
        rows.append(piece)
        start += len(piece)
    return rows or [""]


class LinesView(ScrollView, can_focus=False):
    """Draws lines, wrapped and never cut; long ones go on below.

    Attributes:
        seen: Whether the last line has been on the screen since the lines were set.
    """

    DEFAULT_CSS = """
    LinesView {
        height: auto; color: $text; overflow-x: hidden; scrollbar-size-vertical: 1;
    }
    LinesView > .lines--name { color: $text-muted; }
    LinesView > .lines--mark { color: $text-accent; }
    LinesView > .lines--add { color: $text-success; }
    LinesView > .lines--remove { color: $text-error; }
    LinesView > .lines--command { color: $text-primary; text-style: bold; }
    LinesView > .lines--option { color: $text; }
    LinesView > .lines--chosen { color: $primary; text-style: bold; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"lines--{kind}" for kind in ("name", "mark", "add", "remove", "command", "option", "chosen")
    }

    class Scrolled(Message):
        """Another part is on the screen."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False
        self._lines: Sequence[Line] = ()
        self._rows: list[tuple[str, str]] = []
        self._first_rows: list[int] = []
        self._width = 0
        self.chosen: int | None = None

    def set_lines(self, lines: Sequence[Line]) -> None:
        """Show other lines, from their beginning."""
        self._lines, self.seen, self.chosen = lines, False, None
        self._width, self._rows, self._first_rows = 0, [], []
        self.scroll_to(y=0, animate=False, force=True)
        self.refresh(layout=True)
        self.call_after_refresh(self._look)

    def choose(self, line: int) -> None:
        """Mark a line and bring it on the screen."""
        self.chosen = line
        if line < len(self._first_rows):
            row, height = self._first_rows[line], self.size.height
            if not self.scroll_offset.y <= row < self.scroll_offset.y + height:
                self.scroll_to(y=max(0, row - height + 1), animate=False, force=True)
        self.refresh()

    @property
    def below(self) -> int:
        """Rows that are below what the screen shows."""
        return max(0, len(self._rows) - self.scroll_offset.y - self.size.height)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the rows that the lines take in ``width`` cells."""
        self._wrap(width)
        return max(1, len(self._rows))

    def _wrap(self, width: int) -> None:
        if width == self._width or width <= 0:
            return
        self._width, self._rows, self._first_rows = width, [], []
        for line in self._lines:
            self._first_rows.append(len(self._rows))
            self._rows += [(piece, line.kind) for piece in fold(line.text, width)]
        self.virtual_size = Size(width, len(self._rows))

    def on_resize(self) -> None:
        """Wrap again."""
        self._wrap(self.scrollable_content_region.width)
        self.call_after_refresh(self._look)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Note what has been seen."""
        super().watch_scroll_y(old_value, new_value)
        self.call_after_refresh(self._look)

    def _look(self) -> None:
        if self.size.height and self._rows and self.below == 0:
            self.seen = True
        self.post_message(self.Scrolled())

    def render_line(self, y: int) -> Strip:
        """Return one row of the screen."""
        row = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        base = self.rich_style
        if row >= len(self._rows):
            return Strip.blank(width, base)
        text, kind = self._rows[row]
        if self.chosen is not None and self._line_of(row) == self.chosen:
            kind = "chosen"
        style = base if kind == "text" else self.get_component_rich_style(f"lines--{kind}")
        return Strip([Segment(text, style)]).adjust_cell_length(width, base)

    def _line_of(self, row: int) -> int:
        from bisect import bisect_right

        return bisect_right(self._first_rows, row) - 1
