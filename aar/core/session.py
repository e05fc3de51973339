"""A session: the one place where events are stamped, stored, folded and handed on (DESIGN 2, 3)."""

from __future__ import annotations

import asyncio
import gc
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

import aar
from aar.core.session_folds import UNFOLDED, SessionFolds
from aar.core.session_keep import FoldKeeper
from aar.core.session_restore import (
    copy_events,
    cut_off,
    no_collection,
    problems_notice,
    settle,
)
from aar.core.stamps import Scope, stamp_shown, stamp_stored
from aar.core.subscribers import Callback, Dispatcher, Handler, Subscription
from aar.core.totals import TotalsFold
from aar.memory.event_lines import Place, Problem, parse_line
from aar.memory.session_store import EventFile, EventStore
from aar.memory.stream_journal import StreamJournal
from aar.protocol.errors import InternalError, StorageError, ToolCategory
from aar.protocol.events import (
    EVENT_TYPES,
    SCHEMA_VERSION,
    AssistantMessage,
    Event,
    ForkOrigin,
    ModelSwitch,
    Notice,
    PlanItem,
    ProviderMeta,
    Retry,
    Rewind,
    SessionEvent,
    StateEvent,
    StreamChunk,
    ToolCall,
)
from aar.protocol.ids import new_id
from aar.protocol.messages import Message
from aar.protocol.ports import Emit
from aar.protocol.state import AgentState, StopReason, may_follow

__all__ = ["Scope", "Session", "Subscription"]

_INTERRUPTED = "The call was cut off before it had a result. It may have run in part."


_MOST_TITLE = 200
_BUT_REWINDS = frozenset(EVENT_TYPES) - {"rewind"}


