"""What a session is folded to: totals, and the conversation of each agent, made when it is asked for.

A long session is opened from what its cache kept. What the cache does not tell is read from the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from aar.core.fold import MessageFold
from aar.core.session_restore import no_collection
from aar.core.totals import COMPACTION_AGENT, TotalsFold
from aar.memory.event_lines import Place
from aar.protocol.events import Event, Rewind

UNFOLDED = frozenset({"approval_request", "approval", "checkpoint", "retry", "notice", "subagent"})
"""Events that no fold of a session looks at, so that reading for folds need not build them."""


class SessionFolds:
    """The folds of one session.

    Args:
        stored: Yields the stored events behind a place, without those of `UNFOLDED`.

    Attributes:
        totals: Numbers and facts.
    """

    def __init__(self, stored: Callable[[Place], Iterator[Event]]) -> None:
        self.totals = TotalsFold()
        self._stored = stored
        self._made: dict[str, MessageFold] = {"main": MessageFold()}
        self._unmade: set[str] = set()
        self._kept = b""
        self._kept_place = Place()

    def replay(self, events: Iterable[Event]) -> Iterator[Event]:
        """Fold ``events``, which are stored, and yield them; those of sub-agents wait until asked for."""
        totals, made = self.totals.apply, self._made
        for event in events:
            totals(event)
            fold = made.get(event.agent_id)
            if fold is not None:
                fold.apply(event)
            elif event.agent_id != COMPACTION_AGENT:
                self._unmade.add(event.agent_id)
            yield event

    def prepare(self, events: Sequence[Event]) -> None:
        """Have all that is needed to `apply` ``events``; before they are stored."""
        for event in events:
            if isinstance(event, Rewind):
                fold = self._made.get(event.agent_id)
                if fold is not None and not fold.reaches(event.to_seq):
                    self._made[event.agent_id] = self._whole(event.agent_id)

    def apply(self, event: Event) -> None:
        """Fold an event that has just been stored."""
        self.totals.apply(event)
        fold = self._made.get(event.agent_id)
        if fold is None:
            if event.agent_id in self._unmade:
                return
            fold = self._made[event.agent_id] = MessageFold(event.agent_id)
        fold.apply(event)

    def fold(self, agent_id: str) -> MessageFold:
        """Return the conversation of an agent; of an earlier process it is made now."""
        fold = self._made.get(agent_id)
        if fold is None:
            fold = self._make(agent_id) if agent_id in self._unmade else MessageFold(agent_id)
            self._made[agent_id] = fold
            self._unmade.discard(agent_id)
        return fold

    def _make(self, agent_id: str) -> MessageFold:
        if agent_id == "main" and self._kept:
            kept, self._kept = self._kept, b""
            fold = self._from_kept(kept)
            if fold is not None:
                return fold
        return self._whole(agent_id)

    def _from_kept(self, kept: bytes) -> MessageFold | None:
        """Return the main conversation from what was kept of it; ``None``: that does not reach."""
        try:
            with no_collection():
                fold = MessageFold.load(kept)
        except ValueError:
            return None
        for event in self._stored(replace(self._kept_place)):
            if isinstance(event, Rewind) and event.agent_id == "main" and not fold.reaches(event.to_seq):
                return None
            fold.apply(event)
        return fold

    def _whole(self, agent_id: str) -> MessageFold:
        fold = MessageFold(agent_id)
        for event in self._stored(Place()):
            fold.apply(event)
        return fold

    # Kept

    def facts(self) -> dict[str, Any]:
        """Return what `take` makes the same folds of, as JSON values; without conversations."""
        agents = (self._unmade | set(self._made)) - {"main", COMPACTION_AGENT}
        return {"totals": self.totals.dump(), "agents": sorted(agents)}

    @property
    def at_hand(self) -> bool:
        """Whether the main agent's conversation is in memory."""
        return "main" in self._made

    def dumping(self) -> Callable[[], bytes]:
        """Return what makes ``turns`` for `take` of the main conversation as it is now, in any thread."""
        return self.fold("main").dumping()

    def take(self, facts: dict[str, Any], turns: bytes, place: Place) -> None:
        """Become what another object was when it told ``facts`` and ``turns``, right behind ``place``.

        Raises:
            ValueError, KeyError, TypeError: That cannot be; nothing has changed.
        """
        totals, unmade = TotalsFold.load(facts["totals"]), {"main", *facts["agents"]}
        self.totals, self._made, self._unmade = totals, {}, unmade
        self._kept, self._kept_place = turns, replace(place)
