"""``aar sessions``: what is stored, and what can be done with it."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import click

from aar.protocol.errors import UsageError
from aar.protocol.events import (
    AssistantMessage,
    ContextEvent,
    ErrorEvent,
    Event,
    Notice,
    StateEvent,
    ToolCall,
    ToolResult,
    UserMessage,
)
from aar.protocol.messages import TextBlock
from aar.runtime import open_base
from aar.safety.sanitize import sanitize
from aar.tools.builtin.describe import describe_call
from aar.transports.cli.console import Console, demand_yes
from aar.transports.cli.groups import NearestGroup
from aar.transports.cli.sessions_export import export
from aar.transports.cli.sessions_prune import prune
from aar.transports.cli.sessions_replay import replay
from aar.transports.cli.sessions_resample import resample
from aar.transports.cli.sessions_search import search

_RESULT_LINES = 6


@click.group(cls=NearestGroup)
def sessions() -> None:
    """List, find, show, copy, export, replay and delete sessions."""


for _command in (search, export, replay, resample, prune):
    sessions.add_command(_command)


@sessions.command("list")
@click.option("--all", "everywhere", is_flag=True, help="Of all folders, not of this one only.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_sessions(everywhere: bool, as_json: bool) -> None:
    """List the sessions of this folder, the newest first."""
    base = open_base()
    infos = base.store().list(None if everywhere else base.workspace)
    if as_json:
        for info in infos:
            click.echo(json.dumps(_fields(info), ensure_ascii=False))
        return
    if not infos:
        click.echo("There are no sessions here yet." if not everywhere else "There are no sessions yet.")
        return
    rows = [
        (info.id, _when(info.updated), str(info.events), _money(info.cost_usd), info.title or "(untitled)")
        for info in infos
    ]
    Console(sanitize).table(rows, header=("ID", "UPDATED", "EVENTS", "COST", "TITLE"))


@sessions.command()
@click.argument("session_id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="The stored events, one a line.")
@click.option("--tail", type=click.IntRange(min=1), metavar="N", help="The last N events only.")
def show(session_id: str, as_json: bool, tail: int | None) -> None:
    """Show a session. ID may be shortened as long as it is unique."""
    base = open_base()
    store, found = base.store(), base.session_id(session_id)
    events = store.tail(found, tail) if tail is not None else store.read(found)
    for event in events:
        if as_json:
            click.echo(event.to_json())
        else:
            text = describe(event)
            if text:
                click.echo(text)


@sessions.command()
@click.argument("session_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(session_id: str, yes: bool) -> None:
    """Delete a session with everything that was stored for it."""
    base = open_base()
    found = base.session_id(session_id)
    if not yes:
        demand_yes(f"Delete session {found}?")
    base.store().delete(found)
    click.echo(f"Deleted {found}.")


@sessions.command()
@click.argument("session_id", metavar="ID")
@click.argument("title")
def rename(session_id: str, title: str) -> None:
    """Give a session another title."""
    from aar.runtime.sessions import rename_stored

    if not title.strip():
        raise UsageError("TITLE is empty; say what the session shall be called.")
    base = open_base()
    rename_stored(base.store(), base.session_id(session_id), title)


@sessions.command()
@click.argument("session_id", metavar="ID")
@click.option("--at", "seq", type=click.IntRange(min=1), metavar="SEQ", help="Copy up to this event only.")
@click.option("--title", help="Title of the copy.")
def fork(session_id: str, seq: int | None, title: str | None) -> None:
    """Copy a session and print the id of the copy; the original stays as it is."""
    from aar.core.session import Session

    base = open_base()
    session = Session.fork(base.store(), base.session_id(session_id), seq)
    if title is not None:
        session.rename(title)
    session.close()
    click.echo(session.session_id)


def _fields(info: Any) -> dict[str, Any]:
    return {
        "id": info.id,
        "title": info.title,
        "cwd": info.cwd,
        "model": info.model,
        "updated": info.updated,
        "events": info.events,
        "cost_usd": info.cost_usd,
    }


def _when(updated: str) -> str:
    try:
        return datetime.fromisoformat(updated).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return updated


def _money(cost: float | None) -> str:
    return "?" if cost is None else f"${cost:.2f}"


def describe(event: Event) -> str:
    """Return an event as lines for people; empty for what only machines need."""
    match event:
        case UserMessage():
            return f"\n> {_text(event.content)}"
        case AssistantMessage():
            return f"\n{sanitize(event.content.strip())}" if event.content.strip() else ""
        case ContextEvent():
            return f"  [{event.source}] {sanitize(event.label)}"
        case ToolCall():
            return f"  * {sanitize(describe_call(event.tool_name, event.arguments))}"
        case ToolResult():
            lines = sanitize(event.output).splitlines()
            more = [f"… {len(lines) - _RESULT_LINES} more lines"] if len(lines) > _RESULT_LINES else []
            return "\n".join(f"    {line}" for line in [*lines[:_RESULT_LINES], *more])
        case Notice():
            return f"  ! {sanitize(event.message)}"
        case ErrorEvent():
            return f"  ! {event.kind}: {sanitize(event.message)}"
        case StateEvent() if event.stop_reason is not None:
            return f"  ({event.stop_reason})"
        case _:
            return ""


def _text(content: Any) -> str:
    return sanitize("\n".join(block.text for block in content if isinstance(block, TextBlock)).strip())
