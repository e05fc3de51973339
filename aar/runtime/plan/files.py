"""Plans of stored sessions, found without opening the sessions."""

from __future__ import annotations

from pathlib import Path

from aar.memory.session_store import SessionStore
from aar.protocol.errors import ConfigurationError, StorageError
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
    found = isinstance(event, PlanEvent) and event.agent_id == "main" and event.stage != "dropped"
    return event if found and isinstance(event, PlanEvent) else None


def plans(store: SessionStore, workspace: Path | None) -> list[tuple[str, str, PlanEvent]]:
    """Return id, title and plan of each session that has one, last written first."""
    found: list[tuple[str, str, PlanEvent]] = []
    for info in store.list(workspace)[:_MOST_SESSIONS]:
        plan = stored_plan(store, info.id)
        if plan is not None:
            found.append((info.id, info.title or "", plan))
    return found


def find_plan(store: SessionStore, workspace: Path, prefix: str | None) -> tuple[str, PlanEvent]:
    """Return session and plan; without ``prefix`` those of the session that was written last.

    Raises:
        ConfigurationError: There is no such session, or it has no plan.
    """
    if prefix is None:
        known = plans(store, workspace)
        if not known:
            raise ConfigurationError(
                'No session of this folder has a plan; `aar run --mode plan "GOAL"` makes one.'
            )
        return known[0][0], known[0][2]
    try:
        session_id = store.find(prefix)
    except StorageError as error:
        raise ConfigurationError(str(error)) from error
    plan = stored_plan(store, session_id)
    if plan is None:
        raise ConfigurationError(f"Session {session_id} has no plan; `aar plan list` shows those that have.")
    return session_id, plan
