"""What ``aar serve`` does once its options are read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from aar.protocol.errors import UsageError
from aar.transports.serve.listen import address, bound, is_loopback, until_signal
from aar.transports.serve.secret import token_from


def demand_names(host: str, hosts: Sequence[str]) -> list[str]:
    """Return the names by which a server at ``host`` may be called.

    Raises:
        UsageError: Others can reach it, and no name is known by which they may call it.
    """
    everywhere = host in ("0.0.0.0", "::", "")  # noqa: S104 - what is asked about, not what is bound
    if everywhere and not hosts:
        raise UsageError(f"--host {host} needs --allow-host NAME, by which others may call this server.")
    return [*hosts] if everywhere else [host, *hosts]


def serve(
    options: Mapping[str, Any], host: str, port: int, hosts: Sequence[str], token_file: Path | None
) -> int:
    """Serve until a signal; return the exit code.

    Args:
        options: For `open_runtime`.
        host: Address that is listened on.
        port: 0: any that is free.
        hosts: ``--allow-host``.
        token_file: ``--token-file``.

    Raises:
        AarError: A setting is wrong, or the address cannot be had.
    """
    names = demand_names(host, hosts)
    token = token_from(token_file)

    async def main() -> int:
        from aar.transports.serve.app import make_app
        from aar.transports.serve.house import House

        house = House(options)
        listening = bound(host, port)
        app = make_app(house, token, hosts=names)

        def ready() -> None:
            tell_start(address(listening), token, token_file, host)
            click.echo(f"Sessions of {house.workspace}, answered by {house.model}.", err=True)

        return await until_signal(app, listening, ready, house.aclose)

    return asyncio.run(main())


def tell_start(url: str, token: str, token_file: Path | None, host: str, path: str = "/") -> None:
    """Tell where the server is, and once its token, unless that is kept in a file."""
    # In the fragment: a browser does not send that, so that no log ever holds it.
    click.echo(f"{url}{path}" if token_file is not None else f"{url}{path}#token={token}")
    if not is_loopback(host):
        warning = "Others can reach this address, and nothing is encrypted: put a proxy with TLS before it."
        click.echo(f"aar: {warning}", err=True)
