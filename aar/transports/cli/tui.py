"""``aar tui``: the full screen."""

from __future__ import annotations

import sys
from typing import Any

import click

from aar.transports.cli.options import runtime_options, take_runtime_options


@click.command()
@click.argument("prompt", required=False)
@click.option(
    "--continue", "-c", "continue_", is_flag=True, help="Go on with the newest session of this folder."
)
@click.option("--session", "session_id", metavar="ID", help="Go on with this session.")
@click.option("--fork", "fork_id", metavar="ID", help="Go on with a copy of this session.")
@click.option("--theme", metavar="NAME", help="Colours of the screen.")
@runtime_options
def tui(**values: Any) -> int:
    """Work with the assistant on the full screen.

    PROMPT is sent at once; without it the screen waits for you to type.
    """
    from aar.protocol.errors import UsageError

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError('The full screen needs a terminal. In scripts use `aar run "task"`.')
    from aar.transports.tui.launch import launch

    theme = values.pop("theme")
    options = take_runtime_options(values)
    if theme:
        options["flags"] = {"tui.theme": theme}
    which = {
        "continue_latest": values["continue_"],
        "session_id": values["session_id"],
        "fork_id": values["fork_id"],
    }
    return launch(options, which, values["prompt"])
