"""``aar acp``: the assistant for editors, over standard input and output."""

from __future__ import annotations

import sys
from typing import Any

import click

from aar.transports.cli.options import runtime_options, take_runtime_options

_EDITORS = ("zed", "jetbrains", "neovim", "emacs", "vscode", "toad", "registry")


@click.command()
@click.option(
    "--print-config", "editor", type=click.Choice(_EDITORS), help="Print what sets this editor up, and end."
)
@click.option("--login", is_flag=True, help="Ask for a provider's key in the terminal, keep it, and end.")
@runtime_options
def acp(editor: str | None, login: bool, **values: Any) -> int:
    """Serve an editor over standard input and output (Agent Client Protocol).

    Editors start this themselves; `aar acp --print-config zed` prints how to tell them.
    """
    if editor is not None:
        from aar.transports.acp.snippets import snippet

        click.echo(snippet(editor))
        return 0
    if login:
        return _login()
    if sys.stdin.isatty():
        from aar.protocol.errors import UsageError

        raise UsageError(
            "aar acp is started by editors; `aar acp --print-config zed` prints how to set one up."
        )
    options = take_runtime_options(values)
    folder = options.pop("cwd", None)
    if folder is not None:
        import os

        os.chdir(folder)
    from aar.transports.acp.serve import serve

    return serve(options)


def _login() -> int:
    """Ask which provider, then for its key, as `aar auth set` does."""
    from aar.transports.cli.auth import set_

    provider = click.prompt("Provider (such as anthropic, openai, gemini)", default="anthropic")
    set_.main([str(provider)], standalone_mode=False)
    return 0
