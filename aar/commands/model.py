"""Which model answers, and how much it thinks first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aar.commands.base import (
    Choice,
    ChoiceItem,
    Command,
    Context,
    Failure,
    Result,
    Text,
    need_idle,
    starting_with,
)

_DEFAULT = "default"


async def _model(context: Context, argument: str) -> Result:
    """Show the models to choose from, or take one."""
    from aar.runtime.model_names import doubt

    runtime = context.runtime
    if not argument:
        return await asyncio.to_thread(_models, context)
    need_idle(context)
    name = argument if "/" in argument else _by_short_name(context, argument)
    if name is None:
        known = ", ".join(_names(context))
        return Failure(f"Write a model as PROVIDER/MODEL; {argument!r} is none of those known here: {known}.")
    if name == runtime.active.name:
        return Text(f"{name} answers already.")
    context.conversation.set_model(name)
    window = runtime.active.capabilities.context_window
    unsure = await asyncio.to_thread(doubt, runtime.base, name)
    told = f"{name} answers from now on ({window:,} tokens of context)."
    return Text(f"{told}\n\n{unsure}" if unsure else told)


def _names(context: Context) -> list[str]:
    """Return the models that are named somewhere, without asking anybody."""
    from aar.providers import catalog

    config = context.runtime.config.model
    listed = [context.runtime.active.name, config.name, config.small, *config.fallback]
    listed += [f"{provider}/{model}" for provider, model in catalog.DEFAULT_MODELS.items()]
    return list(dict.fromkeys(name for name in listed if name))


def _by_short_name(context: Context, short: str) -> str | None:
    names = _names(context)
    exact = [name for name in names if name.partition("/")[2] == short]
    near = exact or [name for name in names if short.lower() in name.lower()]
    return near[0] if len(near) == 1 or exact else None


def _models(context: Context) -> Choice:
    now = context.runtime.active.name
    items = tuple(
        ChoiceItem(name, f"/model {name}", _detail(context, name), name == now) for name in _names(context)
    )
    return Choice("Which model answers?", items, "Any other: /model PROVIDER/MODEL; `aar models list --all`.")


def _detail(context: Context, name: str) -> str:
    """Return window, price and levels of a model as far as they are known, in a few words."""
    from aar.protocol.errors import AarError
    from aar.providers import catalog
    from aar.providers.catalog_reasoning import reasoning_levels
    from aar.providers.factory import parse_model
    from aar.runtime.model_data import look_up

    base = context.runtime.base
    try:
        provider, model = parse_model(name)
        record = look_up(base, provider, model)
        price = catalog.figures(provider, model, base.config, record).price.value
        active = context.runtime.active
        known = active.capabilities if name == active.name else catalog.lookup(provider, model, base.config)
    except AarError as error:
        return str(error)
    told = "price unknown"
    if price is not None:
        told = f"${price.input:g} / ${price.output:g} per million" if price.input or price.output else "free"
    levels = reasoning_levels(provider, model)
    return " · ".join(part for part in (f"{known.context_window:,} tokens", told, " ".join(levels)) if part)


def _levels(context: Context) -> tuple[str, ...]:
    from aar.providers.catalog_reasoning import reasoning_levels
    from aar.providers.factory import parse_model

    provider, model = parse_model(context.runtime.active.name)
    thinks = True if context.runtime.active.capabilities.reasoning else None
    return reasoning_levels(provider, model, thinks=thinks)


async def _think(context: Context, argument: str) -> Result:
    """Show the levels, or set one."""
    levels, now = _levels(context), context.runtime.reasoning
    name = context.runtime.active.name
    if not argument:
        if not levels:
            return Text(f"{name} does not think before it answers.")
        items = tuple(
            ChoiceItem(level, f"/think {level}", current=level == str(now or _DEFAULT))
            for level in (_DEFAULT, *levels)
        )
        return Choice(f"How much should {name} think first?", items, "A number is a budget in tokens.")
    level: str | int | None = None if argument == _DEFAULT else argument
    if argument.replace(",", "").replace("_", "").isdigit():
        level = int(argument.replace(",", "").replace("_", ""))
    elif level is not None and level not in levels:
        if not levels:
            return Failure(f"{name} does not think before it answers: there is no level to choose.")
        return Failure(f"{name} takes one of {', '.join((_DEFAULT, *levels))}, or a number of tokens.")
    context.conversation.set_reasoning(level)
    return Text(f"Thinking: {argument}, from the next run on.")


def _complete_model(context: Context, text: str) -> Sequence[str]:
    return starting_with(_names(context), text)


def _complete_think(context: Context, text: str) -> Sequence[str]:
    return starting_with((_DEFAULT, *_levels(context)), text)


def commands() -> list[Command]:
    """Return the commands of this family."""
    return [
        Command("model", "Choose the model that answers.", _model, usage="[PROVIDER/MODEL]", group="model",
                aliases=("models",), complete=_complete_model, example="/model ollama/qwen3-coder"),
        Command("think", "Set how much the model thinks before it answers.", _think,
                usage="[LEVEL | TOKENS]", group="model", aliases=("effort",), complete=_complete_think,
                example="/think high"),
    ]  # fmt: skip
