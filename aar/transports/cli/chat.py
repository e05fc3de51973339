"""``aar chat``: line mode."""

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
@click.option("--title", metavar="TEXT", help="Title of the session.")
@runtime_options
def chat(**values: Any) -> int:
    """Talk with the assistant line by line.

    Works on any terminal and with a screen reader. PROMPT is sent at once.
    """
    from aar.protocol.errors import UsageError

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError('aar chat needs a terminal. In scripts use `aar run "task"`.')
    options = take_runtime_options(values)
    which = {
        "continue_latest": values["continue_"],
        "session_id": values["session_id"],
        "fork_id": values["fork_id"],
        "title": values["title"],
    }
    from aar.transports.chat.opening import chat as talk

    return talk(options, which, values["prompt"])
