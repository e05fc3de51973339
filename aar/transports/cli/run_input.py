"""``aar run --input stream-json``: a program drives the session by JSON lines on standard input.

A line is one object: ``prompt``, ``steer``, ``cancel``, ``stop`` or ``approval``. What a line gets wrong is
told in the stream, and the run goes on. When the input ends, what was asked is still done; questions that
then come up are denied, as in every run that nobody can answer.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from aar.protocol.errors import AarError, UsageError
from aar.protocol.events import ApprovalRequest, Event, StateEvent
from aar.protocol.messages import ImageBlock, ResourceBlock, TextBlock
from aar.protocol.state import AgentState

if TYPE_CHECKING:
    from aar.core.agent import Agent, RunResult
    from aar.core.session import Session

MAX_LINE = 50_000_000
"""Bytes of a line; longer ones are passed over, with an error."""
MAX_WAITING = 1000
"""Prompts that may wait for their turn."""
_CHUNK = 65_536
_WAITING_LINES = 64


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


Block = Annotated[TextBlock | ImageBlock | ResourceBlock, Field(discriminator="type")]
Content = Annotated[str, Field(min_length=1)] | Annotated[tuple[Block, ...], Field(min_length=1)]


class PromptLine(_Line):
    """A task: it starts a run, or waits until those before it are done."""

    type: Literal["prompt"]
    content: Content


class SteerLine(_Line):
    """Words for the run under way, heard before its next request; a prompt when nothing runs."""

    type: Literal["steer"]
    content: Content


class CancelLine(_Line):
    """End the run under way at once; what waits is done next."""

    type: Literal["cancel"]


class StopLine(_Line):
    """End the run under way after its step, with one last answer."""

    type: Literal["stop"]


class ApprovalLine(_Line):
    """The answer to an ``approval_request``; for ``ask_user`` the answer is in ``feedback``."""

    type: Literal["approval"]
    request_id: str
    decision: Literal["allow", "reject", "cancelled"]
    scope: Literal["once", "session", "project", "user"] = "once"
    rule: str | None = None
    edited_arguments: dict[str, Any] | None = None
    feedback: str | None = None


InputLine = PromptLine | SteerLine | CancelLine | StopLine | ApprovalLine
LINES: tuple[type[InputLine], ...] = (PromptLine, SteerLine, CancelLine, StopLine, ApprovalLine)
"""What a line may be, in the order of the docs."""
_ADAPTER: TypeAdapter[InputLine] = TypeAdapter(Annotated[InputLine, Field(discriminator="type")])


def parse_line(raw: bytes) -> InputLine:
    """Return what a line of input says.

    Raises:
        UsageError: It is no object of the known kinds; the message says what is wrong.
    """
    try:
        return _ADAPTER.validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    kind = first["type"]
    if kind == "json_invalid":
        raise UsageError("this is not JSON; write one object a line.")
    if kind in ("union_tag_invalid", "union_tag_not_found", "model_attributes_type", "model_type"):
        raise UsageError('expected an object whose "type" is prompt, steer, cancel, stop or approval.')
    where = ".".join(str(part) for part in first["loc"][1:]) or "the line"
    raise UsageError(f"{where}: {first['msg'][:1].lower()}{first['msg'][1:]}.")


class LineReader:
    """Reads lines of a descriptor in a thread of its own, so that nothing waits for a slow writer.

    Args:
        descriptor: Where to read; never buffered by anybody else.
    """

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._room = threading.Semaphore(_WAITING_LINES)
        threading.Thread(target=self._read, name="aar-input", daemon=True).start()

    async def next(self) -> bytes | None:
        """Return the next line that is not blank, cut behind `MAX_LINE` bytes; ``None`` at the end."""
        line = await self._lines.get()
        self._room.release()
        return line

    def _read(self) -> None:
        kept = bytearray()
        try:
            while chunk := self._chunk():
                *whole, rest = chunk.split(b"\n")
                for piece in whole:
                    self._give(bytes(kept + piece))
                    kept.clear()
                # One byte more than allowed tells that the line is too long; the rest need not be kept.
                kept += rest[: MAX_LINE + 1 - len(kept)]
            self._give(bytes(kept))
            self._put(None)
        except RuntimeError:  # The event loop is gone, and with it whoever wanted to know.
            return

    def _chunk(self) -> bytes:
        while True:
            try:
                return os.read(self._descriptor, _CHUNK)
            except BlockingIOError:
                select.select([self._descriptor], [], [])
            except OSError:
                return b""

    def _give(self, line: bytes) -> None:
        if line.strip():
            self._put(line)

    def _put(self, item: bytes | None) -> None:
        self._room.acquire()
        self._loop.call_soon_threadsafe(self._lines.put_nowait, item)


RunPrompt = Callable[[Sequence[Any]], Awaitable["RunResult"]]


class InputDriver:
    """Does what the lines say, until the input ends and nothing is left to do.

    Args:
        agent: Works on the session.
        session: The session.
        run: Runs one prompt and tells its end.
        tell: Says what is wrong with a line.
    """

    def __init__(self, agent: Agent, session: Session, run: RunPrompt, tell: Callable[[str], None]) -> None:
        self._agent, self._run, self._tell = agent, run, tell
        self._unwatch = session.on_event(self._see)
        self._wake, self._begun = asyncio.Event(), asyncio.Event()
        self._closed = self._ended = False
        self._refusing: set[asyncio.Task[None]] = set()

    async def drive(self, lines: LineReader, first: Sequence[Any] | None = None) -> RunResult | None:
        """Run prompts one after the other; return the last result, ``None`` when there was no prompt.

        Args:
            lines: The input.
            first: A prompt that comes before those of the input.
        """
        if first is not None:
            self._agent.queue.add(first)
        reading = asyncio.ensure_future(self._take(lines))
        reading.add_done_callback(lambda _: self._wake.set())
        last: RunResult | None = None
        try:
            while True:
                prompt = self._agent.queue.next_prompt()
                if prompt is not None:
                    last = await self._work(prompt) or last
                elif self._closed or reading.done():
                    break
                else:
                    await self._wake.wait()
                    self._wake.clear()
                if self._closed:
                    break
            if reading.done() and not reading.cancelled():
                reading.result()
            return last
        finally:
            reading.cancel()
            self._unwatch()

    def close(self) -> None:
        """End: the run under way is cancelled, and no other begins."""
        self._closed = True
        self._wake.set()
        self._agent.cancel()

    async def _work(self, prompt: Sequence[Any]) -> RunResult | None:
        try:
            return await self._run(prompt)
        except UsageError as error:
            self._tell(f"A prompt was not taken: {error}")
            return None
        finally:
            self._begun.set()

    async def _take(self, lines: LineReader) -> None:
        number = 0
        while (raw := await lines.next()) is not None:
            number += 1
            try:
                if len(raw) > MAX_LINE:
                    raise UsageError(f"it is longer than {MAX_LINE:,} bytes.")
                await self._do(parse_line(raw))
            except AarError as error:
                self._tell(f"Line {number} of standard input is passed over: {error}")
        self._ended = True
        for request in self._agent.approvals.pending:
            self._agent.answer(request.request_id, "reject")

    async def _do(self, line: InputLine) -> None:
        match line:
            case PromptLine() | SteerLine():
                await self._say(line)
            case CancelLine():
                await self._must_run("cancel")
                self._agent.cancel()
            case StopLine():
                await self._must_run("stop")
                self._agent.stop()
            case ApprovalLine():
                details = line.model_dump(exclude={"type", "request_id", "decision"})
                self._agent.answer(line.request_id, line.decision, **details)

    async def _say(self, line: PromptLine | SteerLine) -> None:
        queue = self._agent.queue
        content = line.content if isinstance(line.content, str) else tuple(line.content)
        if len(queue.prompts) + len(queue.steering) >= MAX_WAITING:
            raise UsageError(f"{MAX_WAITING:,} prompts wait already; send it again when some are done.")
        if self._agent.running:
            queue.steer(content) if isinstance(line, SteerLine) else queue.add(content)
            return
        self._begun.clear()
        queue.add(content)
        self._wake.set()
        # A cancel right behind its prompt must find the run that it means.
        await self._begun.wait()

    async def _must_run(self, what: str) -> None:
        queue = self._agent.queue
        if not self._agent.running and (queue.prompts or queue.has_steering):
            self._begun.clear()
            await self._begun.wait()
        if not self._agent.running:
            raise UsageError(f"nothing runs, so there is nothing to {what}.")

    def _see(self, event: Event) -> None:
        if isinstance(event, StateEvent) and event.state is AgentState.RUNNING:
            self._begun.set()
        elif isinstance(event, ApprovalRequest) and self._ended:
            task = asyncio.ensure_future(self._refuse(event.request_id))
            self._refusing.add(task)
            task.add_done_callback(self._refusing.discard)

    async def _refuse(self, request_id: str) -> None:
        """Deny a question that nobody can answer any more, as soon as it is open."""
        while self._agent.running:
            if any(request.request_id == request_id for request in self._agent.approvals.pending):
                self._agent.answer(request_id, "reject")
                return
            await asyncio.sleep(0.01)
