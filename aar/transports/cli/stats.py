"""``aar stats``: what was used, by day, model or project."""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import TYPE_CHECKING

import click

from aar.runtime import open_base
from aar.safety.sanitize import sanitize
from aar.transports.cli.console import Console

if TYPE_CHECKING:
    from aar.memory.usage_index import Usage, UsageRow

_HEADER = ("", "REQUESTS", "PROMPT", "CACHED", "ANSWER", "COST", "SAVED", "MODEL", "TOOLS")


@click.command()
@click.option("--days", type=click.IntRange(min=1), default=30, show_default=True, help="The last N days.")
@click.option("--by", type=click.Choice(["day", "model", "project"]), default="day", show_default=True,
              help="What the lines are of.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def stats(days: int, by: str, as_json: bool) -> None:
    """Show tokens, money and time of all sessions that are kept."""
    from aar.memory.spending import SpendingLedger
    from aar.memory.usage_index import UsageIndex

    base = open_base()
    since = date.today() - timedelta(days=days - 1)
    usage = UsageIndex(base.paths.sessions, base.paths.cache / "usage.json").usage(by, since)
    today = SpendingLedger(base.paths.spending).today()
    if as_json:
        _print_json(usage, by, since, today)
    else:
        _print_table(usage, days, today, base.config.budget.day_usd)


def _print_json(usage: Usage, by: str, since: date, today: float) -> None:
    from aar.memory.usage_index import as_json

    report = {
        "by": by,
        "since": since.isoformat(),
        "total": as_json(usage.total),
        "rows": [as_json(row) for row in usage.rows],
        "today_usd": today,
    }
    click.echo(json.dumps(report, ensure_ascii=False))


def _print_table(usage: Usage, days: int, today: float, limit: float) -> None:
    from aar.memory.usage_index import in_order

    if not usage.total.requests:
        click.echo(f"Nothing was asked in the last {days} days.")
        return
    console = Console(sanitize)
    console.table([*map(_cells, usage.rows), _cells(usage.total)], header=_HEADER)
    failed = ", ".join(f"{name} {count}" for name, count in in_order(usage.total.tool_failures))
    click.echo(f"\nTool calls: {usage.total.tool_calls:,}; failed: {failed or 'none'}.")
    if usage.total.unpriced:
        click.echo(f"+: the price of {usage.total.unpriced:,} requests is not known.")
    of = f" of ${limit:.2f}" if limit else ""
    click.echo(f"Spent today, sessions that were not kept included: ${today:.2f}{of}.")


def _cells(row: UsageRow) -> tuple[str, ...]:
    numbers = (row.requests, row.input + row.cache_read + row.cache_write, row.cache_read, row.output)
    tools = _seconds(row.tool_ms) if row.tool_calls else "-"
    return (
        row.key,
        *(f"{number:,}" for number in numbers),
        _money(row),
        f"${row.cache_saved_usd:.2f}",
        _seconds(row.model_ms),
        tools,
    )


def _money(row: UsageRow) -> str:
    if row.unpriced and row.unpriced == row.requests:
        return "?"
    return f"${row.cost_usd:.2f}{'+' if row.unpriced else ''}"


def _seconds(milliseconds: float) -> str:
    seconds = milliseconds / 1000
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
