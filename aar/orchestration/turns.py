"""Places at work: agents of one depth wait for theirs in the order in which they came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aar.protocol.errors import UsageError


class NotBegunError(UsageError):
    """The agent was stopped while it waited for its turn."""


class Turns:
    """At most ``places`` agents at once; who waits is known and may be sent away.

    Args:
        places: How many work at once.
    """

    def __init__(self, places: int) -> None:
        self._gate = asyncio.Semaphore(places)
        self._queue: dict[str, asyncio.Future[None]] = {}

    def ahead_of(self, agent_id: str) -> int | None:
        """Return how many wait before an agent; ``None``: it does not wait."""
        return list(self._queue).index(agent_id) if agent_id in self._queue else None

    def send_away(self, agent_id: str) -> bool:
        """Let an agent wait no longer: its `turn` fails; tell whether it waited."""
        entry = self._queue.get(agent_id)
        return entry is not None and entry.cancel()

    @asynccontextmanager
    async def turn(self, agent_id: str) -> AsyncGenerator[None]:
        """Wait for a place, and keep it meanwhile.

        Raises:
            NotBegunError: `send_away` was called.
        """
        if self._gate.locked():
            await self._wait(agent_id)
        else:
            await self._gate.acquire()
        try:
            yield
        finally:
            self._gate.release()

    async def _wait(self, agent_id: str) -> None:
        entry = self._queue[agent_id] = asyncio.ensure_future(self._acquired())
        try:
            await asyncio.wait({entry})
        except asyncio.CancelledError:
            if entry.done() and not entry.cancelled():
                self._gate.release()
            entry.cancel()
            raise
        finally:
            del self._queue[agent_id]
        if entry.cancelled():
            raise NotBegunError(f"The agent {agent_id} was stopped before its turn came.")

    async def _acquired(self) -> None:
        await self._gate.acquire()
