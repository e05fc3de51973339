"""``aar acp``: the assistant for editors, over standard input and output."""

from __future__ import annotations

import sys
from pathlib import Path
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
@click.option(
    "--allow-dir",
    "allow_dirs",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="With --http: another folder in which sessions may work.",
)
@web_options
@runtime_options
def acp(editor: str | None, login: bool, over_http: bool, allow_dirs: tuple[Path, ...], **values: Any) -> int:
    """Serve an editor over standard input and output (Agent Client Protocol).

    Editors start this themselves; `aar acp --print-config zed` prints how to tell them. With --http, clients
    elsewhere connect to the address that is printed; each request must show its token. Their sessions work in
    this folder, and in those of --allow-dir and --add-dir.
    """
    if editor is not None:
        from aar.transports.acp.snippets import snippet

        click.echo(snippet(editor))
        return 0
    if login:
        return _login()
    where = {name: values.pop(name) for name in ("host", "port", "hosts", "token_file")}
    from aar.protocol.errors import NotThereError, UsageError

    if sys.stdin.isatty() and not over_http:
        raise UsageError(
            "aar acp is started by editors; `aar acp --print-config zed` prints how to set one up."
        )
    options = take_runtime_options(values)
    folder = options.pop("cwd", None)
    if folder is not None:
        import os

        if not folder.is_dir():
            raise NotThereError(f"The folder {folder} does not exist; --cwd names an existing one.")
        os.chdir(folder)
    if over_http:
        demand_web()
        from aar.runtime.policy import existing_folder
        from aar.transports.acp.http import serve_http

        folders = [Path.cwd(), *(existing_folder(path, "--allow-dir") for path in allow_dirs)]
        folders += [existing_folder(path) for path in options.get("add_dirs", ())]
        return serve_http(options, folders, **where)
    if allow_dirs:
        raise UsageError("--allow-dir goes with --http; an editor on this machine may open any folder.")
    from aar.transports.acp.serve import serve

    return serve(options)


def _login() -> int:
    """Ask which provider, then for its key, as `aar auth set` does."""
    from aar.transports.cli.auth import set_

    provider = click.prompt("Provider (such as anthropic, openai, gemini)", default="anthropic")
    set_.main([str(provider)], standalone_mode=False)
    return 0
