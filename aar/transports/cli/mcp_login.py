"""``aar mcp login`` and ``aar mcp logout``: signing in to servers over OAuth."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from aar.protocol.errors import NotThereError
from aar.safety.sanitize import sanitize
from aar.transports.cli.options import base_options


@click.command()
@base_options
@click.option(
    "--mcp-config",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="More MCP servers.",
)
@click.option("--no-browser", is_flag=True, help="Only show the address of the page.")
@click.argument("name")
def login(name: str, no_browser: bool, files: tuple[Path, ...], **options: Any) -> None:
    """Sign in to an HTTP server in your browser; the tokens go to the keyring, or a file of yours alone."""
    asyncio.run(_login(name, files, options, browser=not no_browser))


async def _login(name: str, files: tuple[Path, ...], options: dict[str, Any], *, browser: bool) -> None:
    from aar.runtime.base import open_base
    from aar.runtime.browser import open_page
    from aar.runtime.mcp import find_servers, sign_in_to
    from aar.safety.spawn import ProcessSpawner

    base = open_base(**options)
    specs, _ = find_servers(base, files)
    if name not in specs:
        known = f"there are: {', '.join(specs)}" if specs else "there are none"
        raise NotThereError(f"There is no MCP server {name!r}; {known}.")
    spawner = ProcessSpawner(base.workspace, base.config.sandbox, own=base.own_folders)

    async def show(address: str) -> None:
        click.echo(f"Open this page to sign in to {name}:\n{sanitize(address)}")
        if browser:
            await open_page(address, spawner, base.workspace)

    try:
        needed = await sign_in_to(base, specs[name], show)
    finally:
        spawner.close()
    if needed:
        click.echo(f"You are signed in to {name}. `aar mcp test {name}` tries it.")
    else:
        click.echo(f"{name} lets everybody in; there is nothing to sign in to.")


@click.command()
@click.argument("name")
def logout(name: str) -> None:
    """Forget the tokens of a server."""
    from aar.config.paths import paths
    from aar.extensions.mcp_logins import LoginStore

    if not LoginStore(paths().config).forget(name):
        raise NotThereError(f"You are not signed in to an MCP server {name!r}; see `aar auth list`.")
    click.echo(f"The tokens of {name} are forgotten.")
