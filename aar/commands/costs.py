"""What the session used: tokens, money, time, and what fills the model's window."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from aar.commands.base import Command, Context, Result, Table, Text, money, need_no_argument
from aar.core.totals import RunTotals
from aar.protocol.events import Event, ProviderMeta
from aar.protocol.usage import Usage

_NUMBERS = frozenset({1, 2, 3, 4, 5, 6})


async def _cost(context: Context, argument: str) -> Result:
    """Show tokens and money of the session by model and agent."""
    need_no_argument(argument, "cost")
    models = await asyncio.to_thread(lambda: _by_model(context.session.events()))
    if not models:
        return Text("Nothing was asked yet, so nothing was spent.")
    totals = context.session.totals
    rows = [_cost_row(name, total) for name, total in models.items()]
    others = {name: total for name, total in totals.agents.items() if name != "main" and total.requests}
    rows += [_cost_row(f"of that: agent {name}", total) for name, total in others.items()]
    if len(models) > 1:
        rows.append(_cost_row("together", totals.all))
    note = "" if totals.cost_known else "+: the price of some requests is not known; this is the least."
    columns = ("model", "requests", "prompt", "from cache", "to cache", "answer", "cost")
    return Table("Cost of this session", columns, tuple(rows), note, _NUMBERS)


def _by_model(events: Iterable[Event]) -> dict[str, RunTotals]:
    found: dict[str, RunTotals] = {}
    for event in events:
        if isinstance(event, ProviderMeta):
            named = event.model.startswith(f"{event.provider}/")
            name = event.model if named else f"{event.provider}/{event.model}"
            found.setdefault(name, RunTotals()).add_request(event, new_step=True)
    return found


def _cost_row(name: str, total: RunTotals) -> tuple[str, ...]:
    used: Usage = total.usage
    numbers = (total.requests, used.input, used.cache_read, used.cache_write, used.output)
    return (name, *(f"{number:,}" for number in numbers), money(total.cost_usd, known=total.cost_known))


async def _metrics(context: Context, argument: str) -> Result:
    """Show where the time of this session went and which tools failed."""
    need_no_argument(argument, "stats")
    from aar.observability.metrics import session_metrics

    found = await asyncio.to_thread(lambda: session_metrics(context.session.events(), None))
    rows = [
        ("steps", f"{found.steps:,}"),
        ("tool calls", f"{found.tool_calls:,}"),
        ("retries", f"{found.retries:,}"),
        ("errors", f"{found.errors:,}"),
        ("tokens", f"{found.usage.total:,} (of the prompt {_share(found.usage)} came from the cache)"),
        ("cost", money(found.cost_usd, known=not found.unpriced_requests)),
        ("waiting for models", f"{found.provider_ms / 1000:.1f} s"),
        ("in tools", f"{found.tool_ms / 1000:.1f} s"),
    ]
    rows += [(f"calls of {name}", f"{count:,}") for name, count in _by_count(found.tools)]
    rows += [(f"failed: {name}", f"{count:,}") for name, count in _by_count(found.tool_failures)]
    rows += [(f"error: {name}", f"{count:,}") for name, count in _by_count(found.errors_by_kind)]
    return Table("This session in numbers", (), tuple(rows))


def _share(usage: Usage) -> str:
    prompt = usage.input + usage.cache_read + usage.cache_write
    return f"{100 * usage.cache_read // prompt} %" if prompt else "0 %"


def _by_count(table: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(table.items(), key=lambda item: (-item[1], item[0]))


def commands() -> list[Command]:
    """Return the commands of this family."""
    return [
        Command("cost", "Show tokens and money of this session, by model and agent.", _cost, group="look"),
        Command("stats", "Show where the time of this session went and what failed.", _metrics, group="look"),
    ]
