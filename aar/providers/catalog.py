"""What is known about models by name. The only place where model names stand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from aar.config.schema import Config, ModelSettings
from aar.protocol.errors import ConfigurationError
from aar.protocol.late import late_pattern
from aar.protocol.usage import Price
from aar.providers import catalog_rules as rules
from aar.providers.base import Dialect, ProviderCapabilities
from aar.providers.catalog_rules import is_small
from aar.providers.keys import provider_settings
from aar.providers.prices import FREE, ModelRecord, is_free

GeminiThinking = Literal["none", "level", "coarse_level", "budget", "pro_budget", "unknown"]
"""How a Gemini model is told to think: not at all, by a level (``coarse``: low or high only), or by a number
of tokens (``pro``: it cannot be switched off)."""

DEFAULT_MODELS = {
    "anthropic": "claude-sonnet-4-6",
    "openai": "gpt-5",
    "gemini": "gemini-3.1-pro-preview",
    "ollama": "qwen3-coder",
    "local": "qwen2.5-coder-1.5b",
}
"""The model of a provider that is used when none was named."""

_SMALL_WINDOW = 16_384
_NO_SETTINGS = ModelSettings.model_construct()

_GEMINI_THINKING: tuple[tuple[str, GeminiThinking], ...] = (
    (r"gemini-(?:1|2\.0)|gemma|-image|-tts|embedding|learnlm", "none"),
    (r"gemini-3-pro", "coarse_level"),
    (r"gemini-(?:[3-9]|\d\d)|gemini-(?:pro|flash|flash-lite)-latest", "level"),
    (r"gemini-2\.5-pro", "pro_budget"),
    (r"gemini-2\.5", "budget"),
)


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that is known of a model, and from where.

    Attributes:
        value: ``None``: not known.
        source: ``config``, ``data`` (the package of prices), ``rule`` (the model's name), ``own machine``,
            ``assumed``, or ``unknown``.
    """

    value: Any
    source: str


_UNKNOWN = Figure(None, "unknown")


@dataclass(frozen=True, slots=True)
class Figures:
    """All that is known of a model, each with its source."""

    context_window: Figure
    max_output_tokens: Figure
    images: Figure
    tools: Figure
    reasoning: Figure
    dialect: Figure
    price: Figure


def lookup(
    provider: str,
    model: str,
    config: Config,
    record: ModelRecord | None = None,
    base_url: str | None = None,
) -> ProviderCapabilities:
    """Return what is known about ``model``; the user's settings win.

    Args:
        provider: Name of the provider, not an alias.
        model: Name without the provider's prefix.
        config: For ``[model] dialect`` and ``context_window``, the provider's ``context_window``, and
            ``[providers.NAME.models.MODEL]``.
        record: What the data say, where they were asked.
        base_url: Address of the server where it is not the configured one.
    """
    found = figures(provider, model, config, record, base_url)
    dialect: Dialect = found.dialect.value
    window: int = found.context_window.value
    return ProviderCapabilities(
        context_window=window,
        max_output_tokens=found.max_output_tokens.value,
        tools=dialect == "native" and found.tools.value,
        images=found.images.value,
        text_only=not found.images.value
        and (found.images.source == "config" or rules.takes_no_images(model.lower())),
        reasoning=found.reasoning.value,
        dialect=dialect,
        price=found.price.value,
        compact_prompt=dialect != "native" or window <= _SMALL_WINDOW,
        small=_is_small(provider, model),
        output_schema=_output_schema(provider, model.lower()),
    )


def figures(
    provider: str,
    model: str,
    config: Config,
    record: ModelRecord | None = None,
    base_url: str | None = None,
) -> Figures:
    """Return what `lookup` returns with the source of each figure; arguments as there."""
    name = model.lower()
    settings = provider_settings(provider, config)
    own = settings.models.get(model, _NO_SETTINGS)
    address = base_url or settings.base_url
    trained = _first(("config", own.tools), ("rule", rules.trained_for_tools(name)))
    small = _is_small(provider, name)
    by_name: Dialect = "files" if small else "native" if trained.value else "text"
    asked = config.model.dialect if config.model.dialect != "auto" else None
    return Figures(
        context_window=_first(
            ("config", config.model.context_window),
            ("config", own.context_window),
            ("config", settings.context_window),
            ("data", record.context_window if record is not None else None),
            ("rule", rules.window(name)),
            ("assumed", rules.DEFAULT_WINDOW),
        ),
        max_output_tokens=_first(("config", own.max_output_tokens), ("rule", _output_limit(name))),
        images=_first(("config", own.images), ("rule", rules.takes_images(name))),
        tools=trained,
        reasoning=_first(("config", own.reasoning), ("rule", rules.thinks(name))),
        dialect=_first(("config", asked), ("config", own.dialect), ("rule", by_name)),
        price=_first(
            ("config", own_price(model, own)),
            ("own machine", FREE if is_free(provider, model, address) else None),
            ("data", record.price if record is not None else None),
        ),
    )


