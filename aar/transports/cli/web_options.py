"""Options of the commands that listen on a port."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from aar.transports.cli.options import Command

_PORT = 8377


def web_options(command: Command) -> Command:
    """Add the options that say where to listen, and for whom."""
    options = (
        click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on."),
        click.option(
            "--port",
            type=click.IntRange(0, 65535),
            default=_PORT,
            show_default=True,
            help="Port to listen on; 0: any that is free.",
        ),
        click.option(
            "--allow-host",
            "hosts",
            multiple=True,
            metavar="NAME",
            help="Another name by which the server may be called.",
        ),
        click.option(
            "--token-file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Keep the token in this file, made where there is none, and print none.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def demand_web() -> None:
    """Raise `ConfigurationError` where the extra ``serve`` is not installed."""
    if any(find_spec(name) is None for name in ("starlette", "uvicorn")):
        from aar.protocol.errors import ConfigurationError

        raise ConfigurationError(
            'Serving needs the extra "serve": run python -m pip install -e ".[serve]" in the clone of aar.'
        )
