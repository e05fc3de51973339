"""Which session is opened: a new one, a stored one, or a copy of one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aar.core.session import Session
from aar.memory.session_file import SessionOpenError
from aar.protocol.errors import ConfigurationError, StorageError

if TYPE_CHECKING:
    from aar.memory.memory_store import MemoryStore
    from aar.memory.session_store import SessionStore
    from aar.protocol.events import Event


def resume_or_fork(
    store: SessionStore | MemoryStore, session_id: str, workspace: Path, *, fork_if_open: bool
) -> Session:
    """Go on with a stored session, or with a copy where another process has it open and that is wanted.

    Raises:
        StorageError: It cannot be read, or another process has it open.
    """
    try:
        return Session.resume(store, session_id)
    except SessionOpenError:
        if not fork_if_open:
            raise
        return Session.fork(store, session_id, cwd=workspace)


def latest_of(store: SessionStore | MemoryStore, workspace: Path) -> str:
    """Return the newest session of a folder.

    Raises:
        ConfigurationError: There is none.
    """
    latest = store.latest(workspace)
    if latest is None:
        raise ConfigurationError(
            f"There is no session of {workspace} to continue; leave --continue out to begin one."
        )
    return latest


def find_session(store: SessionStore | MemoryStore, prefix: str) -> str:
    """Return the session whose id begins with ``prefix``.

    Raises:
        ConfigurationError: There is none, or more than one.
    """
    try:
        return store.find(prefix)
    except StorageError as error:
        raise ConfigurationError(str(error)) from error


def rename_stored(store: SessionStore | MemoryStore, session_id: str, title: str) -> str:
    """Give a stored session another title; return it as it is kept (see `Session.rename`).

    Raises:
        StorageError: It is open somewhere, or cannot be written.
    """
    session = Session.resume(store, session_id)
    try:
        return session.rename(title)
    finally:
        session.close()


def events_since_opening(store: SessionStore | MemoryStore, session: Session) -> list[Event]:
    """Return what was stored since ``session`` was opened."""
    if session.degraded:
        return list(session.events(session.opened_seq))
    return store.tail(session.session_id, session.last_seq - session.opened_seq + 1)
