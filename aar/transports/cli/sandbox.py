"""``aar sandbox``: which wall holds here, and a command inside it."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import cast

import click

from aar.config.schema import Wall
from aar.protocol.errors import NotThereError
from aar.protocol.ports import SpawnRequest
from aar.protocol.state import ExitCode
from aar.runtime import open_base
from aar.safety.spawn import ProcessSpawner
from aar.transports.cli.groups import NearestGroup

_WALLS = ("auto", "bubblewrap", "namespaces", "landlock", "seatbelt")


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
    domains = [str(rule) for rule in spawner.egress.domains.rules]
    if as_json:
        fields = {
            "wall": found.name, "enforced": found.enforced, "reasons": list(found.reasons),
            "covers": list(found.covers), "gaps": list(found.gaps), "allow_domains": domains,
        }  # fmt: skip
        click.echo(json.dumps(fields))
        return
    click.echo(f"wall: {found.name}" + ("" if found.enforced else " (nothing is held back)"))
    for title, lines in (
        ("covers", found.covers),
        ("does not cover", found.gaps),
        ("not taken", found.reasons),
        ("allowed domain", domains),
    ):
        for line in lines:
            click.echo(f"  {title}: {line}")


@sandbox.command("exec", context_settings={"ignore_unknown_options": True})
@click.option("--wall", type=click.Choice(_WALLS), help="Take this wall, or fail.")
@click.option("--allow-domain", "domains", multiple=True, metavar="D", help="Let it reach D; repeatable.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
def exec_(wall: str | None, domains: tuple[str, ...], command: tuple[str, ...]) -> int:
    """Run CMD inside the wall, with its streams as they come; exits with its code."""
    return asyncio.run(_exec(wall, domains, command))


async def _exec(wall: str | None, domains: tuple[str, ...], command: tuple[str, ...]) -> int:
    base = open_base()
    settings = base.config.sandbox
    if wall is not None:
        settings = settings.model_copy(update={"mode": cast("Wall", wall)})
    spawner = ProcessSpawner(base.workspace, settings, own=base.own_folders)
    try:
        for domain in domains:
            spawner.allow_domain(domain)
        ended = await spawner.run(
            SpawnRequest(argv=command, cwd=base.cwd, merge_stderr=False), _Streams().write, _Streams().error
        )
    except FileNotFoundError:
        raise NotThereError(f"{command[0]} does not exist.") from None
    finally:
        spawner.close()
    for notice in ended.notices:
        click.echo(f"aar: {notice}", err=True)
    code = ended.exit_code
    if code is None:
        return ExitCode.INTERNAL
    return code if code >= 0 else 128 - code


class _Streams:
    """aar's own streams, unbuffered."""

    def write(self, data: bytes) -> None:
        """Write to standard output."""
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def error(self, data: bytes) -> None:
        """Write to standard error."""
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()
