"""Those who watch a session: each behind a queue of its own, so that a slow or failing one harms nobody."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aar.protocol.events import Event, StreamChunk, ToolProgress

Handler = Callable[[Event], Awaitable[None]]
Callback = Callable[[Event], None]

MAX_PROGRESS_CHARS = 200_000
"""Characters of a call's output that wait for a slow subscriber; older ones go, the result has all."""


@dataclass(slots=True)
class _Pending:
    """Queued events that become one when they are taken: joining at each piece would be quadratic."""

    event: Event
    texts: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    arguments: list[str] = field(default_factory=list[str])
    size: int = 0

    def take(self) -> Event:
        event = self.event
        if isinstance(event, ToolProgress) and self.texts:
            text = "".join((event.text, *self.texts))
            return event.model_copy(update={"text": text[-MAX_PROGRESS_CHARS:]})
        if not isinstance(event, StreamChunk):
            return event
        update: dict[str, object] = {}
        if self.texts:
            update["text"] = "".join((event.text, *self.texts))
        if self.reasoning:
            update["reasoning_text"] = "".join((event.reasoning_text, *self.reasoning))
        if self.arguments:
            fragment = event.tool_call_fragment or {}
            joined = "".join((str(fragment.get("arguments") or ""), *self.arguments))
            update["tool_call_fragment"] = {**fragment, "arguments": joined}
        return event.model_copy(update=update) if update else event


class Subscription:
    """A subscriber's queue: ``async for event in subscription``; ends after `close`, or with the session.

    While the reader is behind, adjacent pieces of one stream become one piece, and so does the output of
    one tool call. Stored events are never dropped or joined.
    """

    def __init__(self, name: str, on_close: Callable[[Subscription], None]) -> None:
        self.name = name
        self.task: asyncio.Task[None] | None = None
        self._queue: deque[_Pending] = deque()
        self._progress: dict[str, _Pending] = {}
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._on_close = on_close

    @property
    def backlog(self) -> int:
        """Number of events that wait to be taken."""
        return len(self._queue)

    def put(self, event: Event) -> None:
        """Queue an event, joined with a waiting one where that loses nothing."""
        if self._ended:
            return
        if not (event.stored is False and self._queue and self._join(event)):
            pending = _Pending(event)
            self._queue.append(pending)
            if isinstance(event, ToolProgress):
                self._progress[event.call_id] = pending
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _join(self, event: Event) -> bool:
        if isinstance(event, ToolProgress):
            pending = self._progress.get(event.call_id)
            return pending is not None and _join_progress(pending, event)
        return isinstance(event, StreamChunk) and _join_chunk(self._queue[-1], event)

    def end(self) -> None:
        """Let the reader take what waits, and then end."""
        self._ended = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """Stop at once; what waits is dropped."""
        self._queue.clear()
        self._progress.clear()
        self.end()
        self._on_close(self)

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Event:
        while not self._queue:
            if self._ended:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._take()

    def _take(self) -> Event:
        pending = self._queue.popleft()
        if isinstance(pending.event, ToolProgress):
            self._progress.pop(pending.event.call_id, None)
        return pending.take()

    async def serve(self, handler: Handler, on_failure: Callable[[Exception], None]) -> None:
        """Give each event to ``handler``; its errors go to ``on_failure`` and stop nothing."""
        async for event in self:
            try:
                await handler(event)
            except Exception as error:
                on_failure(error)


class Dispatcher:
    """Hands events to callbacks and subscriptions, in order, whatever these do.

    Args:
        report: Told the name and the first error of each that fails.
    """

    def __init__(self, report: Callable[[str, Exception], None]) -> None:
        self._report = report
        self._subscriptions: list[Subscription] = []
        self._callbacks: list[_Watcher] = []
        self._outbox: deque[Event] = deque()
        self._busy = False

    def subscribe(self, name: str, handler: Handler | None) -> Subscription:
        """Add a subscription; with ``handler``, a task that serves it."""
        subscription = Subscription(name, self._forget)
        self._subscriptions.append(subscription)
        if handler is not None:
            watcher = _Watcher(name)
            task = subscription.serve(handler, lambda error: self._failed(watcher, error))
            subscription.task = asyncio.get_running_loop().create_task(task)
        return subscription

    def on_event(self, callback: Callback) -> Callable[[], None]:
        """Add a callback; return a function that removes it."""
        watcher = _Watcher(getattr(callback, "__qualname__", type(callback).__name__), callback)
        self._callbacks.append(watcher)

        def remove() -> None:
            if watcher in self._callbacks:
                self._callbacks.remove(watcher)

        return remove

    def hand_on(self, events: tuple[Event, ...]) -> None:
        """Give ``events`` to all. What a callback appends meanwhile comes after them, for everybody."""
        self._outbox.extend(events)
        if self._busy:
            return
        self._busy = True
        try:
            while self._outbox:
                self._give(self._outbox.popleft())
        finally:
            self._busy = False

    def _give(self, event: Event) -> None:
        for subscription in tuple(self._subscriptions):
            subscription.put(event)
        for watcher in tuple(self._callbacks):
            try:
                watcher.call(event)
            except Exception as error:
                self._failed(watcher, error)

    def _failed(self, watcher: _Watcher, error: Exception) -> None:
        if not watcher.reported:
            watcher.reported = True
            self._report(watcher.name, error)

    def _forget(self, subscription: Subscription) -> None:
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    async def finish(self) -> None:
        """End all subscriptions and wait until the served ones are through."""
        tasks = [subscription.task for subscription in self._subscriptions if subscription.task]
        self.end()
        await asyncio.gather(*tasks, return_exceptions=True)

    def end(self) -> None:
        """End all subscriptions: each takes what waits, and then no more."""
        for subscription in self._subscriptions:
            subscription.end()
        self._subscriptions.clear()
        self._callbacks.clear()


@dataclass(slots=True, eq=False)
class _Watcher:
    """A callback or handler, and whether its failure was told."""

    name: str
    call: Callback = lambda event: None
    reported: bool = False


def _join_progress(pending: _Pending, event: ToolProgress) -> bool:
    pending.texts.append(event.text)
    pending.size += len(event.text)
    if pending.size > 2 * MAX_PROGRESS_CHARS:
        kept = "".join(pending.texts)[-MAX_PROGRESS_CHARS:]
        pending.texts, pending.size = [kept], len(kept)
    return True


def _join_chunk(pending: _Pending, event: StreamChunk) -> bool:
    first = pending.event
    if not isinstance(first, StreamChunk) or first.finished:
        return False
    if (first.agent_id, first.run_id, first.step) != (event.agent_id, event.run_id, event.step):
        return False
    if first.tool_call_fragment is not None or event.tool_call_fragment is not None:
        return _join_fragment(pending, first, event)
    if event.finished:
        return False
    # Thinking comes before text: a piece of each in the wrong order would be turned round.
    if event.reasoning_text and (first.text or pending.texts):
        return False
    if event.text:
        pending.texts.append(event.text)
    if event.reasoning_text:
        pending.reasoning.append(event.reasoning_text)
    return True


def _join_fragment(pending: _Pending, first: StreamChunk, event: StreamChunk) -> bool:
    old, new = first.tool_call_fragment, event.tool_call_fragment
    if old is None or new is None or event.text or event.reasoning_text or event.finished:
        return False
    others = {key: value for key, value in new.items() if key != "arguments" and value}
    if any(old.get(key) != value for key, value in others.items()) or old.get("index") != new.get("index"):
        return False
    if not isinstance(new.get("arguments", ""), str):
        return False
    pending.arguments.append(str(new.get("arguments") or ""))
    return True
