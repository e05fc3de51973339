"""``aar prompt``: what the model is told before the first word of the user, and all that it is sent."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click

from aar.core.tokens import estimate_text, estimate_tools
from aar.transports.cli.groups import NearestGroup
from aar.transports.cli.options import runtime_options

if TYPE_CHECKING:
    from aar.core.session import Session
    from aar.runtime.parts import Runtime
    from aar.runtime.sent import Sent


@click.group(cls=NearestGroup)
def prompt() -> None:
    """Show the system prompt, or all that a model is sent."""


@prompt.command()
@click.option("--session", "session_id", metavar="ID", help="Of this session; it may be shortened.")
@click.option(
    "--step",
    "number",
    type=click.IntRange(min=1),
    metavar="N",
    help="What was sent at step N (aar trace --steps lists them); without --session of the newest here.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@runtime_options
def dump(session_id: str | None, number: int | None, as_json: bool, **values: Any) -> None:
    """Show a whole request by section, without known keys: the next one, or one that was sent."""
    if number is None:
        asyncio.run(_dump_next(session_id, as_json, values))
    else:
        _dump_step(session_id, number, as_json, values)


def _dump_step(session_id: str | None, number: int, as_json: bool, values: dict[str, Any]) -> None:
    from aar.runtime import open_base
    from aar.runtime.sent import sent_at

    base = open_base(cwd=values.get("cwd"))
    _print(sent_at(base.store().read(base.session_id(session_id)), number), as_json)


async def _dump_next(session_id: str | None, as_json: bool, values: dict[str, Any]) -> None:
    from aar.runtime import open_runtime
    from aar.runtime.sent import sent_next

    runtime = open_runtime(**values, goes_on={"session_id": session_id})
    try:
        session = _reading(runtime, session_id)
        _print(sent_next(runtime.agent(session), session), as_json)
    finally:
        await runtime.aclose()


def _reading(runtime: Runtime, session_id: str | None) -> Session:
    """Return a copy of the session in memory, so that nothing is written; without one a fresh session."""
    from aar.core.session import Session
    from aar.memory.memory_store import MemoryStore
    from aar.runtime.sessions import find_session

    scratch = MemoryStore()
    if session_id is None:
        session = Session.create(scratch, cwd=runtime.workspace, model=runtime.active.name)
    else:
        found = find_session(runtime.store, session_id)
        file = scratch.create(found, runtime.workspace)
        file.append([event.to_json() for event in runtime.store.read(found)])
        file.close()
        session = Session.resume(scratch, found)
        runtime.go_on_with_model_of(session)
    runtime.store = scratch
    return session


def _print(sent: Sent, as_json: bool) -> None:
    from aar.runtime.sent import dump_text
    from aar.runtime.session_export import redactor
    from aar.safety.sanitize import sanitize

    clean = redactor()
    if as_json:
        click.echo(json.dumps(clean.redact_json(sent.to_dict()), ensure_ascii=False))
        return
    for piece in dump_text(sent, clean.redact):
        click.echo(sanitize(piece))


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
        tools, built = runtime.extras.extensions.shown(runtime.tools(), runtime.prompt)
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
