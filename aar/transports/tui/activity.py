"""The line above the prompt: what happens now, for how long, and how to stop it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

if TYPE_CHECKING:
    from aar.transports.tui.status import Status


class ActivityLine(Static):
    """Shows the present act with its seconds; still when nothing happens."""

    _status: Status | None = None
    _ticks: Timer | None = None

    def on_mount(self) -> None:
        """Make the clock, stopped."""
        self._ticks = self.set_interval(1, self._tick, pause=True)

    def show(self, status: Status) -> None:
        """Show what ``status`` tells."""
        self._status = status
        if self._ticks is not None:
            (self._ticks.resume if status.working else self._ticks.pause)()
        self._tick()

    def _tick(self) -> None:
        status = self._status
        if status is None or not status.working:
            self.update("", layout=False)
            return
        seconds = int(time.monotonic() - status.since)
        self.update(Content(f"{status.activity} {seconds} s · esc interrupts"), layout=False)
