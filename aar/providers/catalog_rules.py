"""What the names of models tell: rules for families, for what no data source says and for the first moments.

They cost no import and are never too hopeful: where the data of the catalogue knows more, it wins.
"""

from __future__ import annotations

import re
from typing import Final

from aar.protocol.late import late_pattern

Rules = tuple[tuple[str, int], ...]

DEFAULT_WINDOW: Final = 128_000
"""Tokens, for a model of which nothing is known."""

_WINDOWS: Final[Rules] = (
    (r"claude-(?:opus|sonnet)-4[.-][6-9]|claude-(?:opus|sonnet|haiku|fable|mythos)-[5-9]", 1_000_000),
    (r"claude", 200_000),
    (r"gemini-(?:1\.5|2\.[05]|[3-9]|\d\d)", 1_000_000),
    (r"gpt-5\.4(?!-(?:mini|nano))|gpt-5\.[5-9]|gpt-[6-9]", 1_000_000),
    (r"gpt-5[\d.]*-chat|gpt-5\.3(?!-codex)", 128_000),
    (r"gpt-4\.1", 1_000_000),
    (r"gpt-5", 400_000),
    (r"gpt-4-turbo|gpt-4o|chatgpt", 128_000),
    (r"gpt-4-32k", 32_000),
    (r"gpt-4", 8_192),
    (r"gpt-3\.5", 16_385),
    (r"gpt-oss", 131_072),
    (r"(?:^|/)o1-(?:mini|preview)", 128_000),
    (r"(?:^|/)o[134](?:-|$)|codex-mini", 200_000),
    (r"grok-4[.-](?:1-)?fast", 2_000_000),
    (r"grok-4\.[23]", 1_000_000),
    (r"grok-4\.[4-9]", 500_000),
    (r"grok-4|grok-code|grok-build", 256_000),
    (r"grok-3", 131_072),
    (r"deepseek-(?:v[4-9]|flash)", 1_000_000),
    (r"deepseek-(?:chat|reasoner)", 64_000),
    (r"qwen3-coder|kimi-k2", 262_144),
    (r"qwen2\.5-coder", 32_768),
)
_OUTPUTS: Final[Rules] = (
    (r"gemini-(?:2\.5|[3-9]|\d\d)", 65_536),
    (r"gemini", 8_192),
    (r"gpt-5[\d.]*-chat", 16_384),
    (r"gpt-[5-9]", 128_000),
    (r"gpt-4\.1", 32_768),
    (r"gpt-4o|chatgpt", 16_384),
    (r"gpt-4-turbo|gpt-3\.5", 4_096),
    (r"(?:^|/)o1-mini", 65_536),
    (r"(?:^|/)o1-preview", 32_768),
    (r"(?:^|/)o[134](?:-|$)|codex-mini", 100_000),
    (r"deepseek-reasoner", 64_000),
    (r"deepseek-chat", 8_192),
)
_FAMILIES: Final = (
    "claude", "gemini", "gpt", "o1", "o3", "o4", "codex", "grok", "deepseek", "qwen", "kimi",
)  # fmt: skip
"""One of these stands in each name that a rule above fits."""

