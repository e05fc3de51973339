"""What all agents of a process share about the servers they ask: circuit breakers and rate limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aar.core.active_model import ActiveModel
from aar.core.circuit_breaker import BREAKING_KINDS, FAILURES, CircuitBreaker, Ticket
from aar.core.rate_limits import RateLimits, Slot
from aar.protocol.errors import ErrorKind, ProviderError
from aar.protocol.events import Notice
from aar.protocol.ports import Emit
from aar.protocol.usage import Usage

PATIENCE_S = 90.0
"""Longer than one pause: a server that failed its trial again is not waited for a second time."""
_SHOWN_FROM_S = 1.0

Sleep = Callable[[float], Awaitable[object]]


@dataclass(slots=True)
class Patience:
    """For how many seconds a request waits for a server that is left alone, over all its attempts."""

    left_s: float = PATIENCE_S


@dataclass(frozen=True, slots=True)
class Admission:
    """Leave to send one request; `done` is called once when it is over."""

    ticket: Ticket | None
    slot: Slot | None

    def done(self, error: BaseException | None, usage: Usage | None = None) -> None:
        """Take note of how the request went; a cancel and defects of aar say nothing about the server."""
        if self.slot is not None and usage is not None:
            self.slot.tokens = usage.total
        if self.ticket is None:
            return
        if error is None:
            self.ticket.succeeded()
        elif not isinstance(error, ProviderError):
            self.ticket.released()
        elif error.error_kind in BREAKING_KINDS:
            self.ticket.failed()
        else:
            self.ticket.succeeded()


class ServerGuards:
    """Breakers and limits by provider and host. One is made for a process.

    Args:
        clock: Monotonic seconds.
        sleep: Waits; cancelling it ends the wait.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, sleep: Sleep = asyncio.sleep) -> None:
        self._clock = clock
        self._sleep = sleep
        self._breakers: dict[tuple[str, str], CircuitBreaker] = {}
        self._limits: dict[tuple[str, str], RateLimits] = {}

    def set_limits(
        self, active: ActiveModel, requests_per_minute: int | None, tokens_per_minute: int | None
    ) -> None:
        """Set the limits of the server of ``active``; what was sent in the last minute still counts."""
        known = self._limits.get(_key(active))
        if known is None:
            known = self._limits[_key(active)] = RateLimits(clock=self._clock)
        known.requests_per_minute = requests_per_minute
        known.tokens_per_minute = tokens_per_minute

    def counts_tokens(self, active: ActiveModel) -> bool:
        """Tell whether `admit` needs to know how many tokens a request takes."""
        limits = self._limits.get(_key(active))
        return limits is not None and limits.tokens_per_minute is not None

    async def admit(
        self,
        active: ActiveModel,
        emit: Emit,
        *,
        tokens: int,
        remaining_s: Callable[[], float | None],
        patience: Patience,
    ) -> Admission:
        """Wait until a request may be sent; every wait of a second or more is a notice.

        Args:
            active: Who is to be asked.
            emit: Gets the notices.
            tokens: About how many the request takes.
            remaining_s: Seconds until the run's deadline.
            patience: What is left of it for a server that is left alone; without, that is an error at once.

        Raises:
            ProviderError: The wait would pass the deadline, or the server is left alone.
        """
        ticket = await self._pass_breaker(active, emit, remaining_s, patience)
        try:
            slot = await self._pass_limits(active, emit, tokens, remaining_s)
        except BaseException:
            if ticket is not None:
                ticket.released()
            raise
        return Admission(ticket, slot)

    async def _pass_breaker(
        self, active: ActiveModel, emit: Emit, remaining_s: Callable[[], float | None], patience: Patience
    ) -> Ticket | None:
        if not active.server:
            return None
        breaker = self._breakers.setdefault(_key(active), CircuitBreaker(self._clock))
        told = ""
        while not isinstance(answer := breaker.admit(), Ticket):
            if answer > patience.left_s or _passes(answer, remaining_s()):
                raise _left_alone(active, answer)
            # A trial takes as long as its answer; waiting for its outcome is not waiting for a dead server.
            what = "one request tries it now" if breaker.trying else f"aar asks it again in {answer:.0f} s"
            if what != told:
                told = what
                message = f"{_failed_so_often(active)}; {what}."
                emit.append(Notice(level="warning", message=message, code="circuit_open"))
            patience.left_s -= 0.0 if breaker.trying else answer
            await self._sleep(answer)
        return answer

    async def _pass_limits(
        self, active: ActiveModel, emit: Emit, tokens: int, remaining_s: Callable[[], float | None]
    ) -> Slot | None:
        limits = self._limits.get(_key(active))
        if limits is None:
            return None
        while not isinstance(answer := limits.take(tokens), Slot):
            why = f"[providers.{active.provider.name}] {limits.why(answer)}."
            if _passes(answer, remaining_s()):
                message = f"{why} That is after the end of this run; raise the limit, or --timeout."
                raise ProviderError(ErrorKind.RATE_LIMIT, message, retry_after_s=answer, final=True)
            if answer >= _SHOWN_FROM_S:
                emit.append(Notice(message=why, code="rate_limit_wait"))
            await self._sleep(answer)
        return answer


def _key(active: ActiveModel) -> tuple[str, str]:
    return active.provider.name, active.server


def _passes(wait_s: float, remaining: float | None) -> bool:
    return remaining is not None and wait_s >= remaining


def _failed_so_often(active: ActiveModel) -> str:
    return f"{active.server} failed {FAILURES} times in a row and is left alone for a minute"


def _left_alone(active: ActiveModel, wait_s: float) -> ProviderError:
    message = f"{_failed_so_often(active)}. Try again in {max(wait_s, 1):.0f} s, or use another model."
    return ProviderError(ErrorKind.OVERLOADED, message, retry_after_s=wait_s, final=True)
