"""Plans of stored sessions, found without opening the sessions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from aar.memory.session_store import SessionStore
from aar.protocol.errors import ConfigurationError
from aar.protocol.events import PlanEvent, parse_event

_MARKS = (b'"type":"plan"', b'"kind":"plan"')
_MOST_SESSIONS = 500


def stored_plan(store: SessionStore, session_id: str) -> PlanEvent | None:
    """Return the last plan of a stored session; ``None``: it has none, or it was dropped."""
    last: bytes | None = None
    try:
        with store.path(session_id).open("rb") as file:
            for line in file:
                if all(mark in line for mark in _MARKS):
                    last = line
    except OSError:
        return None
    if last is None:
        return None
    try:
        event = parse_event(last)
    except ValueError:
        return None
    if not isinstance(event, PlanEvent) or event.agent_id != "main" or event.stage == "dropped":
        return None
    return event


def plans(store: SessionStore, workspace: Path | None) -> Iterator[tuple[str, str, PlanEvent]]:
    """Yield id, title and plan of each session that has one, last written first; each file is read then."""
    for info in store.list(workspace)[:_MOST_SESSIONS]:
        plan = stored_plan(store, info.id)
        if plan is not None:
            yield info.id, info.title or "", plan


def find_plan(store: SessionStore, workspace: Path, prefix: str | None) -> tuple[str, PlanEvent]:
    """Return session and plan; without ``prefix`` those of the session that was written last.

    Raises:
        ConfigurationError: There is no such session, or it has no plan.
    """
    if prefix is None:
        for session_id, _, plan in plans(store, workspace):
            return session_id, plan
        raise ConfigurationError(
            'No session of this folder has a plan; `aar run --mode plan "GOAL"` makes one.'
        )
    from aar.runtime.sessions import find_session

    session_id = find_session(store, prefix)
    plan = stored_plan(store, session_id)
    if plan is None:
        raise ConfigurationError(f"Session {session_id} has no plan; `aar plan list` shows those that have.")
    return session_id, plan
