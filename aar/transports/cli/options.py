"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

_MODES = click.Choice(["plan", "ask", "edit", "auto", "unsafe"])
_PATH = click.Path(path_type=Path)
POSITIVE = click.FloatRange(min=0, min_open=True)
"""Money, seconds and the like."""

_OPTIONS = {
    "model": click.option("--model", metavar="PROVIDER/MODEL", help="Which model answers."),
    "base_url": click.option("--base-url", metavar="URL", help="Address of the model's server."),
    "mode": click.option("--mode", type=_MODES, help="What may run without a question (docs/safety.md)."),
    "add_dirs": click.option(
        "--add-dir", "add_dirs", multiple=True, type=_PATH, help="Another folder that may be changed."
    ),
    "agent": click.option("--agent", metavar="NAME", help="Let this agent work (aar agents list)."),
    "mcp_configs": click.option(
        "--mcp-config", "mcp_configs", multiple=True, type=_PATH, metavar="FILE", help="More MCP servers."
    ),
    "cwd": click.option("--cwd", type=_PATH, help="Work in this folder."),
    "config_file": click.option("--config", "config_file", type=_PATH, help="One more config file."),
    "profile": click.option("--profile", metavar="NAME", help="Use [profiles.NAME] of the user's config."),
    "sets": click.option(
        "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set one setting, such as limits.steps=20."
    ),
    "trust": click.option("--trust", is_flag=True, help="Use this folder's own config and rules."),
    "debug": click.option("--debug", is_flag=True, help="Write more into the diagnostics log."),
}
"""By the names that `aar.runtime.open_base` and `aar.runtime.open_runtime` give them."""

_BASE = tuple(name for name in _OPTIONS if name not in ("base_url", "agent", "add_dirs", "mcp_configs"))


def runtime_options(command: Command) -> Command:
    """Add the options that choose model, server, folders, settings and trust."""
    return _add(command, tuple(_OPTIONS))


def base_options(command: Command) -> Command:
    """Add those of `runtime_options` that `aar.runtime.open_base` takes."""
    return _add(command, _BASE)


def _add(command: Command, names: tuple[str, ...]) -> Command:
    for name in reversed(names):
        command = _OPTIONS[name](command)
    return command


def take_runtime_options(values: dict[str, Any]) -> dict[str, Any]:
    """Remove the values of these options from ``values`` and return them."""
    return {name: values.pop(name) for name in _OPTIONS if name in values}
