"""``aar prompt show``: what the model is told before the first word of the user."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from aar.core.tokens import estimate_text, estimate_tools
from aar.transports.cli.groups import NearestGroup
from aar.transports.cli.options import runtime_options


@click.group(cls=NearestGroup)
def prompt() -> None:
    """Show the system prompt."""


@prompt.command()
@click.option("--layers", is_flag=True, help="Show the layers one by one, with source and size.")
@click.option(
    "--system-prompt",
    type=click.Path(),
    metavar="FILE",
    help="Use FILE instead of the built-in instructions.",
)
@runtime_options
def show(layers: bool, **values: Any) -> None:
    """Show the system prompt as the model of this folder would get it."""
    asyncio.run(_show(layers, values))


async def _show(layers: bool, values: dict[str, Any]) -> None:
    from pathlib import Path

    from aar.runtime import open_runtime

    custom = values.pop("system_prompt")
    runtime = open_runtime(**values, system_prompt=Path(custom) if custom else None)
    try:
        tools = runtime.tools()
        built = runtime.prompt(tools)
        if not layers:
            click.echo(built.text)
            return
        for layer in built.layers:
            click.echo(f"--- {layer.name} · {layer.source} · about {estimate_text(layer.text)} tokens")
            click.echo(f"{layer.text}\n")
        native = runtime.active.capabilities.dialect == "native"
        cost = estimate_tools(tools) if native else 0
        names = ", ".join(tool.name for tool in tools)
        click.echo(f"--- tools · {names} · about {cost} tokens of schemas")
        click.echo(
            f"{runtime.active.name} · dialect {runtime.active.capabilities.dialect} · sha256 {built.sha256}"
        )
    finally:
        await runtime.aclose()
