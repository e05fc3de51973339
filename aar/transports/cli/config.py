"""``aar config``: where settings come from, and how to change them."""

from __future__ import annotations

import json
from typing import Any, cast

import click

from aar.config.load import setting
from aar.protocol.errors import ConfigurationError
from aar.runtime import open_base
from aar.transports.cli.groups import NearestGroup
from aar.transports.cli.options import base_options, take_runtime_options


@click.group(cls=NearestGroup)
def config() -> None:
    """Show, read and change settings."""


@config.command()
@click.option("--origin", is_flag=True, help="Tell where each value came from.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@base_options
def show(origin: bool, as_json: bool, **values: Any) -> None:
    """Show all settings as they hold here."""
    base = open_base(**take_runtime_options(values))
    dumped = _without_secrets(base.config.model_dump(mode="json"))
    if as_json:
        click.echo(json.dumps(dumped, indent=2))
        return
    for notice in base.notices:
        click.echo(f"aar: {notice}", err=True)
    for key, value in _flat(dumped):
        shown = f"{key} = {json.dumps(value, ensure_ascii=False)}"
        if origin:
            found = base.loaded.origins.get(key)
            shown += f"    # {found.place if found is not None else 'built-in'}"
        click.echo(shown)


@config.command()
@click.argument("key")
def get(key: str) -> None:
    """Print the value of one setting, as JSON."""
    value = setting(open_base().config, key)
    click.echo(json.dumps(value, default=lambda item: item.model_dump(mode="json"), ensure_ascii=False))


@config.command("set")
@click.argument("key")
@click.argument("value")
def set_(key: str, value: str) -> None:
    """Change one setting in the user's config file; the rest of the file stays as it is."""
    from aar.config.edit import set_value
    from aar.runtime.model_names import check_setting

    base = open_base()
    doubt = check_setting(base, key, value)
    set_value(base.paths.user_config, key, value)
    click.echo(f"{key} is set in {base.paths.user_config}.")
    if doubt:
        click.echo(f"Warning: {doubt}", err=True)


@config.command()
def path() -> None:
    """Print the path of the user's config file."""
    click.echo(open_base().paths.user_config)


@config.command()
@click.argument("file", required=False, type=click.Path(path_type=str))
def validate(file: str | None) -> None:
    """Check a config file (the user's own by default)."""
    from pathlib import Path

    from aar.config.load import validate_file

    target = Path(file) if file else open_base().paths.user_config
    if file is None and not target.exists():
        click.echo(f"There is no {target}: the built-in settings hold. `aar init` writes one.")
        return
    problems = validate_file(target)
    if problems:
        raise ConfigurationError(" ".join(problems))
    click.echo(f"{target} is valid.")


@config.command()
def schema() -> None:
    """Print the JSON Schema of config files, for editors."""
    from aar.config.describe import json_schema

    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))


def _without_secrets(dumped: dict[str, Any]) -> dict[str, Any]:
    """Return settings without values that carry keys: headers, environments, what is named a secret."""
    from aar.safety.redact import MARK, Redactor

    for tables in (dumped["providers"], dumped["mcp"]["servers"]):
        for table in cast("dict[str, dict[str, Any]]", tables).values():
            for name in ("headers", "env"):
                if table.get(name):
                    table[name] = dict.fromkeys(table[name], MARK)
    return Redactor().redact_json(dumped)


def _flat(value: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, item in value.items():
        if isinstance(item, dict) and item:
            rows += _flat(cast("dict[str, Any]", item), f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", cast("Any", item)))
    return rows
