"""Limits of one run: steps, seconds, tokens and money. Nothing here outlives the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from aar.config.schema import GuardrailsConfig, LimitsConfig
from aar.protocol.state import StopReason
from aar.protocol.usage import Usage

if TYPE_CHECKING:
    from aar.core.budget import Budget

_LAST_ANSWER_SHARE = 0.1
_LAST_ANSWER_SECONDS = 20.0


class RunLimits:
    """Counts what a run used up, and tells when it must come to its end.

    Near a limit something is kept back for one last answer without tools: the last step, a tenth of the
    seconds (20 at most), ``reserve_tokens``, ``reserve_cost_fraction``.

    Args:
        limits: ``[limits]``.
        guardrails: What is kept back.
        warn_at: Share of a limit at which there is a warning.
        clock: Monotonic seconds.
        budget: Money over runs; whichever limit is reached first ends the run.
    """

    def __init__(
        self,
        limits: LimitsConfig,
        guardrails: GuardrailsConfig,
        *,
        warn_at: float = 0.8,
        clock: Callable[[], float] = time.monotonic,
        budget: Budget | None = None,
    ) -> None:
        self._budget = budget
        self._limits = limits
        self._guardrails = guardrails
        self._warn_at = warn_at
        self._clock = clock
        self._start = clock()
        self._warned: set[str] = set()
        self._priceless = False
        self.steps = 0
        self.usage = Usage()
        self.cost_usd = 0.0

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return self._clock() - self._start

    @property
    def remaining_seconds(self) -> float | None:
        """Seconds until the run's deadline; ``None``: there is none."""
        if not self._limits.seconds:
            return None
        return max(0.0, self._limits.seconds - self.seconds)

    def count(self, usage: Usage, cost_usd: float | None) -> None:
        """Add what one request used; ``cost_usd`` is ``None`` when the price is not known."""
        self._priceless = self._priceless or cost_usd is None
        self.usage += usage
        self.cost_usd += cost_usd or 0.0
        if self._budget is not None:
            self._budget.count(cost_usd)

    @property
    def exhausted(self) -> bool:
        """Whether not even a last answer may be asked for."""
        limits = self._limits
        return (
            self.steps >= limits.steps
            or self.remaining_seconds == 0
            or (limits.tokens > 0 and self.usage.total >= limits.tokens)
            or (limits.usd > 0 and self.cost_usd >= limits.usd)
            or (self._budget is not None and self._budget.exhausted)
        )

    def reached(self) -> StopReason | None:
        """Return why the run should end now, or ``None`` while it may go on as usual."""
        limits = self._limits
        if self.steps >= limits.steps or (self.steps and self.steps == limits.steps - 1):
            return StopReason.MAX_STEPS
        if self._time_is_short():
            return StopReason.TIMEOUT
        if limits.tokens and self.usage.total >= limits.tokens - self._guardrails.reserve_tokens:
            return StopReason.BUDGET if self.steps or self.exhausted else None
        share = self._guardrails.reserve_cost_fraction
        if limits.usd and self.cost_usd >= limits.usd * (1 - share):
            return StopReason.BUDGET if self.steps or self.exhausted else None
        if self._budget is not None and self._budget.reached(share):
            return StopReason.BUDGET if self.steps or self.exhausted else None
        return None

    def _time_is_short(self) -> bool:
        remaining = self.remaining_seconds
        if remaining is None:
            return False
        kept_back = min(self._limits.seconds * _LAST_ANSWER_SHARE, _LAST_ANSWER_SECONDS)
        return remaining <= (kept_back if self.steps else 0)

    def warnings(self) -> list[str]:
        """Return a sentence for each limit whose warning share was passed since the last call."""
        limits = self._limits
        parts = (
            ("steps", self.steps, limits.steps, f"{self.steps} of {limits.steps} steps"),
            ("tokens", self.usage.total, limits.tokens, f"{self.usage.total:,} of {limits.tokens:,} tokens"),
            ("usd", self.cost_usd, limits.usd, f"${self.cost_usd:.2f} of ${limits.usd:.2f}"),
            ("seconds", self.seconds, limits.seconds, f"{self.seconds:.0f} of {limits.seconds:.0f} seconds"),
        )
        passed: list[str] = []
        for name, used, limit, text in parts:
            if limit and used and name not in self._warned and used >= limit * self._warn_at:
                self._warned.add(name)
                passed.append(f"This run has used {text}.")
        if limits.usd and self._priceless and "price" not in self._warned:
            self._warned.add("price")
            passed.append(
                "The price of this model is not known, so the cost limit cannot hold; --max-steps can."
            )
        if self._budget is not None:
            passed += self._budget.warnings(self._warn_at, self._guardrails.reserve_cost_fraction)
        return passed
