"""Shows one run: joins the printer of the chosen form with the progress line."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from aar.core.agent import RunResult
from aar.core.session import Session
from aar.protocol.events import Event
from aar.safety.sanitize import sanitize
from aar.transports.cli.printers import JsonPrinter, Printer, StreamJsonPrinter, TextPrinter
from aar.transports.cli.progress import Progress


class Show:
    """What a person or a script sees of one ``aar run``.

    Args:
        output: ``text``, ``json`` or ``stream-json``.
        quiet: Whether standard error gets errors only.
    """

    def __init__(self, output: str, *, quiet: bool = False) -> None:
        terminal = sys.stderr.isatty()
        plain = bool(os.environ.get("NO_COLOR")) or bool(os.environ.get("CI"))
        self._progress = Progress() if terminal and not quiet and not os.environ.get("CI") else None
        self._printer: Printer
        if output == "json":
            self._printer = JsonPrinter()
        elif output == "stream-json":
            self._printer = StreamJsonPrinter()
        else:
            before = self._progress.clear if self._progress is not None else lambda: None
            colour = terminal and not plain
            self._printer = TextPrinter(quiet=quiet, colour=colour, before_line=before)

    @asynccontextmanager
    async def watching(self, session: Session) -> AsyncGenerator[None]:
        """Show everything that happens in ``session`` meanwhile; all of it was shown when this ends."""
        subscription = session.subscribe()
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
        self._printer.event(event)

    def fail(self, message: str) -> None:
        """Write why a run could not start to standard error."""
        sys.stderr.write(f"aar: {sanitize(message)}\n")

    def finish(self, fields: dict[str, Any], run: RunResult | None) -> None:
        """Write the end."""
        self._printer.result(fields, run)
