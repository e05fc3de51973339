"""Keeping the audit chain of an open session."""

from __future__ import annotations

from aar.core.session import Session
from aar.observability.audit_log import AuditChain, audit_key
from aar.protocol.events import Event
from aar.runtime.base import Base, log_failure


def keep_audit(base: Base, session: Session) -> None:
    """Extend the chain with each event that is stored in ``session``, if ``[session] audit`` is on.

    Raises:
        StorageError: The key cannot be read or made.
    """
    if not base.config.session.audit or session.folder is None:
        return
    chain = AuditChain(session.folder.with_suffix(".jsonl"), audit_key(base.paths.data))

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
