"""Usage as Gemini tells it, in aar's one form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aar.protocol.usage import Usage


def normalise(raw: Mapping[str, Any]) -> Usage | None:
    """Return ``usageMetadata`` in aar's form; ``None`` when it tells no token counts.

    ``promptTokenCount`` includes cached tokens; prompts of tools that Google ran are told beside it, and so
    are thoughts beside ``candidatesTokenCount``.
    """
    prompt, answer = _count(raw, "promptTokenCount"), _count(raw, "candidatesTokenCount")
    thoughts, total = _count(raw, "thoughtsTokenCount"), _count(raw, "totalTokenCount")
    if prompt is None and answer is None and thoughts is None and total is None:
        return None
    cached = _count(raw, "cachedContentTokenCount") or 0
    asked = (prompt or 0) + (_count(raw, "toolUsePromptTokenCount") or 0)
    return Usage(
        input=asked - cached if cached <= asked else asked,
        output=(answer or 0) + (thoughts or 0),
        cache_read=cached,
        reasoning=thoughts or 0,
    )


def _count(raw: Mapping[str, Any], name: str) -> int | None:
    value = raw.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12:
        return int(value)
    return None
