"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

_MODES = click.Choice(["plan", "ask", "edit", "auto", "unsafe"])

_RUNTIME_OPTIONS = (
    click.option("--model", metavar="PROVIDER/MODEL", help="Which model answers."),
    click.option("--base-url", metavar="URL", help="Address of the model's server."),
    click.option("--mode", type=_MODES, help="What may run without a question (docs/safety.md)."),
    click.option(
        "--add-dir",
        "add_dirs",
        multiple=True,
        type=click.Path(path_type=Path),
        help="Another folder that may be changed.",
    ),
    click.option("--cwd", type=click.Path(path_type=Path), help="Work in this folder."),
    click.option("--config", "config_file", type=click.Path(path_type=Path), help="One more config file."),
    click.option("--profile", metavar="NAME", help="Use [profiles.NAME] of the user's config."),
    click.option(
        "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set one setting, such as limits.steps=20."
    ),
    click.option("--trust", is_flag=True, help="Use this folder's own config and rules."),
    click.option("--debug", is_flag=True, help="Write more into the diagnostics log."),
)


def runtime_options(command: Command) -> Command:
    """Add the options that choose model, folder, settings and trust."""
    for option in reversed(_RUNTIME_OPTIONS):
        command = option(command)
    return command


RUNTIME_NAMES = (
    "model",
    "base_url",
    "mode",
    "add_dirs",
    "cwd",
    "config_file",
    "profile",
    "sets",
    "trust",
    "debug",
)


def take_runtime_options(values: dict[str, Any]) -> dict[str, Any]:
    """Remove the values of `runtime_options` from ``values`` and return them."""
    return {name: values.pop(name) for name in RUNTIME_NAMES if name in values}
