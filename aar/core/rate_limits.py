"""Limits that the user sets on how often a server is asked, over any 60 seconds."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

WINDOW_S = 60.0
"""Seconds over which requests and tokens are counted."""


@dataclass(slots=True, eq=False)
class Slot:
    """One request in the window.

    Attributes:
        at: When it was sent.
        tokens: How many it takes: an estimate, until the server has told the number.
    """

    at: float
    tokens: int


class RateLimits:
    """Requests and tokens of the last minute, shared by all who ask one server.

    Args:
        requests_per_minute: ``None``: no limit.
        tokens_per_minute: Of prompts and answers together; ``None``: no limit.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.requests_per_minute = requests_per_minute
        self.tokens_per_minute = tokens_per_minute
        self._clock = clock
        self._window: deque[Slot] = deque()

    def take(self, tokens: int) -> Slot | float:
        """Return a slot for a request of ``tokens``, or the seconds after which to ask again.

        A request that is larger than the limit is let through when the minute before it was empty.
        """
        now = self._clock()
        while self._window and self._window[0].at <= now - WINDOW_S:
            self._window.popleft()
        wait = max(self._wait_for_requests(now), self._wait_for_tokens(now, tokens))
        if wait > 0:
            return wait
        slot = Slot(now, tokens)
        self._window.append(slot)
        return slot

    def why(self, wait_s: float) -> str:
        """Return the limits that are set, for a sentence."""
        parts: list[str] = []
        if self.requests_per_minute is not None:
            parts.append(f"requests_per_minute = {self.requests_per_minute}")
        if self.tokens_per_minute is not None:
            parts.append(f"tokens_per_minute = {self.tokens_per_minute}")
        return f"{' and '.join(parts)} allow the next request in {max(wait_s, 0.1):.1f} s"

    def _wait_for_requests(self, now: float) -> float:
        limit = self.requests_per_minute
        if limit is None or len(self._window) < limit:
            return 0.0
        return self._window[len(self._window) - limit].at + WINDOW_S - now

    def _wait_for_tokens(self, now: float, tokens: int) -> float:
        limit = self.tokens_per_minute
        if limit is None:
            return 0.0
        used = sum(slot.tokens for slot in self._window)
        wait = 0.0
        for slot in self._window:
            if used + tokens <= limit:
                break
            used -= slot.tokens
            wait = slot.at + WINDOW_S - now
        return wait
