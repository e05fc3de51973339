"""One attempt to get an answer: what was shown of it, and what of that is kept when it breaks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from aar.protocol.events import AssistantMessage, Event, Notice, Reasoning, StreamChunk
from aar.protocol.messages import ReasoningBlock, TextBlock, ToolUseBlock
from aar.protocol.ports import Emit
from aar.providers.base import Delta

if TYPE_CHECKING:
    from aar.providers.text_tools import Parser


class PassingNotice(Notice, frozen=True):
    """A notice for the moment, such as how far a model is loaded: shown and forgotten."""

    stored: ClassVar[bool] = False


@dataclass(slots=True)
class Attempt:
    """What was shown of one attempt.

    Attributes:
        emit: Where it is shown.
        make_parser: Makes the parser of calls that are written as text.
        start: When it began, in monotonic seconds.
        shown: Text, piece by piece.
        thought: Thinking, piece by piece.
        published: Whether anything was shown.
        showed_call: Whether a piece of a tool call was shown.
        first_token: When the first piece came.
        closed: Whether the end of the stream was shown.
    """

    emit: Emit
    make_parser: Callable[[], Parser] | None
    start: float
    shown: list[str] = field(default_factory=list[str])
    thought: list[str] = field(default_factory=list[str])
    published: bool = False
    showed_call: bool = False
    first_token: float | None = None
    closed: bool = False
    _parser: Parser | None = None

    @property
    def parser(self) -> Parser | None:
        """The parser of this answer; made with its first text, when the request is on its way."""
        if self._parser is None and self.make_parser is not None:
            self._parser = self.make_parser()
        return self._parser

    @property
    def first_token_ms(self) -> float | None:
        """Milliseconds from the start to the first piece; ``None``: it came whole, or not at all."""
        return None if self.first_token is None else round((self.first_token - self.start) * 1000, 3)

    def take(self, delta: Delta, clock: Callable[[], float]) -> None:
        """Show one piece."""
        if delta.progress is not None:
            self.emit.publish(PassingNotice(message=delta.progress, code="provider_progress"))
            return
        if self.first_token is None and delta.response is None:
            self.first_token = clock()
        parser = self.parser if delta.text else None
        prose = parser.feed(delta.text) if parser is not None else delta.text
        fragment = _fragment(delta)
        if prose or delta.reasoning or fragment is not None:
            self.show(prose, delta.reasoning, fragment)

    def show(self, text: str, reasoning: str = "", fragment: dict[str, object] | None = None) -> None:
        """Show a piece, and remember it for the case that the answer is cut."""
        self.published = True
        self.showed_call = self.showed_call or fragment is not None
        if text:
            self.shown.append(text)
        if reasoning:
            self.thought.append(reasoning)
        chunk = StreamChunk(text=text, reasoning_text=reasoning, tool_call_fragment=fragment)
        self.emit.publish(chunk)

    def close(self) -> None:
        """Show the end of the stream, exactly once."""
        if not self.closed:
            self.closed = True
            self.emit.publish(StreamChunk(finished=True))

    def keep_partial(self) -> None:
        """Store what was said before the attempt was cut, except for calls."""
        if self.closed:
            return
        if self._parser is not None:
            parsed = self._parser.finish(cut=True)
            if parsed.rest and parsed.problem is None:
                self.show(parsed.rest)
        self.close()
        text, thought = "".join(self.shown), "".join(self.thought)
        events: list[Event] = [Reasoning(content=thought)] if thought else []
        if text:
            events.append(AssistantMessage(content=text, partial=True))
        self.emit.append(*events)


def as_delta(block: TextBlock | ReasoningBlock | ToolUseBlock, place: int) -> Delta:
    """Return a block of a whole answer as the piece that a stream would have brought."""
    match block:
        case TextBlock():
            return Delta(text=block.text)
        case ReasoningBlock():
            return Delta(reasoning=block.text)
        case ToolUseBlock():
            arguments = json.dumps(block.arguments) if block.raw_arguments is None else block.raw_arguments
            return Delta(tool_index=place, tool_name=block.name, tool_arguments=arguments)


def _fragment(delta: Delta) -> dict[str, object] | None:
    if delta.tool_index is None:
        return None
    return {"index": delta.tool_index, "name": delta.tool_name, "arguments": delta.tool_arguments}
