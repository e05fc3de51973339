"""``aar sessions replay``: a session once more, step by step, or run again offline."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterable
from datetime import datetime

import click

from aar.protocol.errors import UsageError
from aar.protocol.events import Event
from aar.protocol.state import ExitCode
from aar.runtime import open_base
from aar.transports.cli.options import POSITIVE

_LONGEST_S = 3.0
"""Longest pause while a session plays by itself: nobody wants to wait for a slow test again."""


@click.command()
@click.argument("session_id", metavar="ID")
@click.option(
    "--speed",
    type=POSITIVE,
    metavar="FACTOR",
    help="Play by itself, FACTOR times as fast as it was; else each step waits for a key.",
)
@click.option(
    "--from", "start", type=click.IntRange(min=1), default=1, metavar="SEQ", help="Begin at this event."
)
@click.option(
    "--rerun",
    is_flag=True,
    help="Run it again in a scratch copy, with the model's recorded answers; compare.",
)
@click.option("--keep", is_flag=True, help="With --rerun: leave the scratch copy there.")
@click.option("--json", "as_json", is_flag=True, help="With --rerun: the outcome as one JSON object.")
def replay(session_id: str, speed: float | None, start: int, rerun: bool, keep: bool, as_json: bool) -> int:
    """Step through a session in the terminal. ID may be shortened.

    Enter goes on, q ends. Into a pipe it is written without waiting.
    """
    base = open_base()
    store, found = base.store(), base.session_id(session_id)
    if rerun:
        return _rerun(found, keep=keep, as_json=as_json)
    if keep or as_json:
        raise UsageError("--keep and --json go with --rerun.")
    waits = sys.stdin.isatty() and sys.stdout.isatty()
    wait: Callable[[Event, Event | None], bool] = _go_on
    if speed is not None:
        wait = _Clock(speed).wait
    elif waits:
        wait = _ask
    _play(store.read(found, start), wait)
    return ExitCode.OK


def _play(events: Iterable[Event], wait: Callable[[Event, Event | None], bool]) -> None:
    from aar.transports.cli.sessions import describe

    before: Event | None = None
    for event in events:
        text = describe(event)
        if not text:
            continue
        if not wait(event, before):
            return
        click.echo(text)
        before = event


def _go_on(event: Event, before: Event | None) -> bool:
    return True


def _ask(event: Event, before: Event | None) -> bool:
    """Wait for a key before the next prompt or step."""
    if before is None or (event.run_id, event.step) == (before.run_id, before.step):
        return True
    click.echo(
        click.style(f"-- event {event.seq}, {event.ts[11:19]}; Enter goes on, q ends --", dim=True), nl=False
    )
    try:
        key = click.getchar()
    except (EOFError, KeyboardInterrupt):
        key = "q"
    click.echo("\r\x1b[2K", nl=False)
    return key.lower() not in ("q", "\x03", "\x04", "\x1b")


class _Clock:
    """Waits as long as it took then, faster by a factor."""

    def __init__(self, speed: float) -> None:
        self._speed = speed

    def wait(self, event: Event, before: Event | None) -> bool:
        if before is not None:
            time.sleep(min(_LONGEST_S, max(0.0, _seconds(event) - _seconds(before)) / self._speed))
        return True


def _seconds(event: Event) -> float:
    try:
        return datetime.fromisoformat(event.ts).timestamp()
    except ValueError:
        return 0.0


def _rerun(session_id: str, *, keep: bool, as_json: bool) -> int:
    from aar.runtime.rerun import rerun
    from aar.safety.sanitize import sanitize

    outcome = asyncio.run(rerun(open_base(), session_id, keep=keep))
    if as_json:
        click.echo(json.dumps(outcome.to_dict(), ensure_ascii=False))
    else:
        click.echo(
            f"The files were {outcome.files}; {outcome.prompts} prompts, {outcome.compared} things compared."
        )
        if outcome.scratch is not None:
            click.echo(f"The scratch copy is {outcome.scratch}.")
        first = outcome.difference
        if first is None:
            click.echo("It went as it did then.")
        else:
            click.echo(f"The first difference is at event {first.seq} ({first.what}):")
            click.echo(f"  then: {sanitize(first.then)}\n  now:  {sanitize(first.now)}")
    return ExitCode.OK if outcome.difference is None else ExitCode.UNFINISHED
