"""``aar sessions resample``: one step of a session asked again, several times."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from aar.safety.sanitize import sanitize
from aar.transports.cli.options import runtime_options

if TYPE_CHECKING:
    from aar.runtime.resample import Sample
    from aar.runtime.sent import Sent

_MOST_TEXT = 400


@click.command()
@click.argument("session_id", metavar="ID")
@click.option(
    "--step",
    "number",
    type=click.IntRange(min=1),
    required=True,
    metavar="N",
    help="Which step (aar trace ID --steps lists them).",
)
@click.option("-n", "count", type=click.IntRange(1, 50), default=3, show_default=True, help="How often.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, one for each answer.")
@runtime_options
def resample(session_id: str, number: int, count: int, as_json: bool, **values: Any) -> None:
    """Ask the model again what it was asked at step N of session ID, and compare its answers.

    No tool runs and the session stays as it is. Without --model the model of the session is asked.
    """
    asyncio.run(_resample(session_id, number, count, as_json, values))


async def _resample(prefix: str, number: int, count: int, as_json: bool, values: dict[str, Any]) -> None:
    from aar.runtime import open_base, open_runtime
    from aar.runtime.own_model import chosen_model
    from aar.runtime.resample import resample as ask_again
    from aar.runtime.sent import sent_at

    base = open_base(cwd=values.get("cwd"))
    sent = sent_at(base.store().read(base.session_id(prefix)), number)
    own, address = chosen_model(base, base.session_id(prefix))
    values["model"] = values["model"] or sent.model
    if values["model"] == own:
        values["base_url"] = values["base_url"] or address
    runtime = open_runtime(**values)
    try:
        if not as_json:
            click.echo(_then(sent))
        alike = 0
        async with aclosing(ask_again(runtime, sent, count)) as samples:
            place = 0
            async for sample in samples:
                place += 1
                alike += sample.same_calls
                line = json.dumps(sample.to_dict(), ensure_ascii=False) if as_json else _line(place, sample)
                click.echo(line)
        if not as_json:
            click.echo(f"\n{alike} of {count} called the same as then ({runtime.active.name}).")
    finally:
        await runtime.aclose()


def _then(sent: Sent) -> str:
    from aar.runtime.resample import recorded

    text, calls = recorded(sent)
    assert sent.step is not None
    return f"Step {sent.step.number} then ({sent.step.model}):\n{_shown(text, calls)}"


def _line(place: int, sample: Sample) -> str:
    cost = "price unknown" if sample.cost_usd is None else f"${sample.cost_usd:.4f}"
    same = "as then" if sample.same_calls else "otherwise than then"
    head = f"\nAnswer {place}: calls {same} ({sample.output_tokens:,} tokens, {cost})"
    return f"{head}\n{_shown(sample.text, sample.calls)}"


def _shown(text: str, calls: tuple[tuple[str, dict[str, Any]], ...]) -> str:
    from aar.tools.builtin.describe import describe_call

    said = " ".join(text.split())
    lines = [f"  {said[:_MOST_TEXT]}{'…' if len(said) > _MOST_TEXT else ''}"] if said else []
    lines += [f"  * {describe_call(name, arguments)}" for name, arguments in calls]
    return sanitize("\n".join(lines or ["  (nothing)"]))
