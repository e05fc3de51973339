"""``aar acp``: the assistant for editors, over standard input and output."""

from __future__ import annotations

import sys
from typing import Any

import click

from aar.transports.cli.options import runtime_options, take_runtime_options
from aar.transports.cli.web_options import demand_web, web_options

_EDITORS = ("zed", "jetbrains", "neovim", "emacs", "vscode", "toad", "registry")


@click.command()
@click.option(
    "--print-config", "editor", type=click.Choice(_EDITORS), help="Print what sets this editor up, and end."
)
@click.option("--login", is_flag=True, help="Ask for a provider's key in the terminal, keep it, and end.")
@click.option("--http", "over_http", is_flag=True, help="Serve clients elsewhere over HTTP instead.")
@web_options
@runtime_options
def acp(editor: str | None, login: bool, over_http: bool, **values: Any) -> int:
    """Serve an editor over standard input and output (Agent Client Protocol).

    Editors start this themselves; `aar acp --print-config zed` prints how to tell them. With --http, clients
    elsewhere connect to the address that is printed; each request must show its token.
    """
    if editor is not None:
        from aar.transports.acp.snippets import snippet

        click.echo(snippet(editor))
        return 0
    if login:
        return _login()
    where = {name: values.pop(name) for name in ("host", "port", "hosts", "token_file")}
    if sys.stdin.isatty() and not over_http:
        from aar.protocol.errors import UsageError

        raise UsageError(
            "aar acp is started by editors; `aar acp --print-config zed` prints how to set one up."
        )
    options = take_runtime_options(values)
    folder = options.pop("cwd", None)
    if folder is not None:
        import os

        os.chdir(folder)
    if over_http:
        demand_web()
        from aar.transports.acp.http import serve_http

        return serve_http(options, **where)
    from aar.transports.acp.serve import serve

    return serve(options)


def _login() -> int:
    """Ask which provider, then for its key, as `aar auth set` does."""
    from aar.transports.cli.auth import set_

    provider = click.prompt("Provider (such as anthropic, openai, gemini)", default="anthropic")
    set_.main([str(provider)], standalone_mode=False)
    return 0
