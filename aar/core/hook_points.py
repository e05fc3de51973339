"""What hooks say at the moments of a run, as events."""

from __future__ import annotations

from aar.protocol.events import ContextEvent, Event
from aar.protocol.messages import TextBlock
from aar.protocol.ports import HookVerdict

MAX_SENT_BACK = 8
"""How often hooks may keep a model from ending one run."""


class PromptBlockedError(Exception):
    """A hook objects to a prompt; ``str(error)`` is its reason."""


def hook_context(said: HookVerdict, label: str) -> list[Event]:
    """Return the events that put the texts of hooks before the model."""
    return [_context(text, label, trusted=said.trusted) for text in said.context]


def refusal_context(said: HookVerdict, label: str) -> Event:
    """Return the event that tells a model why it may not end yet."""
    return _context(f"Do not end yet. {said.refusal}", label, trusted=said.trusted)


def _context(text: str, label: str, *, trusted: bool) -> ContextEvent:
    return ContextEvent(source="hook", label=label, content=(TextBlock(text=text),), trusted=trusted)
