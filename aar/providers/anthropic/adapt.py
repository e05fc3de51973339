"""What a server refused about thinking and length, model by model, so that it is asked another way.

Names of models change faster than any table, so a refusal that tells how to ask is taken at its word:
the request is sent again once that way, and so from then on.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from aar.providers.anthropic.thinking import ThinkingPlan
from aar.providers.catalog import ClaudeTraits
from aar.providers.http.errors import parse_body, read_error

_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_TOO_MANY = re.compile(r"max_tokens: *(\d+) *> *(\d+)")
_UNSUPPORTED = re.compile(
    r"not supported|unsupported|does not support|not permitted|not allowed|extra inputs|not available"
    r"|does not match any of the expected tags|only supported|input should be"
)


class LearntTraits:
    """The traits of models as the catalogue tells them, corrected by what the server said."""

    def __init__(self, server: str) -> None:
        """Args: ``server`` is the host, for the sentences."""
        self._server = server
        self._traits: dict[str, ClaudeTraits] = {}
        self._limits: dict[str, int] = {}

    def traits(self, model: str, known: ClaudeTraits) -> ClaudeTraits:
        """Return what ``model`` takes; ``known`` is what its name tells."""
        return self._traits.get(model, known)

    def limit(self, model: str, known: int) -> int:
        """Return how many tokens of one answer ``model`` takes."""
        return min(known, self._limits.get(model, known))

    def learn(self, model: str, known: ClaudeTraits, plan: ThinkingPlan, body: bytes) -> str | None:
        """Take note of a refusal.

        Args:
            model: Name of the model.
            known: What its name tells.
            plan: What was asked for.
            body: Of the refusal, as received.

        Returns:
            A sentence for people; ``None``: the refusal is about something else.
        """
        said = read_error(parse_body(body)).message
        too_many = _TOO_MANY.search(said)
        if too_many is not None and 0 < int(too_many[2]) < plan.max_tokens:
            self._limits[model] = int(too_many[2])
            return f"{self._server} takes at most {too_many[2]} tokens of an answer for {model}."
        now = self.traits(model, known)
        words = said.lower()
        if not _UNSUPPORTED.search(words):
            return None
        if plan.effort is not None and "effort" in words and "thinking.type" not in words:
            return self._learn_effort(model, now, plan.effort, words)
        if plan.thinking is not None and "thinking" in words:
            return self._learn_thinking(model, now, plan.thinking, words)
        return None

    def _learn_effort(self, model: str, now: ClaudeTraits, sent: str, words: str) -> str:
        _, _, told = words.partition("supported")
        _, _, told = told.partition(":")
        efforts = tuple(item for item in _EFFORTS if item != sent and re.search(rf"\b{item}\b", told))
        self._traits[model] = replace(now, efforts=efforts)
        instead = f"only {', '.join(efforts)}" if efforts else "none"
        return f"{self._server} does not take the effort {sent} for {model}, {instead}."

    def _learn_thinking(self, model: str, now: ClaudeTraits, sent: dict[str, Any], words: str) -> str | None:
        kind = sent["type"]
        if kind == "disabled":
            changed, told = replace(now, always_thinks=True), "always thinks"
        elif kind == "enabled" and "adaptive" in words:
            efforts = now.efforts or _EFFORTS
            changed = replace(now, thinking="adaptive", efforts=efforts, samples=False)
            told = "thinks as much as it likes; a level is taken as effort"
        elif kind == "adaptive" and "display" in words and now.thinking == "adaptive":
            changed, told = replace(now, thinking="both"), "does not take how thinking is shown"
        elif kind == "adaptive" and now.thinking != "budget":
            changed, told = replace(now, thinking="budget", efforts=()), "thinks by a budget of tokens"
        else:
            changed, told = replace(now, thinking="none", efforts=()), "does not think"
        self._traits[model] = changed
        return f"{model} at {self._server} {told}."