def own_price(model: str, settings: ModelSettings) -> Price | None:
    """Return the price that the config tells for a model.

    Raises:
        ConfigurationError: It tells a part of one.
    """
    told = {
        name: value
        for name in ("input", "output", "cache_read", "cache_write", "cache_write_1h")
        if (value := getattr(settings, f"price_{name}")) is not None
    }
    if not told:
        return None
    if "input" not in told or "output" not in told:
        raise ConfigurationError(
            f"The price of {model} in the config needs both price_input and price_output."
        )
    return Price(**told)


def _first(*candidates: tuple[str, Any]) -> Figure:
    return next((Figure(value, source) for source, value in candidates if value is not None), _UNKNOWN)


def _output_limit(name: str) -> int | None:
    return claude_traits(name).output_limit if "claude" in name else rules.output_limit(name)


def _output_schema(provider: str, name: str) -> Literal["none", "alone", "with_tools"]:
    """Tell whether the server holds answers to a JSON Schema: vendors' interfaces with or without tools."""
    if provider in ("openai", "anthropic"):
        return "with_tools" if rules.enforces_schemas(name) else "none"
    return "alone" if provider in ("gemini", "ollama", "local", "vllm", "llamacpp", "lmstudio") else "none"


def _is_small(provider: str, model: str) -> bool:
    return provider == "local" or is_small(model)


def gemini_thinking(model: str) -> GeminiThinking:
    """Tell how a Gemini model takes its reasoning level; ``unknown`` for a name that tells nothing."""
    name = model.lower()
    for pattern, style in _GEMINI_THINKING:
        if re.search(pattern, name):
            return style
    return "unknown"


@dataclass(frozen=True, slots=True)
class ClaudeTraits:
    """How a Claude model is asked.

    Attributes:
        thinking: ``none``; by a ``budget`` of tokens; ``both``: budget or adaptive; ``adaptive`` only.
        efforts: Levels of effort it takes, rising; empty: none.
        output_limit: Tokens of one answer that it takes.
        thinks_unasked: Whether it thinks unless told not to.
        always_thinks: Whether it cannot be told not to.
        samples: Whether it takes a temperature.
    """

    thinking: Literal["none", "budget", "both", "adaptive"] = "budget"
    efforts: tuple[str, ...] = ()
    output_limit: int = 8_192
    thinks_unasked: bool = False
    always_thinks: bool = False
    samples: bool = True


_CLAUDE = late_pattern(r"claude-(?:([a-z]+)-)?(\d)(?:[-.](\d{1,2}))?(?!\d)")
_OLD_CLAUDES: tuple[tuple[tuple[int, int], Literal["none", "budget"], int], ...] = (
    ((3, 7), "budget", 64_000),
    ((3, 5), "none", 8_192),
    ((0, 0), "none", 4_096),
)


def _version(match: re.Match[str] | None) -> tuple[int, int]:
    return (int(match.group(2)), int(match.group(3) or 0)) if match else (5, 0)


def claude_traits(model: str) -> ClaudeTraits:
    """Tell how ``model`` is asked by its family and version, however a cloud spells it.

    A name that tells nothing is taken for a server that speaks Claude's wire and has a model of its own.
    """
    name = model.lower()
    always = re.search(r"claude-(?:fable|mythos)", name) is not None
    match = _CLAUDE.search(name)
    if match is None and not always:
        return ClaudeTraits()
    family = match.group(1) if match else None
    version = _version(match)
    if version < (4, 0):
        limits = next(item for item in _OLD_CLAUDES if version >= item[0])
        return ClaudeTraits(thinking=limits[1], output_limit=limits[2])
    if version < (4, 6):
        return ClaudeTraits(output_limit=32_000 if family == "opus" and version < (4, 5) else 64_000)
    if version < (4, 7):
        return ClaudeTraits("both", ("low", "medium", "high", "max"), 128_000 if family == "opus" else 64_000)
    return ClaudeTraits(
        thinking="adaptive",
        efforts=("low", "medium", "high", "xhigh", "max"),
        output_limit=128_000,
        thinks_unasked=version >= (5, 0),
        always_thinks=always,
        samples=False,
    )


def pick_installed(names: Sequence[str]) -> str | None:
    """Return the most fitting of the models that a local server has: coders first, then larger ones."""
    usable = [name for name in names if "embed" not in name.lower() and "rerank" not in name.lower()]
    return max(usable, key=_fitness, default=None)


def _fitness(name: str) -> tuple[bool, bool, float]:
    lower = name.lower()
    size = rules.billions(lower)
    capable = rules.trained_for_tools(lower) and not is_small(lower)
    return (capable, "cod" in lower, 7.0 if size is None else size)
