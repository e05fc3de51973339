"""``aar tools``: what the model can call."""

from __future__ import annotations

import json

import click

from aar.runtime import open_base
from aar.runtime.extensions.tools import add_extension_tools
from aar.runtime.extras import file_tools
from aar.safety.sanitize import sanitize
from aar.tools.builtin.catalogue import builtin_tools
from aar.tools.registry import ToolRegistry
from aar.transports.cli.console import Console


@click.command()
@click.option(
    "--json", "as_json", is_flag=True, help="With descriptions and schemas, one JSON object a line."
)
def tools(as_json: bool) -> None:
    """List the tools that the model gets ([tools] enabled)."""
    base = open_base()
    own = builtin_tools(persistent_shell=base.config.tools.persistent_shell)
    registry = ToolRegistry([*own, *file_tools(base)])
    problems = add_extension_tools(base, registry)
    specs = registry.specs(base.config.tools.enabled)
    for problem in problems:
        click.echo(sanitize(problem), err=True)
    if as_json:
        for spec in specs:
            fields = {
                "name": spec.name,
                "side_effects": sorted(spec.side_effects),
                "summary": spec.summary,
                "description": spec.description,
                "input_schema": spec.input_schema,
            }
            click.echo(json.dumps(fields, ensure_ascii=False))
        return
    rows = [(spec.name, ", ".join(sorted(spec.side_effects)) or "-", spec.summary) for spec in specs]
    Console(sanitize).table(rows, header=("TOOL", "EFFECTS", "WHAT IT DOES"))
