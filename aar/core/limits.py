"""Limits of one run: steps, seconds, tokens and money. Nothing here outlives the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aar.config.schema import GuardrailsConfig, LimitsConfig
from aar.protocol.state import StopReason
from aar.protocol.usage import Usage

if TYPE_CHECKING:
    from aar.core.budget import Budget

_LAST_ANSWER_SHARE = 0.1
_LAST_ANSWER_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Reached:
    """A limit that ends a run.

    Attributes:
        name: ``steps``, ``seconds``, ``tokens``, ``usd``, or the span of a budget.
        limit: Of this run; 0 for a budget over runs.
        key: The setting.
        flag: What sets it for one run, up to the value; empty for a budget.
    """

    name: str
    limit: float = 0
    key: str = ""
    flag: str = ""


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
        parent: Limits of the run that asked for this one: what is used here counts there too, and its
            tokens, money and time end both.
    """

    def __init__(
        self,
        limits: LimitsConfig,
        guardrails: GuardrailsConfig,
        *,
        warn_at: float = 0.8,
        clock: Callable[[], float] = time.monotonic,
        budget: Budget | None = None,
        parent: RunLimits | None = None,
    ) -> None:
        self._budget = budget
        self._parent = parent
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
        above = None if self._parent is None else self._parent.remaining_seconds
        if not self._limits.seconds:
            return above
        own = max(0.0, self._limits.seconds - self.seconds)
        return own if above is None else min(own, above)

    def count(self, usage: Usage, cost_usd: float | None) -> None:
        """Add what one request used; ``cost_usd`` is ``None`` when the price is not known."""
        self._add(usage, cost_usd)
        if self._budget is not None:
            self._budget.count(cost_usd)

    def _add(self, usage: Usage, cost_usd: float | None) -> None:
        self._priceless = self._priceless or cost_usd is None
        self.usage += usage
        self.cost_usd += cost_usd or 0.0
        if self._parent is not None:
            self._parent._add(usage, cost_usd)

    @property
    def exhausted(self) -> bool:
        """Whether not even a last answer may be asked for."""
        return self.steps >= self._limits.steps or self._used_up

    @property
    def _used_up(self) -> bool:
        limits = self._limits
        return (
            self.remaining_seconds == 0
            or (limits.tokens > 0 and self.usage.total >= limits.tokens)
            or (limits.usd > 0 and self.cost_usd >= limits.usd)
            or (self._budget is not None and self._budget.exhausted)
            or (self._parent is not None and self._parent._used_up)
        )

    def reached(self) -> StopReason | None:
        """Return why the run should end now, or ``None`` while it may go on as usual."""
        limits = self._limits
        if self.steps >= limits.steps or (self.steps and self.steps == limits.steps - 1):
            return StopReason.MAX_STEPS
        if self._time_is_short():
            return StopReason.TIMEOUT
        if self._runs_low:
            return StopReason.BUDGET if self.steps or self.exhausted else None
        return None

    def reached_limits(self) -> list[Reached]:
        """Return which limits are reached, but for what is kept back for a last answer."""
        limits, share = self._limits, self._guardrails.reserve_cost_fraction
        own = (
            (self.steps >= limits.steps - 1, "steps", limits.steps, "--max-steps "),
            (limits.seconds > 0 and self._time_is_short(), "seconds", limits.seconds, "--timeout "),
            (self._few_tokens, "tokens", limits.tokens, "--set limits.tokens="),
            (self._little_money, "usd", limits.usd, "--max-cost "),
        )
        spans = [] if self._budget is None else self._budget.reached_spans(share)
        reached = [
            Reached(name, limit, f"[limits] {name}", flag) for is_so, name, limit, flag in own if is_so
        ]
        return [*reached, *map(Reached, spans)]

    @property
    def _few_tokens(self) -> bool:
        most = self._limits.tokens
        return most > 0 and self.usage.total >= most - self._guardrails.reserve_tokens

    @property
    def _little_money(self) -> bool:
        most = self._limits.usd
        return most > 0 and self.cost_usd >= most * (1 - self._guardrails.reserve_cost_fraction)

    @property
    def _runs_low(self) -> bool:
        """Whether no more tokens or money are left than a last answer needs."""
        share = self._guardrails.reserve_cost_fraction
        return (
            self._few_tokens
            or self._little_money
            or (self._budget is not None and self._budget.reached(share))
            or (self._parent is not None and self._parent._runs_low)
        )

    def _time_is_short(self) -> bool:
        remaining = self.remaining_seconds
        if remaining is None:
            return False
        return remaining <= (self._kept_back_s if self.steps else 0)

    @property
    def _kept_back_s(self) -> float:
        """Seconds for the last answer; those above need some of the same time for theirs."""
        own = min(self._limits.seconds * _LAST_ANSWER_SHARE, _LAST_ANSWER_SECONDS)
        return own if self._parent is None else own + self._parent._kept_back_s

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
