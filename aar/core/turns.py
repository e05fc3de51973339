"""The turns of a conversation as the fold of events builds them, and what a compaction makes of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from aar.protocol.errors import ToolCategory, tool_error_text
from aar.protocol.events import Compaction
from aar.protocol.messages import (
    Message,
    MessageBlock,
    ReasoningBlock,
    ResourceBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)

INTERRUPTED_TEXT = tool_error_text(
    ToolCategory.INTERRUPTED, "The call was cut off before it had a result. It may have run in part."
)
"""What the model reads as the result of a call that never got one."""

SUMMARY_HEADING = "Summary of the conversation so far:\n\n"
"""Stands before the summary of a compaction."""

_LONG_ATTACHMENT = 8000
"""Characters of an attached file that stays with its message when the turns around it are summarised."""

Key = tuple[str | None, int | None]


@dataclass(slots=True)
class AnswerTurn:
    """An assistant turn: the blocks of one step, each with the seq of its event."""

    key: Key
    blocks: list[tuple[int, MessageBlock]] = field(default_factory=list[tuple[int, MessageBlock]])
    message: Message | None = None

    @property
    def calls(self) -> list[ToolUseBlock]:
        return [block for _, block in self.blocks if isinstance(block, ToolUseBlock)]

    @property
    def real(self) -> bool:
        """Whether it says or does anything: thinking alone is no answer that a provider takes back."""
        return any(not isinstance(block, ReasoningBlock) for _, block in self.blocks)

    def build(self) -> Message:
        if self.message is None:
            self.message = Message(role="assistant", content=tuple(block for _, block in self.blocks))
        return self.message

    def add(self, seq: int, block: MessageBlock) -> None:
        self.blocks.append((seq, block))
        self.message = None

    def cut_after(self, seq: int) -> None:
        kept = [item for item in self.blocks if item[0] <= seq]
        if len(kept) < len(self.blocks):
            self.blocks = kept
            self.message = None

    def copy(self) -> AnswerTurn:
        return AnswerTurn(self.key, list(self.blocks), self.message)


@dataclass(slots=True)
class UserTurn:
    """A user turn: the results of the answer before it, then what was said."""

    answer: AnswerTurn | None = None
    results: dict[str, tuple[int, ToolResultBlock]] = field(
        default_factory=dict[str, tuple[int, ToolResultBlock]]
    )
    content: list[tuple[int, MessageBlock]] = field(default_factory=list[tuple[int, MessageBlock]])
    message: Message | None = None

    def build(self) -> Message:
        if self.message is None:
            calls = self.answer.calls if self.answer else []
            results = [self._result(call) for call in calls]
            said = [block for _, block in self.content]
            self.message = Message(role="user", content=(*results, *said))
        return self.message

    def _result(self, call: ToolUseBlock) -> ToolResultBlock:
        known = self.results.get(call.call_id)
        if known is not None:
            return known[1]
        return ToolResultBlock(call_id=call.call_id, name=call.name, output=INTERRUPTED_TEXT, is_error=True)

    def add_result(self, seq: int, block: ToolResultBlock) -> None:
        self.results[block.call_id] = (seq, block)
        self.message = None

    def cut_after(self, seq: int) -> None:
        before = len(self.results) + len(self.content)
        self.results = {name: item for name, item in self.results.items() if item[0] <= seq}
        self.content = [item for item in self.content if item[0] <= seq]
        # The answer before it may have lost a call, then it has been cut (and is rebuilt) too.
        if len(self.results) + len(self.content) < before or (self.answer and not self.answer.message):
            self.message = None

    def copy(self, answer: AnswerTurn | None) -> UserTurn:
        return UserTurn(answer, dict(self.results), list(self.content), self.message)


Turn = AnswerTurn | UserTurn


@dataclass(frozen=True, slots=True)
class TurnOutline:
    """One turn as a compaction sees it.

    Attributes:
        role: ``user`` or ``assistant``.
        message: The turn as the model is sent it.
        seqs: Of its blocks; for a user turn of what was said, 0 for a summary.
        results: Tool results with their seqs.
        waits: Whether a call of this answer has no result yet.
    """

    role: Literal["user", "assistant"]
    message: Message
    seqs: list[int]
    results: list[tuple[int, ToolResultBlock]] = field(default_factory=list[tuple[int, ToolResultBlock]])
    waits: bool = False


def copies(turns: list[Turn], last: int = 2) -> list[Turn]:
    """Copy the last of ``turns``, which may change, so that those that were saved stay as they are."""
    copied = list(turns)
    for place in range(max(0, len(turns) - last), len(turns)):
        turn = turns[place]
        if isinstance(turn, AnswerTurn):
            copied[place] = turn.copy()
        else:
            before = copied[place - 1] if place else None
            copied[place] = turn.copy(before if isinstance(before, AnswerTurn) else turn.answer)
    return copied


def is_empty(turn: Turn) -> bool:
    """Tell whether nothing is left of ``turn``."""
    return not turn.blocks if isinstance(turn, AnswerTurn) else not (turn.results or turn.content)


def turns_from(turns: list[Turn], first_kept_seq: int) -> list[Turn]:
    """Return what is kept from ``first_kept_seq`` on; the first kept turn, if the user's, is a copy.

    An answer is kept whole when any of it, or a result of its calls, is to be kept.
    """
    for index, turn in enumerate(turns):
        if isinstance(turn, AnswerTurn):
            following = turns[index + 1] if index + 1 < len(turns) else None
            results = following.results.values() if isinstance(following, UserTurn) else ()
            seqs = [seq for seq, _ in turn.blocks] + [seq for seq, _ in results]
            is_last = index + 2 >= len(turns)
            if max(seqs, default=0) >= first_kept_seq or (is_last and is_open(turn, following)):
                return turns[index:]
        else:
            content = [item for item in turn.content if item[0] >= first_kept_seq]
            if content:
                return [UserTurn(content=content), *turns[index + 1 :]]
    return []


def summarised(turns: list[Turn], event: Compaction) -> list[Turn]:
    """Return the turns with the summary in place of those before ``first_kept_seq``."""
    kept = turns_from(turns, event.first_kept_seq)
    there = {seq for turn in kept if isinstance(turn, UserTurn) for seq, _ in turn.content}
    pinned = [
        (seq, _without_attachment(block))
        for turn in turns
        if isinstance(turn, UserTurn)
        for seq, block in turn.content
        if seq in event.kept_seqs and seq not in there
    ]
    summary: tuple[int, MessageBlock] = (0, TextBlock(text=SUMMARY_HEADING + event.summary))
    if kept and isinstance(first := kept[0], UserTurn):
        first.content[:0] = [summary, *pinned]
        return kept
    return [UserTurn(content=[summary, *pinned]), *kept]


def _without_attachment(block: MessageBlock) -> MessageBlock:
    """Return a block that outlives its turn: what the user wrote as it is, of a long file its name."""
    if isinstance(block, ResourceBlock) and len(block.text) > _LONG_ATTACHMENT:
        return TextBlock(text=f"[{block.uri} was attached here; read it again where it matters.]")
    return block


def shrunk(turns: list[Turn], notes: dict[int, str]) -> list[Turn]:
    """Return the turns with a note in place of each output in ``notes`` (by seq); changed ones are copies."""
    if not notes:
        return turns
    changed: list[Turn] = []
    for turn in turns:
        if isinstance(turn, UserTurn) and any(seq in notes for seq, _ in turn.results.values()):
            turn = UserTurn(turn.answer, dict(turn.results), list(turn.content))
            for call_id, (seq, block) in turn.results.items():
                if seq in notes:
                    short = block.model_copy(update={"output": notes[seq], "images": ()})
                    turn.results[call_id] = (seq, short)
        changed.append(turn)
    return changed


def outline_of(turn: Turn, following: Turn | None) -> TurnOutline:
    """Return ``turn`` as a compaction sees it; ``following`` has the results of an answer's calls."""
    if isinstance(turn, AnswerTurn):
        seqs = [seq for seq, _ in turn.blocks]
        return TurnOutline("assistant", turn.build(), seqs, waits=is_open(turn, following))
    results = list(turn.results.values())
    said = [seq for seq, _ in turn.content]
    return TurnOutline("user", turn.build(), said, results=results)


def is_open(answer: AnswerTurn, following: Turn | None) -> bool:
    """Whether a call of ``answer`` has no result yet."""
    done = following.results if isinstance(following, UserTurn) else {}
    return any(call.call_id not in done for call in answer.calls)
