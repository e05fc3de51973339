"""Turns of a conversation as lines of JSON, for the cache of a long session. Imported when there is one."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict

from aar.core.turns import AnswerTurn, Key, Turn, UserTurn
from aar.protocol.messages import MessageBlock, ToolResultBlock


class _KeptTurn(BaseModel):
    """A turn of either kind; ``key`` and ``blocks`` are an answer's."""

    model_config = ConfigDict(defer_build=True)

    key: Key | None = None
    blocks: list[tuple[int, MessageBlock]] = []
    answers: bool = False
    """Whether the turn before it is the answer that its results belong to."""
    results: list[tuple[int, ToolResultBlock]] = []


def dump_turns(turns: list[Turn]) -> list[str]:
    """Return ``turns`` for `load_turns`, each as a line of JSON; nothing where they cannot be kept."""
    lines: list[str] = []
    before: Turn | None = None
    for turn in turns:
        if isinstance(turn, AnswerTurn):
            kept = _KeptTurn.model_construct(key=turn.key, blocks=turn.blocks)
        elif turn.answer is None or turn.answer is before:
            results = list(turn.results.values())
            answers = turn.answer is not None
            kept = _KeptTurn.model_construct(blocks=turn.content, answers=answers, results=results)
        else:
            return []
        lines.append(kept.model_dump_json())
        before = turn
    return lines


def load_turns(lines: Iterable[bytes]) -> list[Turn]:
    """Return the turns that `dump_turns` was given.

    Raises:
        ValueError: A line is something else.
    """
    turns: list[Turn] = []
    # Line by line: JSON is a tree of objects before it is what it stands for.
    for line in lines:
        turn = _KeptTurn.model_validate_json(line)
        if turn.key is not None:
            turns.append(AnswerTurn(turn.key, turn.blocks))
            continue
        before = turns[-1] if turns and turn.answers else None
        results = {block.call_id: (seq, block) for seq, block in turn.results}
        turns.append(UserTurn(before if isinstance(before, AnswerTurn) else None, results, turn.blocks))
    return turns
