"""What keeps a session inside its window and its budget: the model that sums up, and the money over runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aar.core.active_model import ActiveModel
from aar.core.budget import Budget, Span
from aar.core.session import Session
from aar.core.way_on import way_on
from aar.memory.spending import SpendingLedger
from aar.protocol.errors import ConfigurationError
from aar.protocol.state import StopReason
from aar.runtime.base import Base, log_failure

if TYPE_CHECKING:
    from aar.core.agent import Agent
    from aar.core.limits import RunLimits
    from aar.runtime.parts import Runtime


def budget_of(base: Base, session: Session) -> Budget:
    """Return ``[budget]`` for ``session``: what the day cost is shared with all processes of the user."""
    managed = base.loaded.managed_budget
    ceilings: dict[Span, float] = {"session": managed.get("session_usd", 0), "day": managed.get("day_usd", 0)}
    ledger = SpendingLedger(base.paths.spending)
    return Budget(base.config.budget, lambda: session.totals.cost_usd, ledger, ceilings)


def offer_of(
    runtime: Runtime, session: Session, agent: Agent
) -> Callable[[StopReason, RunLimits], str | None]:
    """Return what tells at the end of a run how it goes on after a limit."""

    def offer(reason: StopReason, limits: RunLimits) -> str | None:
        lines = agent.budget.lines() if agent.budget is not None else []
        kept = session.session_id if session.folder is not None else None
        return way_on(reason, limits, lines, kept, commands=runtime.takes_commands)

    return offer


class SmallModels:
    """The model of ``[model] small``, opened when a conversation is first summed up.

    Args:
        base: Settings.
    """

    def __init__(self, base: Base) -> None:
        self._base = base
        self._opened: ActiveModel | None = None

    def model(self, main: ActiveModel) -> ActiveModel:
        """Return the model that sums up for ``main``: the small one, or itself where there is none of use."""
        if self._opened is None and self._base.config.model.small is not None:
            from aar.runtime.small import small_model

            try:
                small = small_model(self._base, main)
            except ConfigurationError as error:
                log_failure("the small model cannot be used", error)
                return main
            self._opened = None if small is main else small
        return self._opened or main

    async def aclose(self) -> None:
        """Close its connections."""
        if self._opened is not None:
            await self._opened.provider.aclose()
            self._opened = None
