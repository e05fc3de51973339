"""One request of a chat client: its conversation becomes a session, its last message a run.

Chat clients send the whole conversation each time. A conversation that was answered here is known again by
its words, and its session goes on, with all that the agent did and saw; any other begins a new session.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import Request

from aar.core.agent import RunResult
from aar.core.session import Session
from aar.protocol.errors import AarError, ErrorKind, ProviderError
from aar.protocol.events import Event, StreamChunk
from aar.protocol.messages import ContentBlock, ImageBlock, ResourceBlock, TextBlock
from aar.protocol.state import StopReason
from aar.runtime.history import tell_history
from aar.transports.serve.endpoints import house_of
from aar.transports.serve.house import House
from aar.transports.serve.models.asked import Asked, Conversations, conversations_of
from aar.transports.serve.models.listing import agent_of
from aar.transports.serve.overrides import Wish
from aar.transports.serve.room import Room

T = TypeVar("T")
_REMARKS = {
    StopReason.MAX_STEPS: "Stopped at the limit of steps.",
    StopReason.TIMEOUT: "Stopped: the time was over.",
    StopReason.BUDGET: "Stopped at the budget.",
    StopReason.REPETITION: "Stopped: the model repeated itself without progress.",
    StopReason.EMPTY: "Stopped: the model gave empty answers.",
    StopReason.DENIED: "Stopped: a call was not allowed, and nobody could be asked.",
    StopReason.CANCELLED: "Cancelled.",
}


class GoneError(Exception):
    """The client did not wait for its answer."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of the answer: visible text, or thinking."""

    text: str = ""
    thinking: str = ""


@dataclass(frozen=True)
class Turn:
    """A prompt of a chat client, with the open session that answers it.

    Attributes:
        house: The sessions of the server.
        room: The session.
        asked: What the client wants.
        known: Which session holds which conversation.
        new: Whether the session was begun for this.
    """

    house: House
    room: Room
    asked: Asked
    known: Conversations
    new: bool

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer: they name the session."""
        return {"x-aar-session": self.room.session_id}

    async def whole(self, request: Request) -> tuple[RunResult, str]:
        """Run the prompt to its end; return how it ended, and the answer.

        Raises:
            GoneError: The client did not wait.
            AarError: The run could not start, or failed.
        """
        result = await unless_gone(request, self._whole())
        _demand_success(result)
        text = result.text or _remark(result)
        self.known.note(self.asked, text, self.room.session_id)
        return result, text

    async def _whole(self) -> RunResult:
        result: RunResult | None = None
        async with self.house.staying(self.room), aclosing(self._run()) as pieces:
            async for piece in pieces:
                result = piece if isinstance(piece, RunResult) else result
        assert result is not None
        return result

    @asynccontextmanager
    async def answering(self) -> AsyncGenerator[AsyncGenerator[Piece | RunResult]]:
        """Run the prompt; give what yields the answer in pieces, at last how it ended. Closes the session.

        What is given raises `AarError` where the run could not start, or failed.
        """
        async with self.house.staying(self.room), aclosing(self._pieces()) as pieces:
            yield pieces

    async def _pieces(self) -> AsyncGenerator[Piece | RunResult]:
        said: list[str] = []
        async with aclosing(self._run()) as pieces:
            async for piece in pieces:
                if isinstance(piece, Piece):
                    said.append(piece.text)
                    yield piece
                    continue
                _demand_success(piece)
                if more := _remark(piece):
                    said.append(f"\n\n{more}" if any(said) else more)
                    yield Piece(said[-1])
                self.known.note(self.asked, "".join(said), self.room.session_id)
                yield piece

    async def _run(self) -> AsyncGenerator[Piece | RunResult]:
        """Run the prompt; yield the answer in pieces, at last how it ended."""
        passed: asyncio.Queue[Piece | RunResult | None] = asyncio.Queue()
        steps = _Steps()

        def take(event: Event) -> None:
            piece = steps.piece(event)
            if piece is not None:
                passed.put_nowait(piece)

        conversation = self.room.conversation
        conversation.watch(take, on_result=passed.put_nowait)
        messages = self.asked.with_instructions() if self.new else self.asked.messages
        content: list[ContentBlock] = [
            block
            for block in messages[-1].content
            if isinstance(block, TextBlock | ImageBlock | ResourceBlock)
        ]
        conversation.submit(content)
        waiting = asyncio.ensure_future(conversation.wait())
        waiting.add_done_callback(lambda _: passed.put_nowait(None))
        try:
            while (item := await passed.get()) is not None:
                yield item
            waiting.result()
        finally:
            conversation.interrupt()
            waiting.cancel()


async def begin(request: Request, asked: Asked) -> Turn:
    """Open the session of a conversation.

    Raises:
        NotHereError: There is no such model.
        AarError: The conversation cannot be taken.
    """
    house, known = house_of(request), conversations_of(request)
    wish = Wish(agent=await agent_of(house, asked.model))
    stored = known.find(asked)
    if stored is not None and house.room(stored) is None:
        with suppress(AarError):  # deleted, or open in another process: a new one is as good
            room = await house.create(wish, headless=True, resume=stored)
            return Turn(house, room, asked, known, new=False)

    def tell(session: Session) -> None:
        tell_history(session, asked.with_instructions()[:-1])

    room = await house.create(wish, headless=True, begin=tell)
    return Turn(house, room, asked, known, new=True)


@dataclass
class _Steps:
    """Turns events into pieces; the words of two steps are two paragraphs."""

    step: int | None = None
    spoke: bool = False

    def piece(self, event: Event) -> Piece | None:
        """Return what a client is told of an event."""
        if not isinstance(event, StreamChunk) or event.agent_id != "main":
            return None
        text = event.text
        if text and self.spoke and event.step != self.step:
            text = "\n\n" + text
        if event.text:
            self.step, self.spoke = event.step, True
        return Piece(text, event.reasoning_text) if text or event.reasoning_text else None


def _remark(result: RunResult) -> str:
    """Return what is said of a run that ended otherwise than with an answer; empty: nothing."""
    return _REMARKS.get(result.stop_reason, "")


def _demand_success(result: RunResult) -> None:
    """Raise `ProviderError` for a run that failed."""
    if result.stop_reason is StopReason.ERROR:
        raise _failure_of(result)


def _failure_of(result: RunResult) -> ProviderError:
    """Return the error of a run that failed."""
    error = result.error or {}
    kind = ErrorKind(str(error.get("kind", ErrorKind.INTERNAL)))
    return ProviderError(kind, str(error.get("message", "The run failed; `aar logs` has the details.")))


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """Return what ``work`` comes to, and give it up when the client goes away.

    Raises:
        GoneError: It did.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise GoneError
        return task.result()
    finally:
        gone.cancel()
        task.cancel()
        with suppress(BaseException):
            await task


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
