"""What keeps a session inside its window and its budget: the model that sums up, and the money over runs."""

from __future__ import annotations

from aar.core.active_model import ActiveModel
from aar.core.budget import Budget
from aar.core.session import Session
from aar.memory.spending import SpendingLedger
from aar.protocol.errors import ConfigurationError
from aar.runtime.base import Base, log_failure


def budget_of(base: Base, session: Session) -> Budget:
    """Return ``[budget]`` for ``session``: what the day cost is shared with all processes of the user."""
    return Budget(base.config.budget, lambda: session.totals.cost_usd, SpendingLedger(base.paths.spending))


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
