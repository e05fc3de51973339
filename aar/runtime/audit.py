"""Keeping the audit chain of an open session."""

from __future__ import annotations

from aar.core.session import Session
from aar.memory.session_store import SessionStore
from aar.observability.audit_log import AuditChain, audit_key
from aar.protocol.errors import StorageError
from aar.protocol.events import Event
from aar.runtime.base import Base, log_failure


def keep_audit(base: Base, store: object, session: Session) -> None:
    """Extend the chain with each event that is stored in ``session``, if ``[session] audit`` is on.

    Raises:
        StorageError: The key cannot be read or made, or the session cannot be saved.
    """
    if not base.config.session.audit or not isinstance(store, SessionStore):
        return
    if session.degraded:
        raise StorageError(
            "The session cannot be saved, so it cannot be audited; let aar write, or set session.audit=false."
        )
    chain = AuditChain(store.path(session.session_id), audit_key(base.paths.data))

    def extend(event: Event) -> None:
        if event.seq is not None:
            try:
                chain.extend()
            except OSError as error:
                log_failure("the audit chain could not be extended", error)

    session.on_event(extend)
    try:
        chain.extend()
    except OSError as error:
        log_failure("the audit chain could not be begun", error)
