"""A circuit breaker: a server that keeps failing is left alone for a while, then tried carefully.

Closed: everything passes. After `FAILURES` failures in a row it opens: nothing passes for `PAUSE_S` seconds.
Then one request at a time is let through as a trial; `SUCCESSES` good ones in a row close it, a bad one opens
it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from aar.protocol.errors import ErrorKind

FAILURES = 5
"""Failures in a row after which a server is left alone."""
PAUSE_S = 60.0
"""Seconds for which it is left alone."""
SUCCESSES = 2
"""Good trials in a row after which all is well again."""
_TRIAL_POLL_S = 0.5

BREAKING_KINDS = frozenset(
    {
        ErrorKind.NETWORK,
        ErrorKind.TIMEOUT,
        ErrorKind.OVERLOADED,
        ErrorKind.PROVIDER_INTERNAL,
        ErrorKind.INCOMPLETE_STREAM,
        ErrorKind.MALFORMED_RESPONSE,
    }
)
"""Failures of the server or of the way to it. The others show that the server is there and answers."""


class Ticket:
    """Leave to send one request. Exactly one of its methods is called when the request is over."""

    __slots__ = ("_breaker", "_era", "trial")

    def __init__(self, breaker: CircuitBreaker, era: int, *, trial: bool) -> None:
        self._breaker = breaker
        self._era = era
        self.trial = trial

    def succeeded(self) -> None:
        """The server answered, if only with a refusal."""
        self._breaker.note(self._era, good=True)

    def failed(self) -> None:
        """The server failed, or could not be reached."""
        self._breaker.note(self._era, good=False)

    def released(self) -> None:
        """The request was given up before anything was known."""
        self._breaker.note(self._era, good=None)


class CircuitBreaker:
    """The state of one server, shared by all who ask it. Not for use from several threads.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._successes = 0
        self._opened: float | None = None
        self._trial = False
        # Counts openings and closings: a request of an earlier era says nothing about this one.
        self._era = 0

    @property
    def failures(self) -> int:
        """Failures in a row so far."""
        return self._failures

    @property
    def trying(self) -> bool:
        """Whether a trial is under way."""
        return self._trial

    def admit(self) -> Ticket | float:
        """Return leave to send a request, or the seconds after which to ask again."""
        if self._opened is None:
            return Ticket(self, self._era, trial=False)
        wait = self._opened + PAUSE_S - self._clock()
        if wait > 0:
            return wait
        if self._trial:
            return _TRIAL_POLL_S
        self._trial = True
        return Ticket(self, self._era, trial=True)

    def note(self, era: int, *, good: bool | None) -> None:
        """Take the outcome of a request that was let through in ``era``; ``None``: there is none."""
        if era != self._era:
            return
        if self._opened is not None:
            self._trial = False
        if good is None:
            return
        if good:
            self._succeed()
        else:
            self._fail()

    def _succeed(self) -> None:
        self._failures = 0
        if self._opened is None:
            return
        self._successes += 1
        if self._successes >= SUCCESSES:
            self._opened = None
            self._era += 1

    def _fail(self) -> None:
        self._failures += 1
        if self._opened is not None or self._failures >= FAILURES:
            self._opened = self._clock()
            self._successes = 0
            self._era += 1
