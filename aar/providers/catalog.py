"""What is known about models by name. The only place where model names stand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from aar.config.schema import Config
from aar.protocol.usage import Price
from aar.providers.base import Dialect, ProviderCapabilities

DEFAULT_MODELS = {
    "anthropic": "claude-sonnet-4-6",
    "openai": "gpt-5",
    "gemini": "gemini-3-pro-preview",
    "ollama": "qwen3-coder",
    "local": "qwen2.5-coder-1.5b",
}
"""The model of a provider that is used when none was named."""

_SMALL_BILLIONS = 3.0
_SMALL_WINDOW = 16_384
_FREE = Price(input=0, output=0, cache_read=0, cache_write=0)

_WINDOWS: tuple[tuple[str, int], ...] = (
    (r"claude", 200_000),
    (r"gemini-(?:[2-9]|\d\d)", 1_048_576),
    (r"gpt-4\.1", 1_047_576),
    (r"gpt-5", 400_000),
    (r"gpt-4-turbo|gpt-4o|chatgpt", 128_000),
    (r"gpt-4", 8_192),
    (r"gpt-3\.5", 16_385),
    (r"(?:^|/)o[134](?:-|$)", 200_000),
    (r"grok-4|grok-code", 256_000),
    (r"qwen3-coder|kimi-k2", 262_144),
    (r"qwen2\.5-coder", 32_768),
)
_DEFAULT_WINDOW = 128_000

_NO_TOOLS = re.compile(
    r"gemma-?[123](?!\d)|codegemma|phi-?[23](?!\d)|codellama|code-llama|starcoder|llama-?2(?!\d)"
    r"|deepseek-coder(?!-v2\.5)|wizardcoder|vicuna|tinyllama|(?:^|[/-])o1-mini|gpt-3\.5-turbo-instruct"
)
_IMAGES = re.compile(
    r"claude|gemini|gpt-4o|gpt-4\.1|gpt-4-turbo|gpt-5|(?:^|/)o[134](?:-pro)?$|llava|pixtral|[-/.]vl\b|vision"
    r"|gemma-?3|llama-?4|grok-4"
)
_THINKS = re.compile(
    r"claude-(?:sonnet|opus|haiku)-[4-9]|claude-3-7|gemini-(?:2\.5|[3-9])|gpt-5|gpt-oss|(?:^|/)o[134](?:-|$)"
    r"|deepseek-(?:r1|reasoner|v[4-9])|qwen3|qwq|magistral|grok-(?:4|3-mini)|kimi-k2-thinking|glm-[45]|thinking"
)
_SIZE = re.compile(r"(?<![a-z\d.])(\d+(?:\.\d+)?)(b|m)(?![a-z\d])")
_SMALL_BY_DEFAULT = re.compile(r"^(?:llama3\.2|smollm2?|tinyllama)(?::latest)?$")


def lookup(provider: str, model: str, config: Config) -> ProviderCapabilities:
    """Return what is known about ``model``; the user's ``[model]`` settings win.

    Args:
        provider: Name of the provider, not an alias.
        model: Name without the provider's prefix.
        config: For ``[model] dialect`` and ``context_window``, and the provider's ``context_window``.
    """
    name = model.lower()
    small = provider == "local" or is_small(name)
    dialect: Dialect = "files" if small else "text" if _NO_TOOLS.search(name) else "native"
    if config.model.dialect != "auto":
        dialect = config.model.dialect
    settings = config.providers.get(provider)
    allotted = settings.context_window if settings is not None else None
    window = config.model.context_window or allotted or _window(name)
    return ProviderCapabilities(
        context_window=window,
        tools=dialect == "native",
        images=_IMAGES.search(name) is not None,
        reasoning=_THINKS.search(name) is not None,
        dialect=dialect,
        price=_FREE if provider == "local" else None,
        compact_prompt=dialect != "native" or window <= _SMALL_WINDOW,
    )


def is_small(model: str) -> bool:
    """Tell whether ``model`` is by its name too small for tool calls: 3 billion weights or less."""
    name = model.lower()
    if _SMALL_BY_DEFAULT.match(name):
        return True
    sizes = [float(number) / (1000 if unit == "m" else 1) for number, unit in _SIZE.findall(name)]
    return bool(sizes) and max(sizes) <= _SMALL_BILLIONS


def with_price(capabilities: ProviderCapabilities, price: Price | None) -> ProviderCapabilities:
    """Return ``capabilities`` with another price."""
    return replace(capabilities, price=price)


def pick_installed(names: Sequence[str]) -> str | None:
    """Return the most fitting of the models that a local server has: coders first, then larger ones."""
    usable = [name for name in names if "embed" not in name.lower() and "rerank" not in name.lower()]
    return max(usable, key=_fitness, default=None)


def _fitness(name: str) -> tuple[bool, bool, float]:
    lower = name.lower()
    sizes = [float(number) / (1000 if unit == "m" else 1) for number, unit in _SIZE.findall(lower)]
    return (_NO_TOOLS.search(lower) is None and not is_small(lower), "cod" in lower, max(sizes, default=7.0))


def _window(name: str) -> int:
    return next((size for pattern, size in _WINDOWS if re.search(pattern, name)), _DEFAULT_WINDOW)
