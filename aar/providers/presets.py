"""Servers known by name: where they are, which key is theirs, and what their dialect of the wire needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from aar.providers.chat_completions.encode import ReasoningStyle

Kind = Literal["chat", "anthropic", "gemini", "ollama", "local", "scripted"]


@dataclass(frozen=True, slots=True)
class Preset:
    """One provider name.

    Attributes:
        name: As in ``name/model``.
        kind: What speaks to it: chat completions, Ollama's wire, another vendor's, or one of aar's own.
        base_url: Where it is; ``None``: the user must say.
        key_names: Environment variables with its key, the first that is set wins.
        hosts: The vendor's own hosts (and their subdomains), to which alone its key goes.
        max_tokens_field: Field that limits the answer.
        reasoning: How it is told to think.
        cache_key: Whether it takes ``prompt_cache_key``.
        short_ids: Whether ids of tool calls must be nine letters and digits.
        top_effort: What the reasoning level ``max`` is called.
        stream_options: Whether usage in a stream is to be asked for; Mistral tells it unasked.
        fill_reasoning: Whether earlier tool calls must come with ``reasoning_content``, be it empty.
        bridge_tools: Whether an answer must stand between a tool's result and what the user says.
        cache_marks: Whether prompts of Claude models are cached only when that is asked for.
    """

    name: str
    kind: Kind = "chat"
    base_url: str | None = None
    key_names: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    max_tokens_field: str = "max_tokens"
    reasoning: ReasoningStyle = "effort"
    cache_key: bool = False
    short_ids: bool = False
    top_effort: str = "high"
    stream_options: bool = True
    fill_reasoning: bool = False
    bridge_tools: bool = False
    cache_marks: bool = False


_ALL = (
    Preset("openai-compatible"),
    Preset("scripted", "scripted"),
    Preset("local", "local"),
    Preset("anthropic", "anthropic", None, ("ANTHROPIC_API_KEY",), ("api.anthropic.com",)),
    Preset(
        "gemini",
        "gemini",
        base_url="https://generativelanguage.googleapis.com",
        key_names=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        hosts=("generativelanguage.googleapis.com", "aiplatform.googleapis.com"),
    ),
    Preset(
        "openai",
        base_url="https://api.openai.com/v1",
        key_names=("OPENAI_API_KEY",),
        hosts=("api.openai.com",),
        max_tokens_field="max_completion_tokens",
        cache_key=True,
    ),
    Preset(
        "ollama",
        "ollama",
        base_url="http://127.0.0.1:11434",
        key_names=("OLLAMA_API_KEY",),
        hosts=("ollama.com",),
    ),
    Preset(
        "openrouter",
        base_url="https://openrouter.ai/api/v1",
        key_names=("OPENROUTER_API_KEY",),
        hosts=("openrouter.ai",),
        reasoning="openrouter",
        top_effort="xhigh",
        cache_marks=True,
    ),
    Preset(
        "deepseek",
        base_url="https://api.deepseek.com",
        key_names=("DEEPSEEK_API_KEY",),
        hosts=("api.deepseek.com",),
        reasoning="thinking_effort",
        top_effort="max",
        fill_reasoning=True,
    ),
    Preset(
        "groq",
        base_url="https://api.groq.com/openai/v1",
        key_names=("GROQ_API_KEY",),
        hosts=("api.groq.com",),
        max_tokens_field="max_completion_tokens",
    ),
    Preset(
        "mistral",
        base_url="https://api.mistral.ai/v1",
        key_names=("MISTRAL_API_KEY",),
        hosts=("api.mistral.ai",),
        short_ids=True,
        stream_options=False,
        bridge_tools=True,
    ),
    Preset(
        "moonshot",
        base_url="https://api.moonshot.ai/v1",
        key_names=("MOONSHOT_API_KEY",),
        hosts=("api.moonshot.ai", "api.moonshot.cn"),
        reasoning="thinking",
        fill_reasoning=True,
    ),
    Preset(
        "zai",
        base_url="https://api.z.ai/api/paas/v4",
        key_names=("ZAI_API_KEY",),
        hosts=("api.z.ai",),
        reasoning="thinking",
    ),
    Preset(
        "cerebras",
        base_url="https://api.cerebras.ai/v1",
        key_names=("CEREBRAS_API_KEY",),
        hosts=("api.cerebras.ai",),
        max_tokens_field="max_completion_tokens",
    ),
    Preset("xai", base_url="https://api.x.ai/v1", key_names=("XAI_API_KEY",), hosts=("api.x.ai",)),
    Preset(
        "together",
        base_url="https://api.together.xyz/v1",
        key_names=("TOGETHER_API_KEY",),
        hosts=("api.together.xyz", "api.together.ai"),
    ),
    Preset(
        "fireworks",
        base_url="https://api.fireworks.ai/inference/v1",
        key_names=("FIREWORKS_API_KEY",),
        hosts=("api.fireworks.ai",),
    ),
    Preset("vllm", base_url="http://127.0.0.1:8000/v1", key_names=("VLLM_API_KEY",), reasoning="template"),
    Preset("lmstudio", base_url="http://127.0.0.1:1234/v1"),
    Preset(
        "llamacpp", base_url="http://127.0.0.1:8080/v1", key_names=("LLAMA_API_KEY",), reasoning="template"
    ),
)

PRESETS = {preset.name: preset for preset in _ALL}
"""All provider names that aar knows."""

ALIASES = {
    "generic": "openai-compatible",
    "lm-studio": "lmstudio",
    "llama.cpp": "llamacpp",
    "llama-cpp": "llamacpp",
    "x-ai": "xai",
    "kimi": "moonshot",
    "z-ai": "zai",
    "google": "gemini",
}
"""Other spellings of provider names."""
