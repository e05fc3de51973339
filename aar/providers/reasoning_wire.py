"""What a reasoning level becomes on the wire of each vendor, told by the code that sends it."""

from __future__ import annotations

from typing import Any

from aar.providers import catalog
from aar.providers.catalog_reasoning import reasoning_levels
from aar.providers.presets import PRESETS


def reasoning_fields(provider: str, model: str, level: str | int) -> dict[str, Any]:
    """Return the fields of a request that ask ``model`` for ``level``; empty: nothing is asked.

    A server may refuse some of them; then aar learns it and asks for the nearest that it takes.
    """
    preset = PRESETS.get(provider)
    kind = preset.kind if preset is not None else "chat"
    if kind == "anthropic":
        return _claude(model, level)
    if kind == "gemini":
        from aar.providers.gemini.thinking import thinking_config

        told = thinking_config(catalog.gemini_thinking(model), level)
        return {"thinkingConfig": told} if told else {}
    if kind == "ollama":
        from aar.providers.ollama.encode import think_value

        return {"think": think_value(model, level)}
    if kind in {"local", "scripted"}:
        return {}
    from aar.providers.chat_completions.encode import WireOptions, chat_reasoning, effort_of

    if provider == "openai":
        return {"reasoning": {"effort": effort_of(level, "max")}}
    if preset is None:
        return chat_reasoning(WireOptions(provider), level)
    options = WireOptions(provider, reasoning=preset.reasoning, top_effort=preset.top_effort)
    return chat_reasoning(options, level)


def _claude(model: str, level: str | int) -> dict[str, Any]:
    from aar.providers.anthropic.thinking import plan_thinking

    traits = catalog.claude_traits(model)
    plan = plan_thinking(level, traits, asked_tokens=None, limit=traits.output_limit)
    fields: dict[str, Any] = {} if plan.thinking is None else {"thinking": plan.thinking}
    return fields if plan.effort is None else {**fields, "output_config": {"effort": plan.effort}}


def reasoning_map(provider: str, model: str, *, thinks: bool | None = None) -> dict[str, dict[str, Any]]:
    """Return the fields for each level that makes a difference."""
    levels = reasoning_levels(provider, model, thinks=thinks)
    return {level: reasoning_fields(provider, model, level) for level in levels}
