"""Prompts that wait for their turn, and words that steer a run that is under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from aar.protocol.messages import ContentBlock, TextBlock

Prompt = tuple[ContentBlock, ...]


def as_prompt(prompt: str | Sequence[ContentBlock]) -> Prompt:
    """Return ``prompt`` as content blocks."""
    return (TextBlock(text=prompt),) if isinstance(prompt, str) else tuple(prompt)


class PromptQueue:
    """Two lines of waiting prompts, below every transport.

    ``steering`` enters the present run at its next safe point (between a step's results and the next
    request); ``prompts`` start runs of their own, one after the other.
    """

    def __init__(self) -> None:
        self._steering: deque[Prompt] = deque()
        self._prompts: deque[Prompt] = deque()

    def steer(self, prompt: str | Sequence[ContentBlock]) -> None:
        """Add words for the present run."""
        self._steering.append(as_prompt(prompt))

    def add(self, prompt: str | Sequence[ContentBlock]) -> None:
        """Add a prompt for a run of its own."""
        self._prompts.append(as_prompt(prompt))

    def take_steering(self) -> list[Prompt]:
        """Remove and return all words for the present run."""
        taken = list(self._steering)
        self._steering.clear()
        return taken

    @property
    def steering(self) -> tuple[Prompt, ...]:
        """The words for the present run that it has not heard yet, oldest first."""
        return tuple(self._steering)

    @property
    def has_steering(self) -> bool:
        """Whether words for the present run wait."""
        return bool(self._steering)

    def next_prompt(self) -> Prompt | None:
        """Remove and return the next prompt; steering that no run took comes first."""
        line = self._steering or self._prompts
        return line.popleft() if line else None

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The waiting prompts, next first."""
        return tuple(self._prompts)

    def replace(self, prompts: Sequence[Prompt]) -> None:
        """Set the waiting prompts, for a screen that lets a person edit and reorder them."""
        self._prompts = deque(prompts)
