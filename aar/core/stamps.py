"""Stamps on events: which session, run and agent, when, and ids that sort as the events do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aar.protocol.errors import InternalError
from aar.protocol.ids import new_id, now

if TYPE_CHECKING:
    from aar.core.session import Session
    from aar.protocol.events import Event

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


@dataclass
class Scope:
    """The `Emit` port of one run of one agent: stamps run, agent and step where they are not given.

    Attributes:
        session: Where events go.
        run_id: Of the run.
        agent_id: Of the agent.
        step: Present step; set by the loop.
    """

    session: Session
    run_id: str
    agent_id: str = "main"
    step: int | None = None

    def append(self, *events: Event) -> tuple[Event, ...]:
        """Store events; see `Session.append`."""
        return self.session.append(*events, scope=self)

    def publish(self, event: Event) -> None:
        """Hand on an event that is not stored; see `Session.publish`."""
        self.session.publish(event, scope=self)

    def stamp(self, event: Event, update: dict[str, object]) -> None:
        """Add to ``update`` what ``event`` does not tell itself."""
        if event.run_id is None:
            update["run_id"] = self.run_id
        if event.step is None:
            update["step"] = self.step
        if event.agent_id == "main":
            update["agent_id"] = self.agent_id


def stamp_stored(
    session: Session, events: Sequence[Event], scope: Scope | None, last_id: str
) -> tuple[Event, ...]:
    """Return ``events`` as ``session`` stores them next, behind the event ``last_id``.

    Raises:
        InternalError: An event is of a kind that is not stored.
    """
    stamped: list[Event] = []
    moment = now()
    for seq, event in enumerate(events, session.last_seq + 1):
        if not event.stored:
            raise InternalError(f"A {event.type} event is shown, not stored: use publish.")
        last_id = _following_id(last_id) if stamped else _id_after(last_id)
        update: dict[str, object] = {
            "id": last_id,
            "seq": seq,
            "ts": moment,
            "session_id": session.session_id,
            "trace_id": session.trace_id,
        }
        if scope is not None:
            scope.stamp(event, update)
        stamped.append(event.model_copy(update=update))
    return tuple(stamped)


def stamp_shown(session: Session, event: Event, scope: Scope | None) -> Event:
    """Return ``event`` as ``session`` hands it on without storing it.

    Raises:
        InternalError: The event is of a kind that is stored.
    """
    if event.stored:
        raise InternalError(f"A {event.type} event must be stored: use append.")
    update: dict[str, object] = {
        "seq": None,
        "ts": now(),
        "session_id": session.session_id,
        "trace_id": session.trace_id,
    }
    if scope is not None:
        scope.stamp(event, update)
    return event.model_copy(update=update)


def _id_after(last: str) -> str:
    """Return a new ULID that sorts after ``last``, also when the clock went back since."""
    fresh = new_id()
    return fresh if fresh > last else _following_id(last)


def _following_id(last: str) -> str:
    """Return the ULID right after ``last``: cheaper than a new one, and as unique."""
    digits = last.rstrip("Z")
    if not digits or digits[-1] not in _CROCKFORD:
        return new_id()
    following = _CROCKFORD[_CROCKFORD.index(digits[-1]) + 1]
    return f"{digits[:-1]}{following}".ljust(len(last), "0")
