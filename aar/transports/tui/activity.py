"""The line above the prompt: what happens now, for how long, at what cost, and how to stop it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

from aar.transports.tui.one_line import one_line

if TYPE_CHECKING:
    from aar.transports.tui.status import Status

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAME_S = 0.125
_SLOW_S = 1.0
_READER_S = 10.0
_LONG_S = 5.0
"""Seconds from which on a command is worth sending to the background."""


def elapsed(seconds: float) -> str:
    """Return a duration in few characters: ``7 s``, ``2:05``, ``1:00:09``."""
    whole = max(0, int(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}" if minutes else f"{rest} s"


def tokens(count: int) -> str:
    """Return a number of tokens in few characters: ``950``, ``12.3k``, ``1.2M``."""
    if count < 1000:
        return str(count)
    return f"{count / 1000:.1f}k" if count < 999_950 else f"{count / 1_000_000:.1f}M"


def activity_line(
    status: Status, now: float, width: int, sign: str = "", keys: Sequence[str] = ("Esc interrupts",)
) -> Content:
    """Return the line at monotonic second ``now``: parts that do not fit are left out from the end.

    Args:
        status: What goes on.
        now: Monotonic seconds.
        width: Columns.
        sign: A moving sign, or nothing.
        keys: What can be done about it, with its key.
    """
    asked = len(status.pending)
    what = status.activity or "Working"
    if asked:
        what = "Waiting for your answer" if asked == 1 else f"Waiting for {asked} answers"
    what = one_line(what)
    line = Content.styled(f"{sign} " if sign else "", "$accent") + Content.styled(
        what, "$warning" if asked else "$foreground"
    )
    line += Content.styled(f" {elapsed(now - status.since)}", "$text-muted")
    total = elapsed(now - (status.run_since or now))
    more = list(keys)
    if status.run_tokens:
        more.append(f"{tokens(status.run_tokens)} tokens")
    if status.step is not None and status.step > 1:
        more.append(f"step {status.step}, {total} in all")
    for text in more:
        if line.cell_length + len(text) + 3 <= width:
            line += Content.styled(f" · {text}", "$text-muted")
    return line.truncate(max(1, width), ellipsis=True)


class ActivityLine(Static):
    """Shows the present act with its seconds; empty and still when nothing happens.

    Only these cells are drawn again at each tick: the layout never changes.
    """

    def __init__(self) -> None:
        super().__init__(markup=False)
        self.plain = False
        self.stop_key, self.background_key = "Esc", "Ctrl+B"
        self.can_leave = False
        self._status: Status | None = None
        self._ticks: Timer | None = None
        self._frame = 0
        self._period = 0.0
        self._empty = True

    def show(self, status: Status) -> None:
        """Show what ``status`` tells."""
        self._status = status
        self._set_clock(self._wanted_period(status))
        self._draw()

    def _wanted_period(self, status: Status) -> float:
        if not status.working:
            return 0.0
        if self.plain:
            return _READER_S
        # While the user thinks nothing turns.
        return _SLOW_S if status.pending else _FRAME_S

    def _set_clock(self, period: float) -> None:
        if period == self._period:
            return
        self._period = period
        if self._ticks is not None:
            self._ticks.stop()
        self._ticks = self.set_interval(period, self._tick) if period else None

    def _tick(self) -> None:
        self._frame += 1
        self._draw()

    def _draw(self) -> None:
        status = self._status
        if status is None or not status.working:
            if not self._empty:
                self._empty = True
                self.update("", layout=False)
            return
        turning = not self.plain and not status.pending
        sign = _FRAMES[self._frame % len(_FRAMES)] if turning else "" if self.plain else "◆"
        self._empty = False
        now, width = time.monotonic(), self.content_size.width or 80
        keys = [f"{self.stop_key} interrupts"]
        if self.can_leave and not status.pending and now - status.since >= _LONG_S:
            keys.append(f"{self.background_key} lets it run on in the background")
        self.update(activity_line(status, now, width, sign, keys), layout=False)
