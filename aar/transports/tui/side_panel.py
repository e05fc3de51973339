"""The side panel as a widget; what it shows is in `panel_lines`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

from aar.transports.tui.layout import SECTIONS

if TYPE_CHECKING:
    from aar.transports.tui.presenter import Presenter
    from aar.transports.tui.status import Status

_DRAW_S = 0.25
_EDGES = 5
"""Cells beside the text: the padding, and the bar that appears when there is more than fits."""

_LEAST_WIDTH = 12


@dataclass(slots=True)
class _Wanted:
    status: Status | None = None
    presenter: Presenter | None = None
    sections: Sequence[str] = field(default=SECTIONS)


class SidePanel(VerticalScroll, can_focus=False):
    """Draws `panel_lines` at most four times a second, and nothing while it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = False
        self._wanted = _Wanted()
        self._timer: Timer | None = None
        self._shown: Content | None = None

    def compose(self) -> ComposeResult:
        """Hold one text."""
        yield Static(markup=False)

    def set_sections(self, sections: Sequence[str]) -> None:
        """Show these sections, in this order."""
        self._wanted.sections = tuple(sections)
        self._soon()

    def show(self, presenter: Presenter) -> None:
        """Show what ``presenter`` tells."""
        self._wanted.status, self._wanted.presenter = presenter.status, presenter
        self._soon()

    def on_resize(self, _event: events.Resize) -> None:
        """Break the lines for the new width."""
        self.draw()

    def _soon(self) -> None:
        if self.display and self._timer is None and self._wanted.presenter is not None:
            self._timer = self.set_timer(_DRAW_S, self.draw)

    def draw(self) -> None:
        """Draw now."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        wanted, width = self._wanted, self.outer_size.width - _EDGES
        if wanted.status is None or wanted.presenter is None or not self.display or width <= 0:
            return
        # Here, so that the first frame does not wait for it.
        from aar.transports.tui.panel_lines import facts_of, panel_lines
        from aar.transports.tui.transcript.palette import content_of

        facts, width = facts_of(wanted.presenter), max(_LEAST_WIDTH, width)
        lines = panel_lines(wanted.status, facts, width, wanted.sections, plain=self.plain)
        text = content_of(lines)
        if self._shown is None or not text.is_same(self._shown):
            self._shown = text
            self.query_one(Static).update(text)
