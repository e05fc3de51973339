"""One request of a chat client: its conversation becomes a session, its last message a run.

Chat clients send the whole conversation each time. A conversation that was answered here is known again by
its words, and its session goes on, with all that the agent did and saw; any other begins a new session.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict
from starlette.requests import Request

from aar.core.agent import RunResult
from aar.core.session import Session
from aar.protocol.errors import AarError, ErrorKind, ProviderError, UsageError
from aar.protocol.events import Event, StreamChunk
from aar.protocol.messages import ContentBlock, ImageBlock, Message, ResourceBlock, TextBlock
from aar.protocol.state import StopReason
from aar.runtime.history import tell_history
from aar.transports.serve.house import House
from aar.transports.serve.models.listing import agent_of
from aar.transports.serve.overrides import Wish
from aar.transports.serve.room import Room

T = TypeVar("T")
_REMEMBERED = 1000
"""Conversations that are known again."""
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_REMARKS = {
    StopReason.MAX_STEPS: "Stopped at the limit of steps.",
    StopReason.TIMEOUT: "Stopped: the time was over.",
    StopReason.BUDGET: "Stopped at the budget.",
    StopReason.REPETITION: "Stopped: the model repeated itself without progress.",
    StopReason.EMPTY: "Stopped: the model gave empty answers.",
    StopReason.DENIED: "Stopped: a call was not allowed, and nobody could be asked.",
    StopReason.CANCELLED: "Cancelled.",
}


class Lenient(BaseModel):
    """A body of which more is passed over than is used."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class GoneError(Exception):
    """The client did not wait for its answer."""


@dataclass(frozen=True)
class Asked:
    """What a chat client wants.

    Attributes:
        model: Name of the model, as `/v1/models` lists it.
        instructions: Its system prompt; empty: none.
        messages: The conversation; the last one is the user's prompt.
    """

    model: str
    instructions: str
    messages: tuple[Message, ...]

    def key(self, *more: Message) -> str:
        """Return what the conversation before the prompt, or with ``more`` behind it, is known by."""
        told = [*self.messages, *more] if more else self.messages[:-1]
        words = [[message.role, [_known_by(block) for block in message.content]] for message in told]
        return hashlib.sha256(json.dumps([self.model, self.instructions, words]).encode()).hexdigest()


def _known_by(block: Any) -> str:
    return block.text.strip() if isinstance(block, TextBlock) else str(block.model_dump_json())


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of the answer: visible text, or thinking."""

    text: str = ""
    thinking: str = ""


@dataclass
class Conversations:
    """Which session holds which conversation."""

    _sessions: OrderedDict[str, str] = field(default_factory=OrderedDict[str, str])

    def find(self, asked: Asked) -> str | None:
        """Return the session that holds what was said before."""
        return self._sessions.get(asked.key()) if len(asked.messages) > 1 else None

    def note(self, asked: Asked, answer: str, session_id: str) -> None:
        """Remember where a conversation goes on."""
        said = Message(role="assistant", content=(TextBlock(text=answer),))
        self._sessions[asked.key(said)] = session_id
        while len(self._sessions) > _REMEMBERED:
            self._sessions.popitem(last=False)


def conversations_of(request: Request) -> Conversations:
    """Return what the server that got ``request`` remembers."""
    state = request.app.state
    if not hasattr(state, "conversations"):
        state.conversations = Conversations()
    kept: Conversations = state.conversations
    return kept


async def begin(house: House, asked: Asked, known: Conversations) -> tuple[Room, bool]:
    """Open the session of a conversation; tell also whether it is a new one.

    Raises:
        NotHereError: There is no such model.
        AarError: The conversation cannot be taken.
    """
    wish = Wish(agent=await agent_of(house, asked.model))
    stored = known.find(asked)
    if stored is not None and house.room(stored) is None:
        with suppress(AarError):  # deleted, or open in another process: a new one is as good
            return await house.create(wish, headless=True, resume=stored), False

    def tell(session: Session) -> None:
        tell_history(session, _with_instructions(asked)[:-1])

    return await house.create(wish, headless=True, begin=tell), True


def _with_instructions(asked: Asked) -> list[Message]:
    """Return the messages with the client's instructions before the first of the user's."""
    messages = list(asked.messages)
    if asked.instructions:
        block = ResourceBlock(uri="instructions of the client", text=asked.instructions)
        place = next(at for at, message in enumerate(messages) if message.role == "user")
        first = messages[place]
        messages[place] = Message(role="user", content=(block, *first.content))
    return messages


async def answer(room: Room, asked: Asked, *, new: bool) -> AsyncGenerator[Piece | RunResult]:
    """Run the prompt; yield the answer in pieces, at last how it ended.

    Raises:
        AarError: The run could not start.
    """
    passed: asyncio.Queue[Piece | RunResult | None] = asyncio.Queue()
    steps = _Steps()

    def take(event: Event) -> None:
        piece = steps.piece(event)
        if piece is not None:
            passed.put_nowait(piece)

    room.conversation.watch(take, on_result=passed.put_nowait)
    messages = _with_instructions(asked) if new else list(asked.messages)
    content: list[ContentBlock] = [
        block for block in messages[-1].content if isinstance(block, TextBlock | ImageBlock | ResourceBlock)
    ]
    room.conversation.submit(content)
    waiting = asyncio.ensure_future(room.conversation.wait())
    waiting.add_done_callback(lambda _: passed.put_nowait(None))
    try:
        while (item := await passed.get()) is not None:
            yield item
        waiting.result()
    finally:
        room.conversation.interrupt()
        waiting.cancel()


async def run_whole(house: House, room: Room, asked: Asked, *, new: bool) -> RunResult:
    """Run the prompt to its end, close the session and tell how it went.

    Raises:
        AarError: The run could not start.
    """
    result: RunResult | None = None
    async with house.staying(room), aclosing(answer(room, asked, new=new)) as pieces:
        async for piece in pieces:
            result = piece if isinstance(piece, RunResult) else result
    assert result is not None
    return result


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


def remark(result: RunResult) -> str:
    """Return what is said of a run that ended otherwise than with an answer; empty: nothing."""
    return _REMARKS.get(result.stop_reason, "")


def demand_success(result: RunResult) -> None:
    """Raise `ProviderError` for a run that failed."""
    if result.stop_reason is StopReason.ERROR:
        raise failure_of(result)


def failure_of(result: RunResult) -> ProviderError:
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


def image(media_type: object, data: object) -> ImageBlock:
    """Return an image that a client sent.

    Raises:
        UsageError: It is of a kind that is not taken.
    """
    import base64
    import binascii

    if media_type not in _IMAGES or not isinstance(data, str) or not data:
        raise UsageError(f"Images must be {', '.join(sorted(_IMAGES))}, in base64.")
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise UsageError("The data of an image are no base64.") from None
    return ImageBlock(media_type=str(media_type), data=data)


def conversation(instructions: list[str], messages: list[Message], model: str) -> Asked:
    """Return what is asked.

    Raises:
        UsageError: There is no prompt in it.
    """
    if not messages or messages[-1].role != "user" or not messages[-1].content:
        raise UsageError("messages: the last one must be the user's, with something in it.")
    told = tuple(message for message in messages if message.content)
    return Asked(model, "\n\n".join(text for text in instructions if text.strip()), told)
