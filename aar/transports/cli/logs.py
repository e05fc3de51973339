"""``aar logs``: the diagnostics log."""

from __future__ import annotations

import click

from aar.observability.diagnostics_log import tail
from aar.runtime import open_base
from aar.safety.sanitize import sanitize


@click.command()
@click.option(
    "-n", "--lines", default=50, show_default=True, type=click.IntRange(min=1), help="How many lines."
)
@click.option("--path", "show_path", is_flag=True, help="Print the folder of the log instead.")
def logs(lines: int, show_path: bool) -> None:
    """Show the end of the diagnostics log (secrets are redacted in it)."""
    folder = open_base().paths.logs
    if show_path:
        click.echo(folder)
        return
    shown = tail(folder, lines)
    for line in shown:
        click.echo(sanitize(line))
    if not shown:
        click.echo(f"Nothing was logged yet in {folder}.", err=True)
