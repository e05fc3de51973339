"""The line between a screen and a session: its events are folded, a page of older ones when it is wanted.

Imported after the first frame: it brings the whole of aar with it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from aar.core.agent import RunResult
from aar.core.session import Session
from aar.memory.session_store import SessionStore
from aar.protocol.events import Event, Rewind, UserMessage
from aar.runtime.conversation import Conversation
from aar.transports.tui.branch import branch_of
from aar.transports.tui.presenter import Presenter

TAIL_EVENTS = 400
"""Stored events of a resumed session that are folded at once; older ones come when they are scrolled to."""


class Connection:
    """A `Conversation` and the `Presenter` of its events.

    Args:
        conversation: The open session with its agent.
        wake: Called when something changed; at most once until `Presenter.drain` is due.
        on_result: Told how each run ended.

    Attributes:
        conversation: See above.
        presenter: View state of the open session; another one after the session was changed.
        oldest_seq: Of the oldest event that was folded.
    """

    def __init__(
        self,
        conversation: Conversation,
        wake: Callable[[], None],
        on_result: Callable[[RunResult], None] = lambda result: None,
    ) -> None:
        self.conversation = conversation
        self.presenter = Presenter()
        self.oldest_seq = 1
        self._wake = wake
        conversation.watch(self._take, on_session=self._changed, on_result=on_result)
        conversation.runtime.extras.extensions.on_panels.append(self._panels_changed)
        self._changed(conversation.session)
        conversation.runtime.servers.start()

    def wake(self) -> None:
        """Tell the screen that something changed that is no event."""
        self._wake()

    @property
    def can_send_back(self) -> bool:
        """Whether a command runs that can go on in the background."""
        return len(self.conversation.runtime.foreground) > 0

    def send_back(self) -> int:
        """Let all running commands go on in the background; return how many there were."""
        return self.conversation.runtime.foreground.send_back()

    def _panels_changed(self) -> None:
        self._take_panels()
        self._wake()

    def _take_panels(self) -> None:
        conversation = self.conversation
        self.presenter.set_panels(conversation.runtime.extras.extensions.panels(conversation.session))

    def _take(self, event: Event) -> None:
        if isinstance(event, Rewind) and event.scope != "files":
            # What an undo hid may come back: only the stored session knows it.
            self._changed(self.conversation.session)
            return
        self.presenter.take(event)
        self._wake()

    def _changed(self, session: Session) -> None:
        """Show the end of another session."""
        self.presenter = Presenter()
        events = self._tail(session)
        shown, self.oldest_seq = as_it_is(events)
        self.presenter.load(shown)
        self._take_facts(session)
        self._wake()

    def _take_facts(self, session: Session) -> None:
        """Take from the whole session what its tail cannot tell."""
        status, totals = self.presenter.status, session.totals
        status.title = totals.title or status.title
        status.cost_usd, status.cost_known = totals.all.cost_usd, totals.all.cost_known
        status.tokens = totals.all.usage.total
        self._take_panels()
        self.refresh_facts()

    def refresh_facts(self) -> None:
        """Take model, mode and window as they are now."""
        status, runtime = self.presenter.status, self.conversation.runtime
        status.model, status.mode = runtime.active.name, runtime.mode
        self.refresh_place()

    def refresh_place(self) -> None:
        """Take window, thinking, wall, project and branch as they are now."""
        status, runtime = self.presenter.status, self.conversation.runtime
        status.context_window = runtime.active.capabilities.context_window
        status.reasoning = "" if runtime.reasoning is None else str(runtime.reasoning)
        status.wall = runtime.wall()
        status.project, status.branch = runtime.workspace.name, branch_of(runtime.workspace)

    def _tail(self, session: Session) -> list[Event]:
        if session.degraded or not isinstance(self.conversation.runtime.store, SessionStore):
            events = list(deque(session.events(), maxlen=TAIL_EVENTS))
        else:
            events = self.conversation.runtime.store.tail(session.session_id, TAIL_EVENTS)
        return from_prompt(events)

    async def older(self, count: int = TAIL_EVENTS) -> int:
        """Fold up to ``count`` older events; return how many blocks they gave (0: there are none)."""
        if self.oldest_seq <= 1:
            return 0
        session, before = self.conversation.session, self.oldest_seq
        events = await asyncio.to_thread(
            lambda: list(islice(session.events(max(1, before - count)), before - max(1, before - count)))
        )
        if session is not self.conversation.session or before != self.oldest_seq:
            return 0
        page = from_prompt(events) if before - count > 1 else events
        shown, self.oldest_seq = as_it_is(page or events)
        return len(self.presenter.prepend(shown))


def as_it_is(events: Sequence[Event]) -> tuple[list[Event], int]:
    """Return those of ``events`` that the conversation still has, and the seq before which older ones begin.

    A rewind hides what lies between it and the event that it went back to. One that leads into what an
    earlier one hid is a redo: it brings that back, and is not shown itself.
    """
    rewinds = [
        (event.to_seq, event.seq or 0)
        for event in events
        if isinstance(event, Rewind) and event.scope != "files"
    ]
    shown: list[Event] = []
    last = events[-1].seq or 0 if events else 0
    oldest = events[0].seq or 1 if events else 1
    for event in reversed(events):
        seq = event.seq or 0
        if seq > last:
            continue
        if isinstance(event, Rewind) and event.scope != "files":
            last = event.to_seq
            if any(to_seq < last < own < seq for to_seq, own in rewinds):
                continue
        else:
            last = seq - 1
        shown.append(event)
    return shown[::-1], min(oldest, last + 1)


def from_prompt(events: Iterable[Event]) -> list[Event]:
    """Return ``events`` from the first user message on, so that no call is cut from its result.

    All of them where there is no user message, or where they begin with the session.
    """
    listed = list(events)
    if listed and listed[0].seq == 1:
        return listed
    first = next((place for place, event in enumerate(listed) if isinstance(event, UserMessage)), 0)
    return listed[first:]
