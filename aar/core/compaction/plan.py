"""What a compaction leaves out: which old outputs, and up to which turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aar.core.compaction.meter import message_tokens
from aar.core.fold import SUMMARY_HEADING, TurnOutline
from aar.core.tokens import estimate_text
from aar.protocol.events import ShrunkOutput
from aar.protocol.messages import TextBlock, ToolResultBlock

_MARK = "[This output of"
_WORTH_CHARS = 900
_ENDS_CHARS = 160
_UNSEEN_ENDS_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Shrink:
    """An output that gives way to a note.

    Attributes:
        seq: Of its event.
        block: The result as the model has it.
        reference: Where the whole is kept already; ``None``: nowhere yet.
        ends: Characters that stay at either end.
    """

    seq: int
    block: ToolResultBlock
    reference: str | None
    ends: int

    def made(self, keep: Callable[[str, str], str] | None) -> ShrunkOutput:
        """Keep the whole output, if that is possible, and return the note that stands for it."""
        text, reference = self.block.output, self.reference
        again = text.startswith(_MARK)
        if reference is None and keep is not None and not again:
            try:
                reference = keep(self.block.call_id, text)
            except OSError:
                reference = None
        head, body = text.split("\n", 1) if again and "\n" in text else (self._head(reference, keep), text)
        if len(body) > 2 * self.ends:
            body = f"{body[: self.ends]}\n…\n{body[len(body) - self.ends :]}"
        return ShrunkOutput(seq=self.seq, note=f"{head}\n{body}", output_ref=reference)

    def _head(self, reference: str | None, keep: object) -> str:
        readable = reference is not None and keep is not None
        where = (
            f"read_output(ref={reference!r}) shows it" if readable else "make the call again if it matters"
        )
        images = f" and {len(self.block.images)} images" if self.block.images else ""
        size = len(self.block.output)
        return f"{_MARK} {size:,} characters{images} was put aside to make room; {where}.]"


@dataclass(frozen=True, slots=True)
class Cut:
    """Where the summary ends and the conversation goes on.

    Attributes:
        kept: Number of the first turn that is kept.
        first_kept_seq: Of that turn.
        dropped: The turns before it, without an earlier summary.
        worthwhile: Whether anything but an earlier summary is dropped.
    """

    kept: int
    first_kept_seq: int
    dropped: list[TurnOutline]
    worthwhile: bool


def choose_cut(turns: Sequence[TurnOutline], keep_tokens: int) -> Cut:
    """Choose the first turn to keep: as many of the last ones as fit into ``keep_tokens``, pairs unbroken.

    What the model has not seen yet stays: the last results with their calls, or the last words of the user.
    """
    at = _unseen_from(turns)
    used = sum(message_tokens(turn.message).total for turn in turns[at:])
    best = at
    while at > 0:
        at -= 1
        used += message_tokens(turns[at].message).total
        if used > keep_tokens:
            break
        if _may_begin(turns[at]):
            best = at
    dropped = [turn for turn in (_without_summary(turn) for turn in turns[:best]) if turn.message.content]
    first = min((seq for seq in turns[best].seqs if seq), default=0) if best < len(turns) else 0
    return Cut(best, first, dropped, bool(dropped) and first > 0)


def _unseen_from(turns: Sequence[TurnOutline]) -> int:
    if not turns:
        return 0
    last = len(turns) - 1
    if turns[last].role == "user" and turns[last].results and last > 0:
        return last - 1
    return last


def _may_begin(turn: TurnOutline) -> bool:
    """Tell whether the kept part may begin here: at an answer, or at words that follow no results."""
    return bool([seq for seq in turn.seqs if seq]) and not turn.results


def _without_summary(turn: TurnOutline) -> TurnOutline:
    content = tuple(
        block
        for block in turn.message.content
        if not (isinstance(block, TextBlock) and block.text.startswith(SUMMARY_HEADING))
    )
    if len(content) == len(turn.message.content):
        return turn
    return TurnOutline(
        turn.role, turn.message.model_copy(update={"content": content}), turn.seqs, turn.results
    )


def shrink_old(turns: Sequence[TurnOutline], references: Mapping[int, str]) -> list[Shrink]:
    """Return every long output of ``turns``: all at once, so that the next ones come long after."""
    return [
        Shrink(seq, block, references.get(seq), _ENDS_CHARS)
        for turn in turns
        for seq, block in turn.results
        if len(block.output) > _WORTH_CHARS or block.images
    ]


def shrink_tail(turns: Sequence[TurnOutline], references: Mapping[int, str], tokens: int) -> list[Shrink]:
    """Return the longest outputs of the kept turns, until these take no more than ``tokens``."""
    used = sum(message_tokens(turn.message).total for turn in turns)
    outputs = [(seq, block) for turn in turns for seq, block in turn.results]
    outputs.sort(key=lambda item: len(item[1].output), reverse=True)
    chosen: list[Shrink] = []
    for seq, block in outputs:
        if used <= tokens or len(block.output) <= 2 * _UNSEEN_ENDS_CHARS:
            break
        chosen.append(Shrink(seq, block, references.get(seq), _UNSEEN_ENDS_CHARS))
        used -= (
            estimate_text(block.output) * (len(block.output) - 2 * _UNSEEN_ENDS_CHARS) // len(block.output)
        )
    return chosen
