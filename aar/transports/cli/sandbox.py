"""``aar sandbox``: which wall holds here, and a command inside it."""

from __future__ import annotations

import asyncio
import json
import sys

import click

from aar.protocol.ports import SpawnRequest
from aar.protocol.state import ExitCode
from aar.runtime import open_base
from aar.safety.spawn import ProcessSpawner
from aar.transports.cli.groups import NearestGroup


@click.group(cls=NearestGroup)
def sandbox() -> None:
    """Show the wall around commands, or run a command in it."""


@sandbox.command()
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def status(as_json: bool) -> None:
    """Tell which wall holds here and what it does not cover."""
    base = open_base()
    spawner = ProcessSpawner(base.workspace, base.config.sandbox, own=base.own_folders)
    try:
        found = spawner.status()
    finally:
        spawner.close()
    if as_json:
        fields = {
            "wall": found.name, "enforced": found.enforced, "reasons": list(found.reasons),
            "covers": list(found.covers), "gaps": list(found.gaps),
        }  # fmt: skip
        click.echo(json.dumps(fields))
        return
    click.echo(f"wall: {found.name}" + ("" if found.enforced else " (nothing is held back)"))
    for title, lines in (
        ("covers", found.covers),
        ("does not cover", found.gaps),
        ("not taken", found.reasons),
    ):
        for line in lines:
            click.echo(f"  {title}: {line}")


@sandbox.command("exec", context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
def exec_(command: tuple[str, ...]) -> int:
    """Run CMD inside the wall, with its output as it comes; exits with its code."""
    return asyncio.run(_exec(command))


async def _exec(command: tuple[str, ...]) -> int:
    base = open_base()
    spawner = ProcessSpawner(base.workspace, base.config.sandbox, own=base.own_folders)

    def write(data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    try:
        ended = await spawner.run(SpawnRequest(argv=command, cwd=base.cwd), write)
    except FileNotFoundError:
        click.echo(f"aar: {command[0]} does not exist.", err=True)
        return ExitCode.USAGE
    finally:
        spawner.close()
    code = ended.exit_code
    if code is None:
        return ExitCode.INTERNAL
    return code if code >= 0 else 128 - code
