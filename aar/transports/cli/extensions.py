"""``aar extensions``: which there are, what each brings, whether one is right, and a first file of one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from aar.protocol.errors import ConfigurationError, NotThereError, UsageError
from aar.runtime import open_base
from aar.safety.sanitize import sanitize
from aar.transports.cli.console import Console
from aar.transports.cli.groups import NearestGroup
from aar.transports.cli.options import base_options

if TYPE_CHECKING:
    from aar.extensions.discovery import Source
    from aar.extensions.manager import Extension, ExtensionManager
    from aar.runtime.base import Base


@click.group(cls=NearestGroup)
def extensions() -> None:
    """List, inspect, check and begin Python extensions."""


@extensions.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@base_options
def list_(as_json: bool, **options: Any) -> None:
    """List the extensions; none of them is run."""
    base = open_base(**options)
    rows, problems = _found(base)
    if as_json:
        for row in rows:
            click.echo(json.dumps(row, ensure_ascii=False))
    else:
        cells = [(row["name"], row["from"], row["state"], row["about"], row["path"]) for row in rows]
        Console(sanitize).table(cells, header=("NAME", "FROM", "STATE", "WHAT IT DOES", "WHERE"))
    for problem in problems:
        click.echo(sanitize(problem), err=True)


def _found(base: Base) -> tuple[list[dict[str, str]], tuple[str, ...]]:
    from aar.extensions.discovery import built_in_folder, discover, in_folder

    wanted = base.config.extensions
    found = discover(
        base.paths.config / "extensions",
        base.workspace if base.trusted else None,
        use=wanted.use,
        disabled=wanted.disabled,
    )
    groups = [("active" if wanted.enabled else "off", found.chosen), ("overridden", found.overridden)]
    groups.append(("disabled", found.disabled))
    built_in, _ = in_folder(built_in_folder(), "built-in")
    groups.append(("not in use", tuple(source for source in built_in if source.name not in wanted.use)))
    return [_row(source, state) for state, sources in groups for source in sources], found.problems


def _row(source: Source, state: str) -> dict[str, str]:
    return {
        "name": source.name,
        "from": source.tier,
        "state": state,
        "about": source.describe(),
        "path": str(source.path),
    }


@extensions.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@base_options
def inspect(name: str, as_json: bool, **options: Any) -> None:
    """Load the extension NAME and show what it brings."""
    base = open_base(**options)
    from aar.runtime.extensions.loading import make_manager

    manager = make_manager(base)
    manager.wait()
    try:
        extension = next((item for item in manager.extensions if item.name == name), None)
        if extension is None:
            raise NotThereError(f"No extension {name!r} is in use; `aar extensions list` shows all.")
        if extension.failure:
            raise ConfigurationError(f"The extension {name} cannot be loaded: {extension.failure}.")
        _show(_facts(extension), as_json=as_json)
    finally:
        manager.close()


def _facts(extension: Extension) -> dict[str, Any]:
    found = extension.registered
    return {
        "name": extension.name,
        "from": extension.source.tier,
        "path": str(extension.source.path),
        "loaded_in_ms": round(extension.seconds * 1000, 1),
        "tools": [{"name": tool.name, "side_effects": sorted(tool.side_effects)} for tool in found.tools],
        "commands": [f"/{command.name}" for command in found.commands],
        "hooks": [hook.event + (f" ({hook.tools})" if hook.tools else "") for hook in found.hooks],
        "prompt": [name for name, _ in found.prompts],
        "providers": list(found.providers),
        "themes": list(found.themes),
        "panels": [panel.name for panel in found.panels],
        "replaces": list(found.parts),
    }


def _show(facts: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(facts, ensure_ascii=False))
        return
    rows = [(key.replace("_", " "), _shown(value)) for key, value in facts.items() if value not in ([], "")]
    Console(sanitize).table(rows)


def _shown(value: Any) -> str:
    items = cast("list[Any]", value if isinstance(value, list) else [value])
    return ", ".join(_told(item) for item in items)


def _told(item: Any) -> str:
    if not isinstance(item, dict):
        return str(item)
    tool = cast("dict[str, Any]", item)
    return f"{tool['name']} ({', '.join(tool['side_effects']) or '-'})"


@extensions.command()
@click.argument("place", metavar="FILE|NAME")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@base_options
def validate(place: str, as_json: bool, **options: Any) -> None:
    """Load an extension as aar would, and say what is wrong with it. Its code runs."""
    base = open_base(**options)
    manager = _manager_for(base, place)
    manager.wait()
    try:
        problems = list(manager.problems)
        extension = next(iter(manager.extensions), None)
        if as_json:
            facts = {} if extension is None or extension.failure else _facts(extension)
            click.echo(json.dumps({"ok": not problems, "problems": problems, **facts}, ensure_ascii=False))
        elif extension is not None and not problems:
            from aar.commands.extensions import brings

            click.echo(sanitize(f"{extension.name} is right: {brings(extension) or 'it brings nothing'}."))
    finally:
        manager.close()
    if problems:
        raise ConfigurationError(" ".join(problems))


def _manager_for(base: Base, place: str) -> ExtensionManager:
    """Return a manager of one extension: of a file or folder, or of the one in use that has this name.

    Raises:
        UsageError: There is no such file or extension.
    """
    from aar.extensions.discovery import Source, discover
    from aar.extensions.manager import ExtensionManager
    from aar.runtime.extensions.loading import make_manager

    path = Path(place)
    if path.is_dir():
        path = path / "__init__.py"
    if path.is_file():
        name = path.parent.name if path.name == "__init__.py" else path.stem
        source = Source(name, "user", path.absolute())
    else:
        wanted = base.config.extensions
        project = base.workspace if base.trusted else None
        found = discover(base.paths.config / "extensions", project, use=wanted.use)
        known = {item.name: item for item in found.chosen}
        if place not in known:
            raise NotThereError(
                f"There is no file and no extension {place!r}; `aar extensions list` shows all."
            )
        source = known[place]
    return ExtensionManager(make_manager(base).settings, only=source)


@extensions.command()
@click.argument("name")
@click.option("--project", is_flag=True, help="In this project's .aar/extensions, not in your own folder.")
@base_options
def new(name: str, project: bool, **options: Any) -> None:
    """Write a first extension NAME.py to begin with."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name):
        raise UsageError(f"{name!r} is no name of an extension; use small letters, digits and '_'.")
    base = open_base(**options)
    from aar.config.files import write_atomic
    from aar.config.paths import ensure
    from aar.extensions.template import template

    folder = base.workspace / ".aar" / "extensions" if project else base.paths.config / "extensions"
    file = folder / f"{name}.py"
    if file.exists() or (folder / name).exists():
        raise NotThereError(f"There is {file} already; choose another name.")
    if project:
        folder.mkdir(parents=True, exist_ok=True)
    else:
        ensure(folder)
    write_atomic(file, template(name).encode())
    click.echo(sanitize(str(file)))
    trust = " and start aar with --trust" if project else ""
    click.echo(f"Change it{trust}, then check it with `aar extensions validate {name}`.", err=True)