class Session:
    """One session, open for writing. Make it with `create`, `resume` or `fork`; use it on one event loop.

    Events are not kept in memory: what is needed of them are folds.

    Attributes:
        session_id: ULID.
        trace_id: 32 hex digits.
        cwd: Working folder.
        problems: What was wrong with lines of the file.
        last_seq: Seq of the last stored event; 0: none.
        last_id: Greatest id of a stored event.
        opened_seq: Seq of the event that told that this process opened the session.
        lost: When it was closed with events that could not be saved: what to tell of that.
        before_close: Awaited, last first, before `aclose` ends it.
    """

    def __init__(self, store: EventStore, file: EventFile, session_id: str, cwd: Path) -> None:
        self.session_id = session_id
        self.trace_id = secrets.token_hex(16)
        self.cwd = cwd
        self.problems: list[Problem] = []
        self.last_seq = 0
        self.last_id: str = ""
        self.opened_seq = 0
        self.lost: str | None = None
        self._store = store
        self._file = file
        self._folds = SessionFolds(self._foldable)
        self._keeper = FoldKeeper(self, self._folds, file)
        self._watchers = Dispatcher(self._report_failure)
        self._told_degraded = False
        self._written = 0
        self._synced = 0
        self._sync_task: asyncio.Task[None] | None = None
        self._journal = StreamJournal(file.folder) if file.folder is not None else None
        self._closed = False
        self.before_close: list[Callable[[], Awaitable[None]]] = []

    # Making one

    @classmethod
    def create(
        cls,
        store: EventStore,
        *,
        cwd: Path,
        model: str | None,
        base_url: str | None = None,
        title: str | None = None,
    ) -> Session:
        """Begin a session; its first event tells format, version, folder, model with its address, and title.

        Raises:
            StorageError: The store refuses the session.
        """
        cwd = cwd.resolve()
        session_id = new_id()
        session = cls(store, store.create(session_id, cwd), session_id, cwd)
        session.append(session._identity("start", model=model, base_url=base_url, title=title))
        return session

    @classmethod
    def resume(cls, store: EventStore, session_id: str) -> Session:
        """Go on with a stored session. What a crash left open is closed, so that the next run can start.

        Raises:
            StorageError: There is no such session, another process has it open, or its format is newer.
        """
        file = store.open(session_id)
        try:
            session = cls(store, file, session_id, Path.cwd())
            session._catch_up()
            session.append(session._identity("resume"))
            if found := [*file.problems, *session.problems]:
                session.append(problems_notice(found))
            settle(session, file.folder)
        except BaseException:
            file.close()
            raise
        return session

    @classmethod
    def fork(
        cls, store: EventStore, session_id: str, seq: int | None = None, cwd: Path | None = None
    ) -> Session:
        """Copy a session, up to ``seq`` (all of it when ``None``), and go on in the copy.

        The original may be open elsewhere. Events keep ``id`` and ``seq``; session and trace are new.

        Raises:
            StorageError: There is no such session, its format is newer, or it has no event ``seq``.
        """
        origin = cls._origin(store, session_id)
        last = store.tail(session_id, 1)
        if seq is not None and last and last[0].seq is not None and last[0].seq < seq:
            raise StorageError(f"The session {session_id} ends with event {last[0].seq}; there is no {seq}.")
        cwd = (cwd or Path(origin.cwd or Path.cwd())).resolve()
        new = new_id()
        file = store.create(new, cwd)
        session = cls(store, file, new, cwd)
        place = session._keeper.place
        place.line = session._replay(copy_events(store.read(session_id), seq, session, file))
        place.last_id = session.last_id
        if session.last_seq == 0:
            file.close()
            raise StorageError(f"The session {session_id} has nothing to copy up to event {seq}.")
        session.cwd = cwd
        parent = ForkOrigin(session_id=session_id, seq=session.last_seq)
        session.append(session._identity("fork", forked_from=parent))
        settle(session, None)
        return session

    @staticmethod
    def _origin(store: EventStore, session_id: str) -> SessionEvent:
        first = next(store.read(session_id), None)
        if not isinstance(first, SessionEvent):
            return SessionEvent(action="start")
        if (first.schema_version or 0) > SCHEMA_VERSION:
            raise StorageError(
                f"The session {session_id} was written by a newer aar and cannot be copied here; update aar."
            )
        return first

    def _identity(
        self,
        action: Literal["start", "resume", "fork"],
        *,
        model: str | None = None,
        base_url: str | None = None,
        title: str | None = None,
        forked_from: ForkOrigin | None = None,
    ) -> SessionEvent:
        self.opened_seq = self.last_seq + 1
        return SessionEvent(
            action=action,
            schema_version=SCHEMA_VERSION,
            aar_version=aar.__version__,
            cwd=str(self.cwd),
            model=model or self.totals.model,
            base_url=base_url,
            title=title,
            forked_from=forked_from,
        )

    def _catch_up(self) -> None:
        """Fold what is stored: what was kept of it, and what came after."""
        store, name = self._store, self.session_id
        self._keeper.take()
        with no_collection():
            place = self._keeper.place
            self._replay(store.read(name, problems=self.problems, skip=UNFOLDED, place=place))
        for event in store.tail(name, 1):
            self.last_seq = max(self.last_seq, event.seq or 0)
            self.last_id = max(self.last_id, event.id)
            self.trace_id = event.trace_id or self.trace_id

    def _replay(self, events: Iterable[Event]) -> int:
        """Take events that are stored already into the folds; return how many there were."""
        last_seq, last_id, trace_id = self.last_seq, self.last_id, self.trace_id
        count = 0
        for event in self._folds.replay(events):
            count += 1
            if event.seq is not None and event.seq > last_seq:
                last_seq = event.seq
            if event.id > last_id:
                last_id = event.id
            trace_id = event.trace_id or trace_id
        self.last_seq, self.last_id, self.trace_id = last_seq, last_id, trace_id
        self.cwd = Path(self.totals.cwd or self.cwd)
        return count

    # What it is now

    @property
    def totals(self) -> TotalsFold:
        """Numbers and facts of the session."""
        return self._folds.totals

    @property
    def model(self) -> str | None:
        """Model that answers the main agent."""
        return self.totals.model

    @property
    def title(self) -> str:
        """Title; empty before the first prompt of an unnamed session."""
        return self.totals.title

    @property
    def plan(self) -> tuple[PlanItem, ...]:
        """Items of the plan or todo list as they stand."""
        return self.totals.plan

    @property
    def prompt_sha256(self) -> str | None:
        """Hash of the system prompt as last stored."""
        return self.totals.prompt_sha256

    @property
    def folder(self) -> Path | None:
        """Folder for what belongs to the session besides its events; not made; ``None``: nowhere."""
        return self._file.folder

    @property
    def degraded(self) -> bool:
        """Whether events are in memory only, because they could not be written."""
        return self._file.degraded

    def messages(self, agent_id: str = "main") -> list[Message]:
        """Return the conversation of an agent as a provider is sent it; see `MessageFold.messages`."""
        return self._folds.fold(agent_id).messages()

    def to_messages(self, agent_id: str = "main") -> list[Message]:
        """Return the same as `messages`."""
        return self.messages(agent_id)

    def _foldable(self, place: Place) -> Iterator[Event]:
        if self._store.exists(self.session_id):
            with no_collection():
                yield from self._store.read(self.session_id, skip=UNFOLDED, place=place)
        yield from (parse_line(raw) for raw in self._file.unsaved)

    def events(self, start_seq: int = 1) -> Iterator[Event]:
        """Yield the stored events from ``start_seq`` on, those that could not be written included.

        Raises:
            StorageError: The session cannot be read.
        """
        unsaved = [parse_line(raw) for raw in self._file.unsaved]
        if self._store.exists(self.session_id):
            yield from self._store.read(self.session_id, start_seq)
        yield from (event for event in unsaved if (event.seq or 0) >= start_seq)

    def rewinds(self) -> list[Rewind]:
        """Return where the conversation or the files went back; quicker than to look at all events.

        Raises:
            StorageError: The session cannot be read.
        """
        found = [parse_line(raw) for raw in self._file.unsaved]
        if self._store.exists(self.session_id):
            found[:0] = self._store.read(self.session_id, skip=_BUT_REWINDS)
        return [event for event in found if isinstance(event, Rewind)]

    # What happens

    def scope(self, run_id: str, agent_id: str = "main") -> Scope:
        """Return the way into the session for one run of one agent."""
        return Scope(self, run_id, agent_id)

    def append(self, *events: Event, scope: Scope | None = None) -> tuple[Event, ...]:
        """Stamp ``events``, store them in one write, fold them, hand them on; return them stamped.

        A disk that refuses does not stop the session: one notice tells of it, and of its recovery.

        Raises:
            StorageError: The session is closed, or its format is newer.
            InternalError: An event is of a kind that is not stored.
        """
        if not events:
            return ()
        if self._closed:
            raise StorageError(f"The session {self.session_id} is closed; resume it to go on.")
        stamped = stamp_stored(self, events, scope, self.last_id)
        self._folds.prepare(stamped)
        self._file.append([event.to_json() for event in stamped])
        self.last_seq += len(stamped)
        self.last_id = stamped[-1].id
        self._written += 1
        self._keeper.note_written(stamped)
        for event in stamped:
            self._folds.apply(event)
        if self._journal is not None and any(_ends_stream(event) for event in stamped):
            self._journal.discard()
        self._watchers.hand_on(stamped)
        self._tell_health()
        return stamped

    def publish(self, event: Event, scope: Scope | None = None) -> None:
        """Hand on an event that is not stored; pieces of the main agent's answer go into the journal.

        Raises:
            InternalError: The event is of a kind that is stored.
        """
        event = stamp_shown(self, event, scope)
        if self._journal is not None and isinstance(event, StreamChunk) and event.agent_id == "main":
            self._journal.append(event.run_id, event.step, event.text, event.reasoning_text)
        self._watchers.hand_on((event,))

    def set_state(
        self,
        state: AgentState,
        stop_reason: StopReason | None = None,
        detail: str | None = None,
        emit: Emit | None = None,
    ) -> Event:
        """Store the new state of the agent behind ``emit`` (the main one without).

        Raises:
            InternalError: That state may not follow the present one.
        """
        agent_id = str(getattr(emit, "agent_id", "main"))
        current = self.totals.state(agent_id)
        if not may_follow(current, state):
            raise InternalError(f"The agent {agent_id} cannot go from {current} to {state}.")
        event = StateEvent(agent_id=agent_id, state=state, stop_reason=stop_reason, detail=detail)
        return (emit or self).append(event)[0]

    def close_open_calls(
        self,
        emit: Emit | None = None,
        *,
        agent_id: str | None = None,
        category: ToolCategory = ToolCategory.INTERRUPTED,
        message: str = _INTERRUPTED,
    ) -> tuple[Event, ...]:
        """Store a failed result for every call of one agent that has none; return them.

        The agent is ``agent_id``, else the one behind ``emit``, else the main one.
        """
        agent_id = agent_id or str(getattr(emit, "agent_id", "main"))
        results = [cut_off(call, category, message) for call in self.totals.open_calls(agent_id)]
        return (emit or self).append(*results) if results else ()

    def rename(self, title: str) -> str:
        """Give the session another title, on one line and cut to a length; return it as it is kept.

        Where nothing is left of ``title``, the one that it has stays.
        """
        kept = " ".join(title.split())[:_MOST_TITLE]
        if kept:
            self.append(SessionEvent(action="rename", title=kept))
        return kept or self.title

    # Who watches

    def subscribe(self, name: str = "subscriber", handler: Handler | None = None) -> Subscription:
        """Watch the session from now on, behind a queue of one's own.

        Without ``handler``: ``async for event in subscription``. With it: each event is given to it in a
        task; its errors are told once, as a notice, and stop nothing.
        """
        return self._watchers.subscribe(name, handler)

    def on_event(self, callback: Callback) -> Callable[[], None]:
        """Call ``callback`` with each event as it happens; return a function that ends this.

        For short work only: it runs inside `append`. Its errors are told once, as a notice.
        """
        return self._watchers.on_event(callback)

    def _report_failure(self, name: str, error: Exception) -> None:
        if not self._closed:
            what = f"{type(error).__name__}: {error}"
            message = f"A part that watches the session failed ({name}: {what}); the session goes on."
            self.append(Notice(level="warning", code="subscriber_failed", message=message))

    def _tell_health(self) -> None:
        """Tell once that the disk refuses, and once that it works again."""
        if self._file.degraded == self._told_degraded or self._closed:
            return
        self._told_degraded = self._file.degraded
        if self._told_degraded:
            message = (
                f"The session cannot be saved ({self._file.error}); it goes on in memory, and is saved "
                "as soon as writing works again."
            )
            self.append(Notice(level="error", code="store_degraded", message=message))
        else:
            message = "The session is saved again; nothing was lost."
            self.append(Notice(level="info", code="store_recovered", message=message))

    # Keeping it

    async def sync(self) -> None:
        """Return when all that was appended before is on the disk; calls at the same time share the work."""
        await self._sync()
        if not self._closed:
            self._keeper.keep_meanwhile()

    async def _sync(self) -> None:
        if not self._file.durable or self._closed:
            return
        target = self._written
        while self._synced < target:
            if self._sync_task is None:
                self._sync_task = asyncio.create_task(self._sync_once())
            await asyncio.shield(self._sync_task)
        self._tell_health()

    async def _sync_once(self) -> None:
        covered = self._written
        try:
            await asyncio.to_thread(self._file.fsync)
        finally:
            self._synced = max(self._synced, covered)
            self._sync_task = None

    async def aclose(self) -> None:
        """Sync, let subscribers with a handler finish what waits, and close."""
        while self.before_close:
            await self.before_close.pop()()
        await self._sync()
        if unsaved := len(self._file.unsaved):
            message = (
                f"{unsaved} events of this session could not be saved ({self._file.error}) and end with aar. "
                "Make room or give aar the right to write before you go on."
            )
            self.lost = message
            self.append(Notice(level="error", code="store_lost", message=message))
        await self._watchers.finish()
        self.close()
        if not self._file.unsaved:
            self.lost = None

    def close(self) -> None:
        """End the subscriptions and give the session free. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._keeper.close()
        self._watchers.end()
        if self._journal is not None:
            self._journal.close()
        self._file.close()
        gc.unfreeze()


def _ends_stream(event: Event) -> bool:
    """Tell whether the streamed answer of the main agent is stored, or void."""
    if event.agent_id != "main":
        return False
    return isinstance(event, AssistantMessage | ToolCall | ProviderMeta) or (
        isinstance(event, Retry | ModelSwitch) and event.discard
    )
