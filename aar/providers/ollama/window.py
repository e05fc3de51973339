"""How much context an Ollama is told to allot (``num_ctx``), so that it never cuts a prompt silently.

A change of ``num_ctx`` makes Ollama load the model again, and memory grows with it. So it grows in steps,
with room to spare, and never shrinks.
"""

from __future__ import annotations

from dataclasses import dataclass

from aar.providers.chat_completions.encode import EncodedRequest
from aar.providers.ollama.facts import ModelFacts

FIRST_STEP = 8_192
"""The least that is allotted: a system prompt with tools and a few files."""

_BYTES_PER_TOKEN = 3.0
_SURE_BYTES_PER_TOKEN = 7.0
_IMAGE_TOKENS = 1_600
_ANSWER_TOKENS = 4_096


@dataclass(frozen=True, slots=True)
class Allotment:
    """What is allotted for one request.

    Attributes:
        num_ctx: Tokens for prompt and answer.
        estimate: Tokens that the prompt is thought to have, on the high side.
        limit: The most that may be allotted; ``None``: not known.
        hopeless: Whether the prompt is longer than the limit by any count.
    """

    num_ctx: int
    estimate: int
    limit: int | None
    hopeless: bool

    @property
    def tight(self) -> bool:
        """Whether the prompt may be longer than what can be allotted."""
        return self.limit is not None and self.estimate > self.limit


class ContextWindow:
    """The context of one model on one server.

    Args:
        facts: What the server tells of the model.
        configured: The most that the user allots; wins over the model's own length.
        fixed: ``num_ctx`` as the user wrote it into ``extra``; then nothing grows.
    """

    def __init__(self, facts: ModelFacts, configured: int | None, fixed: int | None = None) -> None:
        self._facts = facts
        self._configured = configured
        self._fixed = fixed
        self._scale = 1.0
        self._allotted = max(FIRST_STEP, facts.own_num_ctx or 0)

    def update(self, facts: ModelFacts) -> None:
        """Take what the server tells of the model by now."""
        self._facts = facts
        self._allotted = max(self._allotted, facts.own_num_ctx or 0)

    @property
    def limit(self) -> int | None:
        """The most that may be allotted."""
        return self._fixed or self._configured or self._facts.context_length

    def allot(self, encoded: EncodedRequest, max_output_tokens: int | None) -> Allotment:
        """Return what ``encoded`` needs; it is at least what was allotted before."""
        size = len(encoded.body) - encoded.images.size
        images = encoded.images.count * _IMAGE_TOKENS
        estimate = int(size / _BYTES_PER_TOKEN * self._scale) + images
        limit = self.limit
        room = max_output_tokens or _ANSWER_TOKENS
        while self._allotted < estimate + room:
            self._allotted *= 2
        num_ctx = self._fixed or (min(self._allotted, limit) if limit is not None else self._allotted)
        hopeless = limit is not None and size / _SURE_BYTES_PER_TOKEN > limit
        return Allotment(num_ctx, estimate, limit, hopeless)

    def grow(self, allotment: Allotment) -> bool:
        """Take note that ``allotment`` was too small; return whether more can be allotted."""
        if self._fixed is not None or (self.limit is not None and allotment.num_ctx >= self.limit):
            return False
        if self.limit is None and allotment.num_ctx > 1_000_000:
            return False
        self._allotted = max(self._allotted, allotment.num_ctx * 2)
        return True

    def learn(self, allotment: Allotment, told: int) -> None:
        """Take note of how many tokens a prompt really had; only more than estimated changes anything."""
        if told > allotment.estimate > 0:
            self._scale = min(4.0, self._scale * told / allotment.estimate)
