"""Shows one run: joins the printer of the chosen form with the progress line."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aar.safety.sanitize import sanitize
from aar.transports.cli import streams

if TYPE_CHECKING:
    from aar.core.agent import RunResult
    from aar.core.session import Session
    from aar.protocol.events import Event
    from aar.transports.cli.printers import Printer
    from aar.transports.cli.progress import Progress


class Show:
    """What a person or a script sees of one ``aar run``.

    Attributes:
        lost: Why standard output cannot be written any more; ``None`` while it can.
        on_lost: Called once when that happens.

    Args:
        output: ``text``, ``json`` or ``stream-json``.
        quiet: Whether standard error gets errors only.
    """

    def __init__(self, output: str, *, quiet: bool = False) -> None:
        self.lost: OSError | None = None
        self.on_lost: Callable[[], object] = lambda: None
        self._output = output
        self._quiet = quiet
        self._finished = False
        self._progress = self._make_progress()
        self._printer: Printer | None = None
        if output != "text":
            streams.machine_output()

    def _make_progress(self) -> Progress | None:
        plain = self._quiet or bool(os.environ.get("CI")) or os.environ.get("TERM") == "dumb"
        if plain or not sys.stderr.isatty():
            return None
        from aar.transports.cli.progress import Progress

        return Progress()

    def _print(self) -> Printer:
        """Return the printer; its modules are imported when there is something to print."""
        if self._printer is None:
            from aar.transports.cli.printers import make_printer

            colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR") and not os.environ.get("CI")
            self._printer = make_printer(
                self._output, self._write, quiet=self._quiet, colour=colour, before_line=self.clear
            )
        return self._printer

    @asynccontextmanager
    async def watching(self, session: Session, earlier: Iterable[Event] = ()) -> AsyncGenerator[None]:
        """Show everything that happens in ``session`` meanwhile; all of it was shown when this ends.

        Args:
            session: The session.
            earlier: Events that were stored before anybody could watch.
        """
        subscription = session.subscribe()
        for event in earlier:
            self._take(event)
        if self._progress is not None:
            self._progress.start()

        async def pump() -> None:
            async for event in subscription:
                self._take(event)

        task = asyncio.ensure_future(pump())
        try:
            yield
        finally:
            subscription.end()
            await task
            subscription.close()
            if self._progress is not None:
                await self._progress.stop()

    def _take(self, event: Event) -> None:
        if self._progress is not None:
            self._progress.event(event)
        self._print().event(event)

    def _write(self, text: str) -> None:
        if self.lost is None:
            self.lost = streams.write(sys.stdout, text)
            if self.lost is not None:
                self.on_lost()

    def clear(self) -> None:
        """Take the progress line away."""
        if self._progress is not None:
            self._progress.clear()

    def note(self, message: str) -> None:
        """Write a sentence to standard error."""
        self.clear()
        streams.write(sys.stderr, f"aar: {sanitize(message)}\n")

    def say(self, session_id: str, message: str) -> None:
        """Tell what was wrong with a line of input, in the form of the output; it is not stored."""
        from aar.protocol.events import Notice
        from aar.protocol.ids import now

        self._take(Notice(session_id=session_id, ts=now(), level="error", message=message, code="input"))

    def result(self, fields: dict[str, Any], run: RunResult | None) -> None:
        """Write the end of one of several runs."""
        self._print().result(fields, run)

    def close(self) -> None:
        """Let nothing more be written as the end."""
        self._finished = True

    def finish(self, fields: dict[str, Any], run: RunResult | None) -> None:
        """Write the end; only the first call does."""
        if self._finished:
            return
        self._finished = True
        self._print().result(fields, run)
