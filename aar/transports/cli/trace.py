"""``aar trace``: the tree of operations of a session."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from aar.protocol.errors import UsageError
from aar.runtime import open_base
from aar.safety.sanitize import sanitize

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aar.observability.trace import Operation
    from aar.protocol.events import Event


@click.command()
@click.argument("session_id", metavar="[ID]", required=False)
@click.option(
    "--json", "as_json", is_flag=True, help="The tree as one JSON object; with --steps one object a step."
)
@click.option("--steps", is_flag=True, help="The steps in their order, with hints at what went badly.")
@click.option(
    "--otel", is_flag=True, help="Send it as OpenTelemetry spans (extra otel; OTEL_* variables count)."
)
@click.option(
    "--endpoint", metavar="URL", help="With --otel: where to, such as http://localhost:4318/v1/traces."
)
def trace(session_id: str | None, as_json: bool, steps: bool, otel: bool, endpoint: str | None) -> None:
    """Show what session ID, or the newest one of this folder, did: times, tokens and money of each part."""
    from aar.observability.trace import trace_tree

    if endpoint is not None and not otel:
        raise UsageError("--endpoint goes with --otel.")
    if steps and otel:
        raise UsageError("--steps and --otel are two things; take one.")
    base = open_base()
    store, found = base.store(), base.session_id(session_id)
    if steps:
        _steps(store.read(found), as_json)
        return
    root = trace_tree(store.read(found))
    if as_json:
        click.echo(json.dumps(root.to_dict(), ensure_ascii=False))
    elif otel:
        _send(root, endpoint)
    else:
        for depth, operation in root.walk():
            click.echo(_line(depth, operation))


def _steps(events: Iterable[Event], as_json: bool) -> None:
    from aar.core.timeline import HEADINGS, hints, timeline
    from aar.transports.cli.console import Console

    found = timeline(events)
    if as_json:
        for step in found:
            click.echo(json.dumps(step.to_dict(), ensure_ascii=False))
        return
    rows = [step.cells() for step in found]
    Console(sanitize).table(rows, header=HEADINGS)
    for hint in hints(found):
        click.echo(f"! {sanitize(hint)}")


def _send(root: Operation, endpoint: str | None) -> None:
    from aar.observability.otel_export import export_tree, otlp_exporter

    count = export_tree(root, otlp_exporter(endpoint))
    click.echo(f"Sent {count} spans.", err=True)


def _line(depth: int, operation: Operation) -> str:
    parts = [_duration(operation.duration_ms)]
    if operation.usage.total:
        parts.append(f"{operation.usage.prompt:,} in, {operation.usage.output:,} out")
    if operation.usage.total and (operation.cost_known or operation.cost_usd):
        parts.append(f"${operation.cost_usd:.4f}" + ("" if operation.cost_known else " at least"))
    if operation.status != "ok":
        parts.append(operation.status)
    what = operation.name if operation.kind == "step" else f"{operation.kind} {operation.name}"
    return f"{'  ' * depth}{sanitize(' '.join(what.split()))}  ({', '.join(parts)})"


def _duration(milliseconds: float) -> str:
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
