"""``aar skills``: what the user and the project have written down for kinds of work."""

from __future__ import annotations

import json

import click

from aar.protocol.errors import NotThereError, ToolFailure
from aar.runtime import open_base
from aar.safety.sanitize import sanitize
from aar.transports.cli.console import Console
from aar.transports.cli.groups import NearestGroup
from aar.transports.cli.options import base_options


@click.group(cls=NearestGroup)
def skills() -> None:
    """List and show skills."""


@skills.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@base_options
def list_(as_json: bool, **options: object) -> None:
    """List the skills of yours and of the project."""
    from aar.runtime.extras import load_skills

    found, problems = load_skills(open_base(**options))  # type: ignore[arg-type] - click gives these
    if as_json:
        for item in found.values():
            fields = {"name": item.name, "description": item.description, "folder": str(item.folder)}
            click.echo(json.dumps(fields, ensure_ascii=False))
    else:
        if not found:
            click.echo("There are no skills here yet; docs/skills.md tells how to write one.")
        rows = [(item.name, str(item.folder), item.description) for item in found.values()]
        Console(sanitize).table(rows, header=("SKILL", "FOLDER", "WHAT IT IS FOR"))
    for problem in problems:
        click.echo(sanitize(problem), err=True)


@skills.command("show")
@click.argument("name")
@base_options
def show(name: str, **options: object) -> None:
    """Show the instructions of one skill."""
    from aar.runtime.extras import load_skills

    found, _ = load_skills(open_base(**options))  # type: ignore[arg-type] - click gives these
    skill = found.get(name)
    if skill is None:
        raise NotThereError(f"There is no skill {name!r}; `aar skills list` shows all.")
    try:
        click.echo(sanitize(f"{skill.folder}\n\n{skill.instructions()}"))
    except ToolFailure as error:
        raise NotThereError(error.message) from error
