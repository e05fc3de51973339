"""The transcript: blocks drawn as lines, the finished ones once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.segment import Segment
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from aar.safety.sanitize import sanitize

if TYPE_CHECKING:
    from aar.transports.tui.blocks import AnyBlock
    from aar.transports.tui.presenter import Changes


class Transcript(ScrollView, can_focus=False):
    """Draws the blocks of a presenter."""

    _lines: list[str]

    def on_mount(self) -> None:
        """Begin empty."""
        self._lines = []

    def apply(self, changes: Changes, blocks: Sequence[AnyBlock]) -> None:
        """Draw what changed of ``blocks``."""
        at_end = self.scroll_offset.y >= self.max_scroll_y - 1
        self._lines = [line for block in blocks for line in _plain(block)]
        self.virtual_size = Size(self.size.width, len(self._lines))
        if at_end:
            self.scroll_end(animate=False)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return one line of the screen."""
        place = y + self.scroll_offset.y
        text = self._lines[place] if place < len(self._lines) else ""
        return Strip([Segment(text)]).adjust_cell_length(self.size.width)


def _plain(block: AnyBlock) -> list[str]:
    text = getattr(block, "text", "") or getattr(block, "message", "") or getattr(block, "label", "")
    if not text:
        text = f"{getattr(block, 'name', '')} {getattr(block, 'status', '')} {getattr(block, 'output', '')}"
    return [*sanitize(text).split("\n"), ""]
