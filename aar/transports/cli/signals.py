"""Ctrl-C, SIGTERM and SIGHUP during ``aar run``."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable

from aar.transports.cli.failures import Interrupted

_ENDING = (signal.SIGTERM, signal.SIGHUP)


def interruptible() -> None:
    """Let SIGTERM and SIGHUP raise `Interrupted` until the event loop takes them over."""
    if threading.current_thread() is threading.main_thread():
        for number in _ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                signal.signal(number, _raise)


def _raise(number: int, _frame: object) -> None:
    raise Interrupted(number)


class Signals:
    """The first Ctrl-C cancels cleanly, the second leaves at once; SIGTERM and SIGHUP are a clean end too.

    While nothing else is told with `cancels`, a signal cancels the task that entered this. That cancel leaves
    the block as `KeyboardInterrupt`, or as `Interrupted` for SIGTERM and SIGHUP.

    Attributes:
        ended_by: Number of the signal that ended the run, if one did other than Ctrl-C.
    """

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave = leave
        self._interrupts = 0
        self._cancel: Callable[[], object] = lambda: None
        self.ended_by: int | None = None

    def cancels(self, cancel: Callable[[], object]) -> None:
        """Let the next signal call ``cancel``; a signal that came before is not repeated."""
        self._cancel = cancel

    def __enter__(self) -> Signals:
        task = asyncio.current_task()
        assert task is not None
        self._cancel = task.cancel
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        for number in _ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._end, number)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, *_ENDING):
            loop.remove_signal_handler(number)
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            raise (KeyboardInterrupt if self.ended_by is None else Interrupted(self.ended_by)) from None

    def _interrupt(self) -> None:
        self._interrupts += 1
        if self._interrupts > 1:
            self._leave()
            # Everything that was shown is on disk already; children end when their sockets close.
            os._exit(128 + signal.SIGINT)
        self._cancel()

    def _end(self, number: int) -> None:
        self.ended_by = number
        self._cancel()