_NO_TOOLS = late_pattern(
    r"gemma-?[123](?!\d)|codegemma|phi-?[23](?!\d)|codellama|code-llama|starcoder|llama-?2(?!\d)"
    r"|deepseek-coder(?!-v2\.5)|wizardcoder|vicuna|tinyllama|(?:^|[/-])o1-mini|gpt-3\.5-turbo-instruct"
)
_IMAGES = late_pattern(
    r"claude-(?!v?[12](?!\d)|instant|3-5-haiku)|gemini|gpt-4o|gpt-4\.1|gpt-4-turbo|gpt-[5-9]"
    r"|(?:^|/)o(?:1|3|4-mini)(?:-pro)?(?:-\d{4}|$)|llava|pixtral|[-/.]vl\b|vision|gemma-?[34]|llama-?4|grok-4"
)
_TEXT_ONLY = late_pattern(
    r"(?:^|/)gpt-3\.5|gpt-oss|(?:^|/)o(?:1|3)-mini|(?:^|/)o1-preview|deepseek-(?:chat|reasoner|coder|r1|v[23])|codestral"
    r"|qwen(?:2\.5|3)-coder|qwq|codellama|starcoder|devstral-(?:small|medium)-(?:2505|2507)|kimi-k2(?!\.)"
    r"|(?:^|/)glm-4\.[567](?!v)|llama-?3(?:\.[13])?[-:](?!.*vision)"
)
_THINKS = late_pattern(
    r"claude-(?:sonnet|opus|haiku|fable|mythos)-[4-9]|claude-3[.-]7|gemini-(?:2\.5|[3-9]|\d\d)|gpt-[5-9](?![\d.]*-chat)"
    r"|gpt-oss|(?:^|/)o[134](?:-|$)|codex-mini|deepseek-(?:r1|reasoner|v[4-9]|flash)|qwen3(?!-coder)|qwq"
    r"|magistral|grok-(?:4|3-mini|code|build)(?!.*non-reasoning)|kimi-k2-thinking|kimi-k[3-9]|glm-[45]|thinking"
)
_SCHEMAS = late_pattern(
    r"gpt-4o(?!-2024-05)|gpt-4\.1|gpt-[5-9]|(?:^|/)o[134](?:-|$)(?!mini-2024|preview)"
    r"|claude-(?:opus|sonnet|haiku)-4[.-][5-9]|claude-(?:opus|sonnet|haiku|fable|mythos)-[5-9]"
)
_SIZE = late_pattern(r"(?<![a-z\d.])(\d+(?:\.\d+)?)(b|m)(?![a-z\d])")
_SMALL_BILLIONS = 3.0
_SMALL_BY_DEFAULT = late_pattern(r"^(?:llama3\.2|smollm2?|tinyllama)(?::latest)?$")


def window(name: str) -> int | None:
    """Return the tokens that fit, by the model's name in lower case; ``None``: no rule fits."""
    return _first(_WINDOWS, name)


def output_limit(name: str) -> int | None:
    """Return the tokens of one answer at most; ``None``: no rule fits."""
    return _first(_OUTPUTS, name)


def trained_for_tools(name: str) -> bool:
    """Tell whether the model was trained for tool calls."""
    return _NO_TOOLS.search(name) is None


def takes_images(name: str) -> bool:
    """Tell whether the model is known to take images."""
    return _IMAGES.search(name) is not None


def takes_no_images(name: str) -> bool:
    """Tell whether the model is known to read text only; of most models neither is known."""
    return _TEXT_ONLY.search(name) is not None and not takes_images(name)


def thinks(name: str) -> bool:
    """Tell whether the model is known to think first."""
    return _THINKS.search(name) is not None


def enforces_schemas(name: str) -> bool:
    """Tell whether OpenAI's or Anthropic's servers hold the answers of this model to a JSON Schema."""
    return _SCHEMAS.search(name) is not None


def billions(name: str) -> float | None:
    """Return the number of weights that the name tells, in billions."""
    sizes = [float(number) / (1000 if unit == "m" else 1) for number, unit in _SIZE.findall(name)]
    return max(sizes, default=None)


def is_small(model: str) -> bool:
    """Tell whether ``model`` is by its name too small for tool calls: 3 billion weights or less."""
    name = model.lower()
    size = billions(name)
    return _SMALL_BY_DEFAULT.match(name) is not None or (size is not None and size <= _SMALL_BILLIONS)


def _first(rules: Rules, name: str) -> int | None:
    # The name of an unknown model would have all of them compiled, for nothing.
    if not any(family in name for family in _FAMILIES):
        return None
    return next((value for pattern, value in rules if re.search(pattern, name)), None)
