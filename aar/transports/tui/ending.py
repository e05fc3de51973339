"""The end by a signal, or because the terminal went away: always, and in bounded time."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

LONGEST_S = 8.0
"""Seconds that an ordinary end has after a signal before the process ends without it."""

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Ending:
    """Takes the signals that end a program, and sees to it that the end comes.

    The handlers are Python's, not those of the event loop: it may wait for a terminal that stands still.

    Args:
        give_back: Sets the terminal to what it was; called before a hard end.
        longest_s: See `LONGEST_S`.

    Attributes:
        number: Of the first signal that came.
    """

    def __init__(self, give_back: Callable[[], None], longest_s: float = LONGEST_S) -> None:
        self.number: int | None = None
        self._give_back, self._longest_s = give_back, longest_s
        self._before: dict[int, Any] = {}
        self._asked: Callable[[int], None] = lambda _: None

    def watch(self, asked: Callable[[int], None]) -> None:
        """Call ``asked`` with the number of a signal, between two instructions of the main thread."""
        self._asked = asked
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                self._before[number] = signal.signal(number, self._handle)

    def release(self) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def begin(self, number: int) -> None:
        """Let the process end by itself from now on, or be ended; the first call counts."""
        if self.number is not None:
            return
        self.number = number
        with contextlib.suppress(RuntimeError):
            threading.Thread(target=self._last, name="aar-ending", daemon=True).start()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.begin(number)
        self._asked(number)

    def _last(self) -> None:
        time.sleep(self._longest_s)
        # Every event is on disk already; children end when their sockets close.
        self._give_back()
        os._exit(128 + (self.number or 0))
