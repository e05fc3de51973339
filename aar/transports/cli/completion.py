"""``aar completion``: what a shell needs to complete commands, options, sessions, models and settings.

A shell calls aar for each Tab, so what is completed must be cheap: names of files and tables of names, never
the content of sessions, never the network.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

_MOST = 50


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that makes SHELL complete commands of aar.

    bash: eval "$(aar completion bash)" in ~/.bashrc. zsh: the same with zsh in ~/.zshrc. fish:
    aar completion fish > ~/.config/fish/completions/aar.fish
    """
    from aar.transports.cli.main import cli

    found = get_completion_class(shell)
    assert found is not None
    # click's bash class starts bash to ask its version when it is asked for its source: it is not needed.
    template = found(cli, {}, "aar", "_AAR_COMPLETE")
    click.echo(template.source_template % template.source_vars())


def complete_sessions(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return ids of this folder's newest sessions, by names and times of files alone."""
    from datetime import datetime

    from aar.config.paths import paths, project_key, project_root

    try:
        folder = paths().sessions / project_key(project_root(Path.cwd()))
        dated = [(entry.stat().st_mtime, entry.stem) for entry in folder.glob(f"{_plain(incomplete)}*.jsonl")]
    except OSError:
        return []
    return [
        CompletionItem(name, help=f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M}")
        for seconds, name in sorted(dated, reverse=True)[:_MOST]
    ]


def _plain(incomplete: str) -> str:
    """Return the beginning of an id without signs that a pattern would read."""
    return "".join(char for char in incomplete.upper() if char.isalnum())


def complete_models(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the models that the user's config names, the default ones, and the providers."""
    from aar.config.paths import paths
    from aar.providers.catalog import DEFAULT_MODELS
    from aar.providers.presets import PRESETS

    names = [
        *_configured(paths().user_config),
        *(f"{provider}/{model}" for provider, model in DEFAULT_MODELS.items()),
        *(f"{provider}/" for provider in PRESETS),
    ]
    return [CompletionItem(name) for name in dict.fromkeys(names) if name.startswith(incomplete)]


def _configured(file: Path) -> list[str]:
    """Return the models that a config file names; one that cannot be read names none."""
    import tomllib

    try:
        table: Any = tomllib.loads(file.read_text(encoding="utf-8")).get("model", {})
        found = [table.get("name"), table.get("small"), *table.get("fallback", [])]
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return []
    return [name for name in found if isinstance(name, str)]


def complete_keys(_ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the tables of the config, or the keys of the one that is written already."""
    from aar.config.validate import annotation_at, is_section, known

    table = tuple(incomplete.split(".")[:-1])
    sign = "=" if param.name == "sets" else ""
    names: list[str] = []
    for key in known(table):
        path = (*table, key)
        names.append(".".join(path) + ("." if is_section(annotation_at(path)) else sign))
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


_SESSION_FLAGS = ("--session", "--fork")
_SESSION_COMMANDS = ("show", "delete", "export", "fork", "rename", "replay")


def answer_quickly() -> bool:
    """Complete a session or model without importing the command that wants it; tell whether that was it."""
    import os

    from aar.transports.cli.main import COMPLETING, cli

    shell, _, act = os.environ[COMPLETING].partition("_")
    found = get_completion_class(shell)
    if found is None or act != "complete":
        return False
    asked = found(cli, {}, "aar", COMPLETING)
    args, incomplete = asked.get_completion_args()
    complete = None if incomplete.startswith("-") else _by_words(args)
    if complete is None:
        return False
    context = click.Context(cli)
    for item in complete(context, cli.params[0], incomplete):
        click.echo(asked.format_completion(item))
    return True


def _by_words(args: list[str]) -> Completer | None:
    """Return what completes the word behind ``args``, where that can be told without the command."""
    if args and args[-1] in _SESSION_FLAGS:
        return complete_sessions
    if args and args[-1] == "--model":
        return complete_models
    if len(args) == 2 and args[0] == "sessions" and args[1] in _SESSION_COMMANDS:
        return complete_sessions
    return complete_sessions if args == ["trace"] else None


_BY_NAME = {
    "session_id": complete_sessions,
    "fork_id": complete_sessions,
    "model": complete_models,
    "key": complete_keys,
    "sets": complete_keys,
}


def attach(command: click.Command) -> None:
    """Let parameters of ``command``, and of those below it, complete sessions, models and settings."""
    for param in command.params:
        complete = _BY_NAME.get(param.name or "")
        if complete is not None:
            # A public method of click, replaced for this process, which only completes.
            param.shell_complete = partial(_complete, complete, param)
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            attach(inner)


def _complete(
    complete: Completer, param: click.Parameter, ctx: click.Context, incomplete: str
) -> list[CompletionItem]:
    return complete(ctx, param, incomplete)
