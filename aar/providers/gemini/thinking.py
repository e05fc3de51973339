"""Reasoning levels as Gemini takes them: ``thinkingLevel`` or ``thinkingBudget``.

Source: https://ai.google.dev/gemini-api/docs/thinking. The table in docs/models.md says the same.
"""

from __future__ import annotations

from typing import Any

from aar.providers.catalog import GeminiThinking

_BUDGETS = {"off": 0, "minimal": 512, "low": 2_048, "medium": 8_192, "high": 16_384, "max": 24_576}
_PRO_BUDGETS = _BUDGETS | {"off": 128, "max": 32_768}
_LEVELS = {
    "off": "MINIMAL", "minimal": "MINIMAL", "low": "LOW", "medium": "MEDIUM", "high": "HIGH", "max": "HIGH"
}  # fmt: skip
_COARSE_LEVELS = _LEVELS | {"off": "LOW", "minimal": "LOW", "medium": "HIGH"}


def thinking_config(style: GeminiThinking, reasoning: str | int | None) -> dict[str, Any] | None:
    """Return ``thinkingConfig`` for a model that is told in ``style`` how to think.

    Args:
        style: See `aar.providers.catalog.gemini_thinking`.
        reasoning: Level, number of tokens, or ``None``: as much as the model likes.
    """
    if reasoning is None:
        return None if style in {"none", "unknown"} else {"includeThoughts": True}
    if style == "none":
        return None
    if isinstance(reasoning, int):
        return {"includeThoughts": reasoning != 0, "thinkingBudget": reasoning}
    shown = reasoning != "off"
    if style in {"level", "coarse_level"}:
        levels = _LEVELS if style == "level" else _COARSE_LEVELS
        return {"includeThoughts": shown, "thinkingLevel": levels.get(reasoning, reasoning.upper())}
    budgets = _PRO_BUDGETS if style == "pro_budget" else _BUDGETS
    return {"includeThoughts": shown, "thinkingBudget": budgets.get(reasoning, -1)}
