"""What the session used: tokens, money, time, and what fills the model's window."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from aar.commands.base import (
    Choice,
    ChoiceItem,
    Command,
    Context,
    Result,
    Submit,
    Table,
    Text,
    money,
    need_idle,
    need_no_argument,
    starting_with,
)
from aar.core.budget import Budget, Line, Span
from aar.core.totals import RunTotals
from aar.core.way_on import raised
from aar.protocol.errors import UsageError
from aar.protocol.events import Event, ProviderMeta
from aar.protocol.state import StopReason
from aar.protocol.usage import Usage

_MOST_STEPS = 100
_SPANS: dict[str, Span] = {"session": "session", "day": "day"}
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
            found.setdefault(event.full_model, RunTotals()).add_request(event, new_step=True)
    return found


def _cost_row(name: str, total: RunTotals) -> tuple[str, ...]:
    used: Usage = total.usage
    numbers = (total.requests, used.input, used.cache_read, used.cache_write, used.output)
    return (name, *(f"{number:,}" for number in numbers), money(total.cost_usd, known=total.cost_known))


async def _budget(context: Context, argument: str) -> Result:
    """Show the budgets, or set one and go on with work that stopped there."""
    budget = context.conversation.agent.budget
    if budget is None:
        raise UsageError("This agent has no budget.")
    if not argument:
        return await asyncio.to_thread(_budgets, context, budget)
    word, _, amount = argument.partition(" ")
    span, usd = _SPANS.get(word), _dollars(amount)
    if span is None or usd is None:
        raise UsageError("Say which and how much: /budget session 10, /budget day 20; off sets no limit.")
    need_idle(context)
    budget.set_limit(span, usd)
    now = f"no limit for a {span}" if not usd else f"{money(usd)} for a {span}"
    last = context.conversation.last_result
    if last is None or last.stop_reason is not StopReason.BUDGET or budget.exhausted:
        return Text(f"The budget is {now}, until aar ends; [budget] {span}_usd sets it for good.")
    return Submit("Go on.", f"The budget is {now}; going on.")


def _budgets(context: Context, budget: Budget) -> Result:
    lines = budget.lines()
    reached = [
        line for line in lines if line.reached(context.runtime.config.guardrails.reserve_cost_fraction)
    ]
    if reached:
        items = [
            ChoiceItem(f"{money(raised(line))} for the {line.span}", f"/budget {line.span} {raised(line):g}")
            for line in reached
        ]
        told = ", ".join(f"{money(line.spent)} of {money(line.limit)}" for line in reached)
        return Choice(f"The budget is used up ({told}). Go on with more?", tuple(items))
    rows = tuple((line.span, money(line.spent), *_limit_cells(line)) for line in lines)
    note = "/budget session 10 sets one until aar ends; each prompt may also have a limit ([limits] usd)."
    return Table("Budgets", ("for", "spent", "limit", "left"), rows, note, frozenset({1, 2, 3}))


def _limit_cells(line: Line) -> tuple[str, str]:
    return (money(line.limit), money(line.left)) if line.limit else ("none", "")


def _dollars(text: str) -> float | None:
    if text.strip() in ("off", "none"):
        return 0.0
    try:
        return float(text.strip().removeprefix("$"))
    except ValueError:
        return None


async def _metrics(context: Context, argument: str) -> Result:
    """Show where the time of this session went and which tools failed."""
    need_no_argument(argument, "stats")
    from aar.core.timeline import hints, timeline
    from aar.observability.metrics import session_metrics

    found = await asyncio.to_thread(lambda: session_metrics(context.session.events(), None))
    steps = await asyncio.to_thread(lambda: timeline(context.session.events()))
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
    return Table("This session in numbers", (), tuple(rows), " ".join(hints(steps)))


async def _timeline(context: Context, argument: str) -> Result:
    """Show the steps of this session one by one."""
    need_no_argument(argument, "timeline")
    from aar.core.timeline import HEADINGS, hints, timeline

    steps = await asyncio.to_thread(lambda: timeline(context.session.events()))
    if not steps:
        return Text("No request was answered yet.")
    rows = tuple(step.cells() for step in steps[-_MOST_STEPS:])
    left_out = f"The last {_MOST_STEPS} of {len(steps)}. " if len(steps) > _MOST_STEPS else ""
    columns = tuple(heading.lower() for heading in HEADINGS)
    note = f"{left_out}{' '.join(hints(steps))}".strip()
    return Table("Steps of this session", columns, rows, note, frozenset({0, 2, 3, 4, 5, 6}))


def _share(usage: Usage) -> str:
    prompt = usage.input + usage.cache_read + usage.cache_write
    return f"{100 * usage.cache_read // prompt} %" if prompt else "0 %"


def _by_count(table: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(table.items(), key=lambda item: (-item[1], item[0]))


def commands() -> list[Command]:
    """Return the commands of this family."""
    return [
        Command("cost", "Show tokens and money of this session, by model and agent.", _cost, group="look"),
        Command("budget", "Show what may be spent, or set it and go on.", _budget,
                usage="[session USD | day USD]", group="look", example="/budget session 10",
                complete=lambda context, text: starting_with(("session ", "day "), text)),
        Command("timeline", "Show the steps of this session: time, tokens, calls.", _timeline, group="look"),
        Command("stats", "Show where the time of this session went and what failed.", _metrics, group="look"),
    ]  # fmt: skip
