"""The answer of a model as it comes, until the stored events take its place."""

from __future__ import annotations

from typing import TypeVar

from aar.protocol.events import AssistantMessage, Reasoning, StreamChunk
from aar.transports.tui.blocks import AnswerBlock, AnyBlock, ThinkingBlock, ToolBlock
from aar.transports.tui.view_state import ViewState

_Streamed = TypeVar("_Streamed", AnswerBlock, ThinkingBlock)
_Kind = TypeVar("_Kind", AnswerBlock, ThinkingBlock, ToolBlock)


class AnswerStream:
    """Folds the pieces of an answer into blocks.

    Args:
        view: Where the blocks are.
    """

    def __init__(self, view: ViewState) -> None:
        self._view = view
        self._blocks: list[AnyBlock] = []
        self._thinking_since: float | None = None

    def chunk(self, event: StreamChunk) -> None:
        """Take a piece of the answer."""
        if event.reasoning_text:
            self._stream(ThinkingBlock, "Thinking").add(event.reasoning_text)
        if event.text:
            self._stop_thinking()
            self._stream(AnswerBlock, "Answering").add(event.text)
        if event.tool_call_fragment is not None:
            self._stop_thinking()
            self._fragment(event.tool_call_fragment)
        if event.finished:
            self._stop_thinking()

    def _stream(self, kind: type[_Streamed], activity: str) -> _Streamed:
        """Return the open block at the end of the stream, a new one if need be."""
        last = self._blocks[-1] if self._blocks else None
        if not isinstance(last, kind):
            last = kind(self._view.key(), live=True)
            self._blocks.append(last)
            self._view.append(last)
            self._view.do(activity)
            if kind is ThinkingBlock:
                self._thinking_since = self._view.clock()
        self._view.changes.changed.add(last.key)
        return last

    def _stop_thinking(self) -> None:
        if self._thinking_since is None:
            return
        for block in reversed(self._blocks):
            if isinstance(block, ThinkingBlock):
                block.seconds = (block.seconds or 0.0) + self._view.clock() - self._thinking_since
                self._view.touch(block)
                break
        self._thinking_since = None

    def _fragment(self, fragment: dict[str, object]) -> None:
        index = fragment.get("index")
        name, arguments = fragment.get("name"), fragment.get("arguments")
        open_calls = [block for block in self._blocks if isinstance(block, ToolBlock)]
        place = index if isinstance(index, int) else len(open_calls) - 1
        block = next((call for call in open_calls if call.call_id == f"#{place}"), None)
        if block is None:
            block = ToolBlock(self._view.key(), live=True, call_id=f"#{place}")
            self._blocks.append(block)
            self._view.append(block)
        if isinstance(name, str) and name:
            block.name = name
            self._view.do(f"Writing a call of {name}")
        if isinstance(arguments, str):
            block.add_draft(arguments)
        self._view.changes.changed.add(block.key)

    def take(self, kind: type[_Kind]) -> _Kind | None:
        """Return the first streamed block of ``kind``, for the stored event that takes its place."""
        for place, block in enumerate(self._blocks):
            if isinstance(block, kind):
                del self._blocks[place]
                self._view.changes.changed.add(block.key)
                return block
        return None

    def reasoning(self, event: Reasoning) -> None:
        """Take what the model thought, as it is stored."""
        self._stop_thinking()
        block = self.take(ThinkingBlock)
        if block is None:
            if not event.content and not event.redacted:
                return
            block = ThinkingBlock(self._view.key())
            self._view.append(block)
        block.redacted = event.redacted
        block.settle(event.content, event.seq)

    def answer(self, event: AssistantMessage) -> None:
        """Take what the model said, as it is stored."""
        block = self.take(AnswerBlock)
        if block is None:
            block = AnswerBlock(self._view.key())
            self._view.append(block)
        block.partial, block.refusal = event.partial, event.refusal
        block.settle(event.content, event.seq)

    def drop(self) -> None:
        """Take away what was streamed and is not in the stored answer."""
        self._stop_thinking()
        self._view.remove(self._blocks)
        self._blocks.clear()
