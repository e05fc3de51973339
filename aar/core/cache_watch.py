"""Tells when a prefix that the vendor had cached was not used again, and what broke it.

From request to request only a handful of things are compared, whatever the length of the conversation; the
vendor's own numbers say whether anything was lost, and only then is the whole conversation looked through.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aar.protocol.messages import Message
from aar.protocol.usage import Usage
from aar.providers.base import ProviderRequest

_WORTH_TELLING = 1024
"""Tokens below which a lost prefix costs too little to be told; vendors cache none that are shorter."""
_KEPT_SHARE = 0.5
_IDLE_S = 270.0
"""Seconds after which vendors let a prefix go; the usual time is five minutes."""
_MAX_UNEXPLAINED = 3


@dataclass(frozen=True, slots=True)
class _Sent:
    """The last request, and how much of it the vendor has in its cache."""

    model: str
    request: ProviderRequest
    cached: int
    at: float


class CacheWatch:
    """Watches the requests of one conversation.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: _Sent | None = None
        self._unexplained = 0

    def look(self, model: str, request: ProviderRequest, usage: Usage) -> str | None:
        """Take an answered request; return a sentence when a cached prefix was not used.

        Args:
            model: ``provider/model`` that answered.
            request: What it was sent.
            usage: What the answer took, as the vendor told it.
        """
        now, last = self._clock(), self._last
        self._last = _Sent(model, request, usage.cache_read + usage.cache_write, now)
        if last is None or usage.estimated:
            return None
        lost = last.cached - usage.cache_read
        if lost < _WORTH_TELLING or usage.cache_read >= last.cached * _KEPT_SHARE:
            return None
        change = _change(last, model, request)
        if change is not None:
            return f"The prompt cache was not used ({lost:,} tokens were read again): {change}."
        self._unexplained += 1
        if self._unexplained > _MAX_UNEXPLAINED:
            return None
        idle, why = now - last.at, "the vendor let it go"
        if idle > _IDLE_S:
            why = f"the last request was {idle / 60:.0f} minutes ago"
        return f"The prompt cache was not used ({lost:,} tokens were read again): {why}."


def _change(last: _Sent, model: str, request: ProviderRequest) -> str | None:
    """Return what differs from the last request in the part that both share."""
    before = last.request
    if model != last.model:
        return f"the model changed from {last.model} to {model}"
    if request.system is not before.system and request.system != before.system:
        return "the system prompt changed"
    if request.tools is not before.tools and request.tools != before.tools:
        return f"the tools changed{_named(before, request)}"
    if request.reasoning != before.reasoning:
        return "the reasoning level changed"
    place = _first_difference(before.messages, request.messages)
    if place is not None:
        return f"message {place + 1} of {len(before.messages)} is not what it was"
    return None


def _named(before: ProviderRequest, now: ProviderRequest) -> str:
    old, new = {tool.name for tool in before.tools}, {tool.name for tool in now.tools}
    changes = (("+", new - old), ("-", old - new))
    parts = [f"{sign} {', '.join(sorted(names))}" for sign, names in changes if names]
    return f" ({'; '.join(parts)})" if parts else ""


def _first_difference(before: Sequence[Message], now: Sequence[Message]) -> int | None:
    """Return the place of the first message that is another one or gone; the last one may have grown."""
    for place, old in enumerate(before[:-1]):
        if place >= len(now) or (now[place] is not old and now[place] != old):
            return place
    return None
