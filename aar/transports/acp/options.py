"""Mode, model and thinking of a session, as the modes and config options of the protocol."""

from __future__ import annotations

from typing import Any, get_args

from aar.config.schema import PermissionMode
from aar.config.tighten import stricter_mode
from aar.protocol.errors import AarError
from aar.runtime.conversation import Conversation
from aar.runtime.parts import Runtime

MODE, MODEL, THINKING = "mode", "model", "reasoning"
DEFAULT = "default"
_TOLD = {
    "plan": ("Plan", "Reads only; every change is refused."),
    "ask": ("Ask", "Asks before edits and commands."),
    "edit": ("Edit", "Edits unasked, asks before commands that do not build or test."),
    "auto": ("Auto", "Edits and commands run inside the sandbox; asks for what would leave it."),
    "unsafe": ("Unsafe", "No sandbox and hardly a question."),
}


def mode_ids(conversation: Conversation) -> list[str]:
    """Return the modes that can be taken now."""
    runtime = conversation.runtime
    ceiling = runtime.base.loaded.mode_ceiling
    return [
        mode
        for mode in get_args(PermissionMode)
        if (mode != "unsafe" or runtime.mode == "unsafe")
        and (mode != "auto" or runtime.wall() != "none")
        and stricter_mode(mode, ceiling) == mode
    ]


def modes(conversation: Conversation) -> dict[str, Any]:
    """Return ``modes`` of a session."""
    available = [
        {"id": mode, "name": _TOLD[mode][0], "description": _TOLD[mode][1]} for mode in mode_ids(conversation)
    ]
    return {"currentModeId": conversation.mode, "availableModes": available}


def config_options(conversation: Conversation, models: list[str], model: str) -> list[dict[str, Any]]:
    """Return the complete ``configOptions`` of a session.

    Args:
        conversation: The session.
        models: See `known_models`.
        model: The one that answers, or will from the next prompt on.
    """
    options = [
        _select(
            MODE, "Mode", "mode", "What may run without a question.", conversation.mode,
            [(mode, *_TOLD[mode]) for mode in mode_ids(conversation)],
        ),
        _select(
            MODEL, "Model", "model", "Which model answers.", model,
            [(name, name, "") for name in dict.fromkeys((model, *models))],
        ),
    ]  # fmt: skip
    levels = thinking_levels(conversation.runtime)
    if levels:
        now = str(conversation.runtime.reasoning or DEFAULT)
        names = list(dict.fromkeys((DEFAULT, *levels, now)))
        told = [(level, level.capitalize(), "") for level in names]
        options.append(_select(THINKING, "Thinking", "thought_level", "How much it thinks first.", now, told))
    return options


def _select(
    option: str, name: str, category: str, description: str, now: str, values: list[tuple[str, str, str]]
) -> dict[str, Any]:
    return {
        "type": "select",
        "id": option,
        "name": name,
        "category": category,
        "description": description,
        "currentValue": now,
        "options": [
            {"value": value, "name": shown, **({"description": told} if told else {})}
            for value, shown, told in values
        ],
    }


def thinking_levels(runtime: Runtime) -> tuple[str, ...]:
    """Return the levels that make a difference for the model that answers."""
    from aar.providers.catalog_reasoning import reasoning_levels
    from aar.providers.factory import parse_model

    provider, model = parse_model(runtime.active.name)
    return reasoning_levels(provider, model, thinks=True if runtime.active.capabilities.reasoning else None)


def known_models(runtime: Runtime) -> list[str]:
    """Return the models that are named somewhere or have a key here; asks nobody. For a thread."""
    from aar.providers import catalog

    config = runtime.config.model
    named = [runtime.active.name, config.name, config.small, *config.fallback]
    keyed = [
        f"{provider}/{model}"
        for provider, model in catalog.DEFAULT_MODELS.items()
        if _has_key(runtime, provider)
    ]
    return list(dict.fromkeys(name for name in (*named, *keyed) if name))


def _has_key(runtime: Runtime, provider: str) -> bool:
    from aar.providers.keys import find_key
    from aar.providers.presets import PRESETS

    preset = PRESETS.get(provider)
    if preset is None or not preset.hosts:
        return False
    try:
        return find_key(provider, preset.hosts[0], runtime.config) is not None
    except AarError:
        return False
