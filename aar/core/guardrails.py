"""Help for a model that is stuck: cut, empty, unreadable and repeated answers. All counts are per run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from aar.config.schema import GuardrailsConfig
from aar.protocol.events import ToolCall, ToolResult
from aar.protocol.state import StopReason

_MAX_UNREADABLE = 2
_WINDOW = 16

CONTINUE = (
    "Your answer was cut at the output limit. Go on exactly where it stopped, without repeating anything."
)
CUT_CALL = (
    "Your answer was cut at the output limit in the middle of a tool call, so that call did not run. "
    "Do the same work in smaller pieces."
)
CONTINUE_LABEL = "continue"
"""Label of the nudge after which an answer goes on where the one before was cut."""

EMPTY = "Your answer was empty. Either call a tool to go on with the task, or say what you did and found."
REPEATED = (
    "You have made the same tool calls with the same results twice, and nothing changed in between. "
    "Try a different approach, or say what keeps you from going on."
)


@dataclass(frozen=True, slots=True)
class Nudge:
    """Words for the model, after which the loop goes on."""

    text: str
    label: str


Verdict = Nudge | StopReason | None
"""Go on with a nudge, stop, or (``None``) nothing to object."""


class LoopGuardrails:
    """Watches the answers of one run."""

    def __init__(self, config: GuardrailsConfig) -> None:
        self._config = config
        self._recoveries = 0
        self._empty = 0
        self._unreadable = 0
        self._steps: list[str] = []
        self._warned = False

    def world_changed(self) -> None:
        """Forget the steps so far: what they would give now may differ."""
        self._steps.clear()
        self._warned = False

    def after_answer(self, *, text: str, cut: bool, refused: bool, problem: str | None) -> Verdict:
        """Judge an answer without tool calls.

        Args:
            text: What the model said.
            cut: Whether it was cut at the output limit.
            refused: Whether the model or a filter declined.
            problem: What was wrong with a tool call written as text, if something was.
        """
        if refused:
            return StopReason.REFUSAL
        if cut:
            return self._recover(CONTINUE, CONTINUE_LABEL) if problem is None else self._recover(problem)
        if problem is not None and self._unreadable < _MAX_UNREADABLE:
            self._unreadable += 1
            return Nudge(problem, "unreadable answer")
        if not text.strip():
            self._empty += 1
            if self._empty > self._config.max_empty_answers:
                return StopReason.EMPTY
            return Nudge(EMPTY, "empty answer")
        return None

    def after_cut_call(self) -> Verdict:
        """Judge an answer whose tool call was cut at the output limit."""
        return self._recover(CUT_CALL)

    def _recover(self, words: str, label: str = "output limit") -> Verdict:
        if self._recoveries >= self._config.max_tokens_recoveries:
            return StopReason.MAX_TOKENS
        self._recoveries += 1
        return Nudge(words, label)

    def after_tools(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> Verdict:
        """Judge a step's calls with their results: the same over and over, or A-B-A-B, is a loop.

        The memory of steps is cleared whenever a call changed a file, for then the world is another one.
        """
        if any(result.file_changes for result in results):
            self.world_changed()
            return None
        self._steps = [*self._steps, _signature(calls, results)][-_WINDOW:]
        repeats = max(_repeats(self._steps, 1), _repeats(self._steps, 2))
        limit = max(2, self._config.max_repeated_tool_steps)
        if repeats >= limit:
            return StopReason.REPETITION
        if repeats < 2:
            self._warned = False
        elif repeats >= limit - 1 and not self._warned:
            self._warned = True
            return Nudge(REPEATED, "repetition")
        return None


def _signature(calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> str:
    asked = sorted(json.dumps([call.tool_name, call.arguments], sort_keys=True) for call in calls)
    said = sorted(result.output for result in results)
    return hashlib.sha256(json.dumps([asked, said]).encode()).hexdigest()


def _repeats(steps: Sequence[str], period: int) -> int:
    """Return how often the last ``period`` steps stand one after the other at the end of ``steps``."""
    if len(steps) < period:
        return 0
    pattern = list(steps[-period:])
    if period > 1 and len(set(pattern)) == 1:
        return 0
    count, end = 0, len(steps)
    while end >= period and list(steps[end - period : end]) == pattern:
        count += 1
        end -= period
    return count
