"""``aar agents``: who can work."""

from __future__ import annotations

import json

import click

from aar.protocol.errors import NotThereError
from aar.runtime import open_base
from aar.safety.sanitize import sanitize
from aar.transports.cli.console import Console
from aar.transports.cli.groups import NearestGroup
from aar.transports.cli.options import base_options


@click.group(cls=NearestGroup)
def agents() -> None:
    """List and show agents."""


@agents.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@base_options
def list_(as_json: bool, **options: object) -> None:
    """List the agents that come with aar, yours and the project's."""
    from aar.runtime.extras import load_profiles

    profiles, problems = load_profiles(open_base(**options))  # type: ignore[arg-type] - click gives these
    if as_json:
        for item in profiles.values():
            fields = {
                "name": item.name,
                "description": item.description,
                "source": item.source,
                "tools": item.tools,
                "model": item.model,
                "mode": item.mode,
                "max_steps": item.max_steps,
            }
            click.echo(json.dumps(fields, ensure_ascii=False))
    else:
        rows = [(item.name, item.source, item.description) for item in profiles.values()]
        Console(sanitize).table(rows, header=("AGENT", "FROM", "WHAT IT IS FOR"))
    for problem in problems:
        click.echo(sanitize(problem), err=True)


@agents.command("show")
@click.argument("name")
@base_options
def show(name: str, **options: object) -> None:
    """Show the instructions and settings of one agent."""
    from aar.runtime.extras import load_profiles

    profiles, _ = load_profiles(open_base(**options))  # type: ignore[arg-type] - click gives these
    item = profiles.get(name)
    if item is None:
        raise NotThereError(f"There is no agent {name!r}; `aar agents list` shows all.")
    facts = [
        ("from", item.source),
        ("tools", "all of its caller" if item.tools is None else ", ".join(item.tools)),
        ("without", ", ".join(item.without)),
        ("model", item.model or "that of its caller"),
        ("mode", item.mode or "that of its caller"),
        ("works in", "a git work tree of its own" if item.worktree else ""),
        ("max_steps", str(item.max_steps or "")),
        ("advisors", ", ".join(item.advisors)),
        ("critic", "" if item.critic is None else "yes" if item.critic else "no"),
        ("gives work only to", ", ".join(item.handoff)),
        ("not acted on", ", ".join(item.unused)),
    ]
    for label, value in facts:
        if value:
            click.echo(sanitize(f"{label}: {value}"))
    click.echo(sanitize(f"\n{item.description}\n\n{item.prompt}"))
