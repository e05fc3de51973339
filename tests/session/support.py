"""Small things that the session tests share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from aar.core.session import Session
from aar.memory.session_store import SessionStore
from aar.protocol.events import Event, UserMessage
from aar.protocol.messages import TextBlock


def user(text: str) -> UserMessage:
    return UserMessage(content=(TextBlock(text=text),))


def new_session(root: Path, **options: object) -> tuple[SessionStore, Session]:
    store = SessionStore(root / "sessions")
    return store, Session.create(store, cwd=root, model="scripted/x", **options)


def path_of(store: SessionStore, session: Session) -> Path:
    return store.path(session.session_id)


def texts(events: list[Event]) -> list[str]:
    return [event.content[0].text for event in events if isinstance(event, UserMessage)]


def in_child(work: Callable[[int], None]) -> tuple[int, int]:
    """Run ``work(write_end)`` in a forked process; return its pid and the end to read from."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(read_end)
            work(write_end)
            code = 0
        finally:
            os._exit(code)
    os.close(write_end)
    return pid, read_end


def read_all(fd: int) -> bytes:
    pieces: list[bytes] = []
    while piece := os.read(fd, 1 << 16):
        pieces.append(piece)
    os.close(fd)
    return b"".join(pieces)
