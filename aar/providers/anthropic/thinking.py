"""Reasoning levels as Claude models take them: a budget of tokens, or adaptive thinking with an effort.

Sources: https://platform.claude.com/docs/en/build-with-claude/extended-thinking,
https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking. The table in docs/models.md says the
same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aar.providers.catalog import ClaudeTraits

DEFAULT_ANSWER = 32_000
"""Tokens of one answer that are asked for where nobody set a limit; the wire demands one."""

_BUDGETS = {"minimal": 1_024, "low": 4_000, "medium": 10_000, "high": 20_000, "max": 32_000}
_EFFORTS = {"off": "low", "minimal": "low"}
_EFFORT_OF_BUDGET = ((6_000, "low"), (20_000, "medium"), (48_000, "high"))
_LEAST_BUDGET = 1_024
_LEAST_ANSWER = 4_096
"""Tokens kept for the answer itself, or half of all where that is less."""


@dataclass(frozen=True, slots=True)
class ThinkingPlan:
    """How one request asks for thinking.

    Attributes:
        max_tokens: Tokens of thinking and answer together.
        thinking: Value of ``thinking``; ``None``: the field is not sent.
        effort: Value of ``output_config.effort``; ``None``: not sent.
    """

    max_tokens: int
    thinking: dict[str, Any] | None = None
    effort: str | None = None

    @property
    def budgeted(self) -> bool:
        """Whether a budget of tokens is asked for."""
        return self.thinking is not None and self.thinking["type"] == "enabled"

    @property
    def thinks(self) -> bool:
        """Whether the request asks for thinking."""
        return self.thinking is not None and self.thinking["type"] != "disabled"

    def without_thinking(self) -> ThinkingPlan:
        """Return the plan of a request that must not think."""
        return ThinkingPlan(self.max_tokens)


def plan_thinking(
    level: str | int | None, traits: ClaudeTraits, *, asked_tokens: int | None, limit: int
) -> ThinkingPlan:
    """Return how to ask for ``level``.

    Args:
        level: ``off minimal low medium high max``, a number of tokens, or ``None``: the model's default.
        traits: What the model takes.
        asked_tokens: The limit of an answer that the user or the budget sets; thinking counts towards it.
        limit: What the model itself can give.
    """
    if traits.thinking == "none":
        return ThinkingPlan(min(asked_tokens or DEFAULT_ANSWER, limit))
    off = level in {"off", 0}
    if traits.thinking == "adaptive" or (traits.thinking == "both" and not isinstance(level, int)):
        return _adaptive(level, traits, min(asked_tokens or DEFAULT_ANSWER, limit), off=off)
    if level is None or off:
        return ThinkingPlan(min(asked_tokens or DEFAULT_ANSWER, limit))
    budget = level if isinstance(level, int) else _BUDGETS.get(level, _BUDGETS["medium"])
    budget = max(budget, _LEAST_BUDGET)
    max_tokens = min(asked_tokens or DEFAULT_ANSWER + budget, limit)
    budget = min(budget, max_tokens - min(_LEAST_ANSWER, max_tokens // 2))
    if budget < _LEAST_BUDGET:
        return ThinkingPlan(max_tokens)
    return ThinkingPlan(max_tokens, {"type": "enabled", "budget_tokens": budget})


def _adaptive(level: str | int | None, traits: ClaudeTraits, max_tokens: int, *, off: bool) -> ThinkingPlan:
    on: dict[str, Any] = {"type": "adaptive"}
    if traits.thinking == "adaptive":
        # These models keep their thoughts to themselves unless asked for a summary.
        on["display"] = "summarized"
    if level is None:
        return ThinkingPlan(max_tokens, on if traits.thinks_unasked else None)
    if off and not traits.always_thinks:
        return ThinkingPlan(max_tokens, {"type": "disabled"} if traits.thinks_unasked else None)
    return ThinkingPlan(max_tokens, on, _effort(level, traits.efforts))


def _effort(level: str | int, efforts: tuple[str, ...]) -> str | None:
    if isinstance(level, int):
        level = next((name for limit, name in _EFFORT_OF_BUDGET if level < limit), "max")
    effort = _EFFORTS.get(level, level)
    if effort in efforts:
        return effort
    return efforts[-1] if efforts else None
