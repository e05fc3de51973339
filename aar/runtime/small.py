"""Questions to a model beside the conversation, such as titles and routing, and who pays for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from aar.core.active_model import ActiveModel
from aar.core.provider_runner import ProviderRunner
from aar.protocol.events import Event, ProviderMeta
from aar.protocol.ids import new_id
from aar.protocol.messages import Message, TextBlock
from aar.protocol.usage import Usage
from aar.providers.base import ProviderRequest
from aar.runtime.base import Base
from aar.runtime.models import make_active_model

if TYPE_CHECKING:
    from aar.core.budget import Budget
    from aar.core.session import Session

OnCost = Callable[[Usage, float | None], None]
"""Gets the tokens of an answer and its cost in US dollars; ``None``: not known."""


def small_model(base: Base, main: ActiveModel) -> ActiveModel:
    """Return the model for small jobs: that of ``[model] small``, else ``main``.

    What ``[model]`` says of the main model's dialect and window does not hold for it.

    Raises:
        ConfigurationError: It is named, but its provider, address or key is wrong.
    """
    name = base.config.model.small
    if name is None or name == main.name:
        return main
    own = base.config.model.model_copy(update={"dialect": "auto", "context_window": None})
    config = base.config.model_copy(update={"model": own})
    loaded = _with_config(base, config)
    return make_active_model(loaded, name=name)[0]


def _with_config(base: Base, config: object) -> Base:
    from dataclasses import replace
    from typing import Any, cast

    return replace(base, loaded=replace(cast("Any", base.loaded), config=config))


class _Unstored:
    """An `Emit` that keeps nothing: small jobs are no part of the session."""

    def append(self, *events: Event) -> tuple[Event, ...]:
        """Return the events."""
        return events

    def publish(self, event: Event) -> None:
        """Show nothing."""


@dataclass
class SmallJobs:
    """Asks the small model, one question at a time or several side by side.

    Attributes:
        active: The model.
        usage: Tokens of all answers.
        cost_usd: Of all answers; ``None`` once a price was not known.
        on_cost: Told of each answer, so that budgets count it.
    """

    active: ActiveModel
    base: Base
    on_cost: OnCost = lambda usage, cost: None
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0

    async def ask_once(self, prompt: str, system: str = "", max_tokens: int = 500) -> str:
        """Return the model's answer as text, with retries as for any request; no event is stored.

        Args:
            prompt: The question.
            system: System prompt.
            max_tokens: Tokens of the answer at most.

        Raises:
            ProviderError: All attempts failed.
        """
        return await self.ask_all([("user", prompt)], system, max_tokens)

    async def ask_all(
        self, said: Sequence[tuple[Literal["user", "assistant"], str]], system: str, max_tokens: int
    ) -> str:
        """Return what the model says to a whole conversation; otherwise as `ask_once`."""
        runner = ProviderRunner(self.active, self.base.config.model)
        request = ProviderRequest(
            model=self.active.model,
            system=system,
            messages=[Message(role=role, content=(TextBlock(text=text),)) for role, text in said],
            max_output_tokens=max_tokens,
            reasoning="off" if self.active.capabilities.reasoning else None,
        )
        answer = await runner.request(request, _Unstored())
        self.usage += answer.usage
        known = self.cost_usd is not None and answer.cost_usd is not None
        self.cost_usd = (self.cost_usd or 0) + (answer.cost_usd or 0) if known else None
        self.on_cost(answer.usage, answer.cost_usd)
        return answer.text

    async def aclose(self, main: ActiveModel) -> None:
        """Close the small model's connections, unless they are those of ``main``."""
        if self.active.provider is not main.provider:
            await self.active.provider.aclose()


def store_cost(
    session: Session, active: ActiveModel, usage: Usage, cost_usd: float | None, agent_id: str
) -> None:
    """Store what a model used, under an agent id of its own, so that no view of the conversation holds it."""
    meta = ProviderMeta(
        provider=active.name.partition("/")[0], model=active.model, usage=usage, cost_usd=cost_usd
    )
    session.append(meta, scope=session.scope(new_id(), agent_id))


def count_cost(session: Session, budget: Budget | None, jobs: SmallJobs, agent_id: str) -> None:
    """Let a session, and the day, pay for what was asked; see `store_cost`."""
    store_cost(session, jobs.active, jobs.usage, jobs.cost_usd, agent_id)
    if budget is not None:
        budget.count(jobs.cost_usd)
