"""Money over runs: what a session and a day may cost, whichever process spends it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from aar.config.schema import BudgetConfig
from aar.protocol.errors import UsageError

Span = Literal["session", "day"]


class DayLedger(Protocol):
    """What all processes of the user spent today."""

    def add(self, usd: float) -> None:
        """Count what was spent now."""
        ...

    def today(self) -> float:
        """Return US dollars of today, those of other processes included."""
        ...


@dataclass(frozen=True, slots=True)
class Line:
    """One budget as it stands, in US dollars.

    Attributes:
        span: Of what.
        spent: So far.
        limit: What may be spent; 0: no limit.
    """

    span: Span
    spent: float
    limit: float

    @property
    def left(self) -> float | None:
        """What may still be spent; ``None``: there is no limit."""
        return max(0.0, self.limit - self.spent) if self.limit else None

    def reached(self, reserve: float) -> bool:
        """Tell whether the limit is reached but for ``reserve``, the share kept back for a last answer."""
        return self.limit > 0 and self.spent >= self.limit * (1 - reserve)


class Budget:
    """``[budget]`` of one session; shared by all agents that work in it.

    Args:
        config: ``[budget]``.
        session_usd: Returns what the session has cost so far, all agents and earlier processes included.
        ledger: Totals of the day; ``None``: only what is spent here counts.
        ceilings: The most that `set_limit` may set, by span.
    """

    def __init__(
        self,
        config: BudgetConfig,
        session_usd: Callable[[], float],
        ledger: DayLedger | None = None,
        ceilings: Mapping[Span, float] | None = None,
    ) -> None:
        self._limits: dict[Span, float] = {"session": config.session_usd, "day": config.day_usd}
        self._ceilings = dict(ceilings or {})
        self._session_usd = session_usd
        self._ledger = ledger
        self._here = 0.0
        self._told: set[str] = set()
        self._priceless = False

    def count(self, cost_usd: float | None) -> None:
        """Count for the day what one request cost; ``None``: its price is not known."""
        if cost_usd is None:
            self._priceless = True
        elif cost_usd > 0:
            self._here += cost_usd
            if self._ledger is not None:
                self._ledger.add(cost_usd)

    def lines(self) -> list[Line]:
        """Return both budgets as they stand, those without a limit too."""
        day = self._ledger.today() if self._ledger is not None else self._here
        return [
            Line("session", self._session_usd(), self._limits["session"]),
            Line("day", day, self._limits["day"]),
        ]

    def set_limit(self, span: Span, usd: float) -> None:
        """Set a limit for the rest of this process, because the user wants it so.

        Args:
            span: Of what.
            usd: US dollars; 0: no limit.

        Raises:
            UsageError: It is no amount, or the settings of the machine allow less.
        """
        ceiling = self._ceilings.get(span, 0.0)
        if not 0 <= usd < float("inf"):
            raise UsageError("A budget is an amount of US dollars, such as 10; 0 sets no limit.")
        if ceiling and not 0 < usd <= ceiling:
            raise UsageError(
                f"The managed settings of this machine allow ${ceiling:.2f} for a {span} at most."
            )
        self._limits[span] = usd
        self._told = {told for told in self._told if not told.startswith(span)}

    def reached_spans(self, reserve: float) -> list[Span]:
        """Return the spans whose limit is reached but for ``reserve``."""
        return [line.span for line in self.lines() if line.reached(reserve)] if self._limited else []

    @property
    def exhausted(self) -> bool:
        """Whether a limit is passed, so that not even a last answer may be asked for."""
        return self._limited and any(line.limit and line.spent >= line.limit for line in self.lines())

    def reached(self, reserve: float) -> bool:
        """Tell whether a limit is reached but for ``reserve``, the share kept back for a last answer."""
        return bool(self.reached_spans(reserve))

    @property
    def _limited(self) -> bool:
        return any(self._limits.values())

    def warnings(self, warn_at: float, reserve: float) -> list[str]:
        """Return a sentence for each limit that came near or was reached since the last call."""
        if not self._limited:
            return []
        told: list[str] = []
        for line in self.lines():
            if line.reached(reserve):
                told += self._once(f"{line.span} end", f"{_used(line)}, so work stops here.")
            elif line.limit and line.spent >= line.limit * warn_at:
                told += self._once(f"{line.span} near", f"{_used(line)}.")
        if self._priceless:
            sentence = "The price of this model is not known, so [budget] cannot hold; --max-steps can."
            told += self._once("price", sentence)
        return told

    def _once(self, what: str, sentence: str) -> list[str]:
        if what in self._told:
            return []
        self._told.add(what)
        return [sentence]


def _used(line: Line) -> str:
    whose = "This session has" if line.span == "session" else "Today's work has"
    return f"{whose} used ${line.spent:.2f} of its budget of ${line.limit:.2f}"
