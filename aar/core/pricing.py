"""The price of a model that must be looked up: off the event loop, while the first answer is on its way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future

from aar.protocol.usage import Price

_PATIENCE_S = 10.0
"""Seconds that an answer waits for its price at most; then the price is unknown."""


class Pricing:
    """Looks a price up once, in a thread that nobody waits for at the end of the process.

    Args:
        find: Returns the price, or ``None`` when it is not known; may take a second.
    """

    def __init__(self, find: Callable[[], Price | None]) -> None:
        self._find = find
        self._found: Future[Price | None] | None = None

    def start(self) -> None:
        """Begin, if that has not been done; returns at once."""
        if self._found is None:
            self._found = Future()
            threading.Thread(target=self._look, args=(self._found,), name="aar-price", daemon=True).start()

    def _look(self, found: Future[Price | None]) -> None:
        try:
            found.set_result(self._find())
        except Exception:
            # Without a price the cost is told as unknown; a request must not fail for it.
            found.set_result(None)

    async def price(self) -> Price | None:
        """Return the price, ``None`` when it is not known."""
        self.start()
        assert self._found is not None
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await asyncio.shield(asyncio.wrap_future(self._found))
        except TimeoutError:
            return None
