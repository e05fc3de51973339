"""Which reasoning levels a model takes. What each is on the wire is in the vendor's module."""

from __future__ import annotations

import re
from typing import Final

from aar.providers import catalog_rules

LEVELS: Final = ("off", "minimal", "low", "medium", "high", "max")
"""All levels, rising; a number of tokens passes as a budget where the vendor takes one."""

_RULES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (r"gpt-5(?:\.\d+)?-pro", ("high",)),
    (r"gpt-5\.[1-9]|gpt-[6-9]", ("off", "low", "medium", "high", "max")),
    (r"gpt-5", ("minimal", "low", "medium", "high")),
    (r"(?:^|/)o[134](?:-|$)|codex-mini|gpt-oss", ("low", "medium", "high")),
    (r"claude-(?:fable|mythos)", ("low", "medium", "high", "max")),
    (r"claude", LEVELS),
    (r"gemini-3-pro", ("low", "high")),
    (r"gemini-(?:[3-9]|\d\d)", ("minimal", "low", "medium", "high")),
    (r"gemini-2\.5-pro", ("minimal", "low", "medium", "high", "max")),
    (r"gemini", LEVELS),
    (r"grok-3-mini", ("low", "high")),
    (r"grok", ("high",)),
    (r"deepseek|qwen|glm|kimi|magistral", ("off", "high")),
)


def reasoning_levels(provider: str, model: str, *, thinks: bool | None = None) -> tuple[str, ...]:
    """Return the levels that make a difference for ``model``; empty: it does not think.

    Args:
        provider: Name of the provider; the embedded model does not think.
        model: Name on the wire.
        thinks: Whether it thinks, where that is known better than by its name.
    """
    name = model.lower()
    able = catalog_rules.thinks(name) if thinks is None else thinks
    if not able or provider in ("local", "scripted"):
        return ()
    fallback = ("off", "low", "medium", "high")
    return next((levels for pattern, levels in _RULES if re.search(pattern, name)), fallback)
