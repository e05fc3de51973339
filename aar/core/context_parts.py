"""What fills the model's window, by part, for the screens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aar.core.compaction.meter import session_tokens
from aar.core.session import Session
from aar.core.tokens import estimate_text, estimate_tools

if TYPE_CHECKING:
    from aar.core.view import SessionView

PARTS = ("system", "rules", "tools", "history", "outputs", "images", "free")


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the window.

    Attributes:
        name: One of `PARTS`.
        tokens: About how many it takes.
        share: Of the whole window, from 0 to 1.
    """

    name: str
    tokens: int
    share: float


def context_breakdown(session: Session, view: SessionView) -> list[Part]:
    """Return what the next request would be made of; the last part is what is free.

    Cheap when asked again: messages that were counted once are not looked at again. Tokens are estimates;
    where together they are more than the window, shares add up to more than 1 and nothing is free.

    Args:
        session: The conversation.
        view: How the model sees it; `aar.core.agent.Agent.view_of` makes one.
    """
    window = view.active.capabilities.context_window
    rules = sum(estimate_text(layer.text) for layer in view.prompt.layers if layer.name == "rules")
    said = session_tokens(session, view.agent_id)
    counts = {
        "system": max(0, estimate_text(view.prompt.text) - rules),
        "rules": rules,
        "tools": estimate_tools(view.tools) if view.dialect == "native" else 0,
        "history": said.history,
        "outputs": said.outputs,
        "images": said.images,
    }
    counts["free"] = max(0, window - sum(counts.values()))
    return [Part(name, counts[name], counts[name] / window) for name in PARTS]
