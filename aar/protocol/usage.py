"""Token usage and cost, in one form for every vendor."""

from pydantic import BaseModel, ConfigDict


class Usage(BaseModel):
    """Tokens of one model request; addable.

    ``input`` excludes what was read from or written to a prompt cache; ``output`` includes reasoning,
    which is also told on its own. ``cache_write`` includes ``cache_write_1h``, the part that is kept for an
    hour and costs more (Anthropic). ``estimated`` marks numbers that aar counted because the server told
    none.
    """

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
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

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            cache_write_1h=self.cache_write_1h + other.cache_write_1h,
            reasoning=self.reasoning + other.reasoning,
            estimated=self.estimated or other.estimated,
        )


class Rates(BaseModel):
    """US dollars per million tokens. A rate for cached tokens that is ``None`` is that of ``input``."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    cache_write_1h: float | None = None

    def _uncached(self, usage: Usage) -> float:
        return (usage.prompt * self.input + usage.output * self.output) / 1_000_000

    def _cost(self, usage: Usage) -> float:
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        hour = write if self.cache_write_1h is None else self.cache_write_1h
        kept = min(usage.cache_write_1h, usage.cache_write)
        total = usage.input * self.input + usage.output * self.output + usage.cache_read * read
        return (total + (usage.cache_write - kept) * write + kept * hour) / 1_000_000


class PriceTier(Rates):
    """Rates for a whole request whose prompt, cached tokens included, has more than ``above`` tokens."""

    above: int

    def cost(self, usage: Usage) -> float:
        """Return the cost of ``usage`` in US dollars at these rates."""
        return self._cost(usage)

    def cache_savings(self, usage: Usage) -> float:
        """Return what the prompt cache spared, in US dollars at these rates."""
        return self._uncached(usage) - self._cost(usage)


class Price(Rates):
    """What a model costs, in US dollars per million tokens. An unknown price is no `Price` at all.

    Attributes:
        tiers: Other rates for long prompts, ascending; the last that applies is for the whole request.
    """

    tiers: tuple[PriceTier, ...] = ()

    def cost(self, usage: Usage) -> float:
        """Return the cost of ``usage`` in US dollars."""
        for tier in reversed(self.tiers):
            if usage.prompt > tier.above:
                return tier.cost(usage)
        return self._cost(usage)

    def cache_savings(self, usage: Usage) -> float:
        """Return what the prompt cache spared, in US dollars; below 0 where writing it cost more."""
        for tier in reversed(self.tiers):
            if usage.prompt > tier.above:
                return tier.cache_savings(usage)
        return self._uncached(usage) - self._cost(usage)
