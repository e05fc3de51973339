"""Token usage and cost, in one form for every vendor."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Usage(BaseModel):
    """Tokens of one model request; addable.

    ``input`` excludes what was read from or written to a prompt cache; ``output`` includes reasoning,
    which is also told on its own. ``estimated`` marks numbers that aar counted because the server told none.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    estimated: bool = False

    @property
    def total(self) -> int:
        """All tokens, cached ones included."""
        return self.input + self.output + self.cache_read + self.cache_write

    @property
    def prompt(self) -> int:
        """All tokens of the prompt, cached ones included."""
        return self.input + self.cache_read + self.cache_write

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            reasoning=self.reasoning + other.reasoning,
            estimated=self.estimated or other.estimated,
        )


class Price(BaseModel):
    """US dollars per million tokens. ``None`` means: not known."""

    model_config = ConfigDict(frozen=True)

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def cost(self, usage: Usage) -> float:
        """Return the cost of ``usage`` in US dollars; cache tokens without a price count as input."""
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        total = usage.input * self.input + usage.output * self.output
        return (total + usage.cache_read * read + usage.cache_write * write) / 1_000_000
