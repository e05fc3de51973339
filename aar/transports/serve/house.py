"""All sessions that a server has open, and those of the project that it can open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from aar.config.paths import project_key
from aar.config.schema import PermissionMode
from aar.core.session import Session
from aar.memory.session_store import SessionStore
from aar.protocol.errors import AarError, ConfigurationError, StorageError, UsageError
from aar.protocol.events import Event
from aar.runtime import Runtime, make_active_model, open_base, open_runtime
from aar.runtime.base import base_arguments, log_failure
from aar.runtime.conversation import Conversation
from aar.transports.serve.overrides import Wish, runtime_options
from aar.transports.serve.room import Room, read_slowly

MAX_OPEN = 32
"""Sessions that are open at once; each has processes and connections of its own."""
_LOOK_AGAIN_S = 0.5
"""Seconds between two looks at the file of a session that another process writes."""
_RECENT = 100
"""Events at its end that are looked at first."""


class NotHereError(Exception):
    """There is no such session, or nothing of that name in it."""


class FullError(Exception):
    """As many sessions are open and busy as may be."""


class House:
    """Sessions of one project.

    Args:
        options: For `open_runtime`, as the command line gave them.

    Attributes:
        base: The settings.
        ending: Set when the server ends.

    Raises:
        AarError: A setting is wrong, or no model can answer.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        self.base = open_base(**base_arguments(self._options))
        # Trust is given once, to what is there now: a session that is opened later must not renew it.
        self._options.pop("trust", None)
        active, _ = make_active_model(self.base, self._options.get("base_url"))
        self.model = active.name
        self.ending = asyncio.Event()
        self._rooms: dict[str, Room] = {}
        self._opening: dict[str, asyncio.Lock] = {}

    @property
    def workspace(self) -> Path:
        """Root of the project."""
        return self.base.workspace

    @property
    def ceiling(self) -> PermissionMode:
        """The loosest mode of sessions that a client answers for."""
        return self.base.config.permissions.mode or "ask"

    # --- opening -----------------------------------------------------------------------------------------

    async def create(
        self,
        wish: Wish,
        *,
        headless: bool = False,
        begin: Callable[[Session], None] | None = None,
        resume: str | None = None,
    ) -> Room:
        """Open a new session, or with ``resume`` a stored one, under rules no looser than the server's.

        Args:
            wish: What the client chose.
            headless: Whether nobody will answer questions; the mode is then chosen as by ``aar run``.
            begin: Puts something into the session before the first prompt.
            resume: Id of a stored session.

        Raises:
            AarError: The wish cannot be had, or the session cannot be opened.
            FullError: Too many sessions are open.
        """
        ceiling = self.base.config.permissions.mode if headless else self.ceiling
        options = runtime_options(wish, self._options, self.base, ceiling)
        await self._make_place()
        which = {"session_id": resume}
        runtime = await asyncio.to_thread(
            lambda: open_runtime(interactive=not headless, goes_on=which, **options)
        )
        try:
            session = await asyncio.to_thread(runtime.open_session, session_id=resume, title=wish.title)
            if begin is not None:
                begin(session)
        except BaseException:
            await runtime.aclose()
            raise
        room = self._moved_in(runtime, session, headless=headless)
        runtime.servers.start()
        return room

    def _moved_in(self, runtime: Runtime, session: Session, *, headless: bool) -> Room:
        room = Room(Conversation(runtime, session), self.ceiling, headless=headless)
        self._rooms[room.session_id] = room
        return room

    async def _make_place(self) -> None:
        """Close the session that was left alone longest when there are too many."""
        if len(self._rooms) < MAX_OPEN:
            return
        idle = [room for room in self._rooms.values() if not room.busy]
        if not idle:
            raise FullError(f"{MAX_OPEN} sessions are at work; wait for one of them, or cancel it.")
        await self.leave(min(idle, key=lambda room: room.used).session_id)

    async def enter(self, session_id: str) -> Room:
        """Return the room of a session; one that is stored is opened.

        Raises:
            NotHereError: The project has no such session.
            AarError: It cannot be opened, such as when another process has it open.
        """
        self.demand(session_id)
        lock = self._opening.setdefault(session_id, asyncio.Lock())
        async with lock:
            room = self._rooms.get(session_id)
            if room is None:
                room = await self.create(Wish(), resume=session_id)
        self._opening.pop(session_id, None)
        room.used = time.monotonic()
        return room

    def room(self, session_id: str) -> Room | None:
        """Return the room of a session that is open here."""
        return self._rooms.get(session_id)

    def demand(self, session_id: str) -> None:
        """Raise `NotHereError` unless the session is one of this project."""
        if session_id in self._rooms:
            return
        try:
            path = self.base.store().path(session_id)
        except StorageError:
            raise NotHereError(f"There is no session {session_id[:40]} of this project.") from None
        if path.parent.name != project_key(self.workspace):
            raise NotHereError(f"There is no session {session_id[:40]} of this project.")

    # --- looking -----------------------------------------------------------------------------------------

    async def sessions(self) -> list[dict[str, Any]]:
        """Return the sessions of the project, last written first."""
        infos = await asyncio.to_thread(self.base.store().list, self.workspace)
        return [
            {
                "id": info.id,
                "title": info.title,
                "model": info.model,
                "updated": info.updated,
                "events": info.events,
                "cost_usd": info.cost_usd if info.cost_known else None,
                "open": info.id in self._rooms,
                "running": info.id in self._rooms and self._rooms[info.id].busy,
            }
            for info in infos
        ]

    async def stored_state(self, session_id: str) -> dict[str, Any]:
        """Return what is known of a session that is not open here.

        Raises:
            NotHereError: The project has no such session.
        """
        self.demand(session_id)
        for info in await self.sessions():
            if info["id"] == session_id:
                return info
        raise NotHereError(f"There is no session {session_id[:40]} of this project.")

    async def events(
        self, session_id: str, after: int, *, pieces: bool, follow: bool
    ) -> AsyncGenerator[Event]:
        """Yield the events of a session behind ``after``; see `Room.events`.

        A session that is not open here is followed in its file: another process may be writing it.

        Raises:
            NotHereError: The project has no such session.
        """
        self.demand(session_id)
        store, size = self.base.store(), -1
        while True:
            room = self._rooms.get(session_id)
            if room is not None and follow:
                async with aclosing(room.events(after, pieces=pieces)) as told:
                    async for event in told:
                        yield event
                return
            found = await asyncio.to_thread(_size, store, session_id)
            if found != size:
                size = found
                async for event in _behind(store, session_id, after):
                    after = event.seq or after
                    yield event
            if not follow:
                return
            await asyncio.sleep(_LOOK_AGAIN_S)

    # --- the end -----------------------------------------------------------------------------------------

    async def leave(self, session_id: str) -> None:
        """Close a session; it stays on disk. One that is not open is closed already."""
        room = self._rooms.pop(session_id, None)
        if room is not None:
            try:
                await room.aclose()
            except AarError as error:
                log_failure("a session could not be closed", error)

    @asynccontextmanager
    async def staying(self, room: Room) -> AsyncGenerator[Room]:
        """Keep ``room`` for a while, and close it at the end."""
        try:
            yield room
        finally:
            await asyncio.shield(self.leave(room.session_id))

    async def aclose(self) -> None:
        """End all runs and close all sessions."""
        self.ending.set()
        await asyncio.gather(*(self.leave(session_id) for session_id in tuple(self._rooms)))


def _size(store: SessionStore, session_id: str) -> int:
    try:
        return store.path(session_id).stat().st_size
    except (OSError, StorageError):
        return 0


async def _behind(store: SessionStore, session_id: str, after: int) -> AsyncGenerator[Event]:
    """Yield the events behind ``after``; where that is only the end of the file, nothing else is read."""
    with suppress(StorageError):
        recent = await asyncio.to_thread(store.tail, session_id, _RECENT)
        if recent and recent[0].seq is not None and recent[0].seq <= after + 1:
            for event in recent:
                if (event.seq or 0) > after:
                    yield event
            return
        async for event in read_slowly(store.read(session_id, after + 1)):
            yield event


def http_status(error: Exception) -> int:
    """Return the HTTP status for an error of this package or of aar's."""
    if isinstance(error, NotHereError):
        return 404
    if isinstance(error, FullError):
        return 429
    if isinstance(error, UsageError | ConfigurationError):
        return 400
    if isinstance(error, StorageError):
        return 409
    return 500 if not isinstance(error, AarError) else 502
