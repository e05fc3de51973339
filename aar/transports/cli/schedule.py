"""``aar schedule``: tasks at certain times, called by systemd, cron or launchd."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aar.protocol.errors import AarError, NotThereError, UsageError
from aar.runtime import open_base
from aar.safety.sanitize import sanitize
from aar.transports.cli.console import Console
from aar.transports.cli.groups import NearestGroup
from aar.transports.cli.options import POSITIVE

if TYPE_CHECKING:
    from aar.orchestration.batch_results import TaskResult
    from aar.orchestration.schedule import Schedule, Schedules
    from aar.runtime import Base
    from aar.safety.spawn import ProcessSpawner


@click.group(cls=NearestGroup)
def schedule() -> None:
    """Run tasks at certain times, within a budget, and read what they came to."""


@schedule.command()
@click.argument("name")
@click.argument("cron")
@click.argument("prompt")
@click.option("--zone", metavar="ZONE", help="Time zone, such as Europe/Berlin; by default this machine's.")
@click.option(
    "--max-cost", type=POSITIVE, default=1.0, show_default=True, metavar="USD", help="US dollars at most."
)
@click.option(
    "--timeout", type=POSITIVE, default=3600.0, show_default=True, metavar="SECONDS", help="Seconds at most."
)
@click.option("--max-steps", type=click.IntRange(min=1), help="Model requests at most.")
@click.option(
    "--mode",
    type=click.Choice(["plan", "edit", "auto"]),
    default="auto",
    show_default=True,
    help="What may run; nobody answers questions.",
)
@click.option("--model", metavar="PROVIDER/MODEL", help="Which model answers.")
@click.option("--agent", metavar="NAME", help="Let this agent work.")
@click.option("--verify", multiple=True, metavar="CMD", help="Go on until CMD passes.")
@click.option("--cwd", type=click.Path(path_type=Path), help="Work in this folder.")
@click.option(
    "--with",
    "keeper",
    type=click.Choice(["systemd", "crontab", "launchd", "none"]),
    help="Who calls aar; by default what this machine has.",
)
@click.option("--replace", is_flag=True, help="In place of one of the same name.")
def add(name: str, cron: str, prompt: str, **values: Any) -> None:
    """Run PROMPT at the times of CRON ('30 6 * * 1-5', '@daily') as NAME."""
    from pydantic import ValidationError

    from aar.orchestration.batch_tasks import BatchTask
    from aar.orchestration.schedule import Schedule, Schedules
    from aar.orchestration.schedule_cron import local_zone, parse_cron

    base = open_base(cwd=values["cwd"])
    schedules = Schedules(base.paths.data)
    times = parse_cron(cron, values["zone"] or local_zone())
    keys = ("max_cost", "timeout", "max_steps", "mode", "model", "agent", "verify")
    try:
        task = BatchTask(prompt=prompt, **{key: values[key] for key in keys})
        made = Schedule(
            name=name,
            cron=times.text,
            zone=times.zone.key,
            task=task,
            folder=base.cwd,
            created=datetime.now(UTC),
        )
    except ValidationError as error:
        what = "the prompt is empty" if error.errors()[0]["loc"] == ("prompt",) else f"'{name}' is no name"
        raise UsageError(f"{what[:1].upper()}{what[1:]}; a name has letters, digits, - and _.") from error
    if schedules.exists(name) and not values["replace"]:
        raise NotThereError(f"There is a schedule '{name}' already; --replace puts this one in its place.")
    asyncio.run(_add(base, schedules, made, values["keeper"]))


async def _add(base: Base, schedules: Schedules, made: Schedule, keeper: Any) -> None:
    from aar.orchestration.schedule_keepers import clock, command_of, find_keeper

    spawner = _spawner(base)
    try:
        if schedules.exists(made.name):
            before = schedules.get(made.name)
            if (old := clock(before.keeper, spawner, os.environ)) is not None:
                await old.remove(before)
        made = made.model_copy(update={"keeper": keeper or await find_keeper(spawner, os.environ)})
        entry = clock(made.keeper, spawner, os.environ)
        schedules.save(made)
        try:
            where = None if entry is None else await entry.add(made)
        except AarError:
            schedules.remove(made.name)
            raise
    finally:
        spawner.close()
    following = made.times.next(datetime.now(UTC))
    click.echo(sanitize(f"{made.name}: next at {_time(following)}."))
    if where is not None:
        click.echo(sanitize(f"Called by {made.keeper}: {where}."), err=True)
    else:
        import shlex

        words = shlex.join(command_of(made))
        click.echo(sanitize(f"Nobody calls it yet; let something run: {words}"), err=True)


@schedule.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_(as_json: bool) -> None:
    """List schedules with their next times."""
    from aar.orchestration.schedule import Schedules

    base = open_base()
    schedules = Schedules(base.paths.data)
    found = schedules.all()
    for item in found if as_json else ():
        fields = item.model_dump(mode="json", by_alias=True)
        following = item.times.next(datetime.now(UTC))
        fields["next"] = None if following is None else following.isoformat()
        fields["reports"] = [str(path) for path in schedules.reports(item.name)]
        click.echo(json.dumps(fields, ensure_ascii=False))
    if as_json:
        return
    if not found:
        click.echo("There are none; `aar schedule add NAME CRON PROMPT` makes one.", err=True)
    now = datetime.now(UTC)
    rows = [
        (item.name, item.cron, item.zone, _time(item.times.next(now)), item.keeper, item.task.name)
        for item in found
    ]
    Console(sanitize).table(rows, header=("NAME", "CRON", "ZONE", "NEXT", "WITH", "TASK"))
    for item, problem in asyncio.run(_not_current(base, found)):
        told = f"{item.name}: {problem}; `aar schedule renew {item.name}` writes it anew."
        click.echo(sanitize(told), err=True)


async def _not_current(base: Base, found: list[Schedule]) -> list[tuple[Schedule, str]]:
    from aar.orchestration.schedule_keepers import not_current

    spawner = _spawner(base)
    try:
        return await not_current(found, spawner, os.environ)
    finally:
        spawner.close()


def _time(when: datetime | None) -> str:
    return "never" if when is None else f"{when:%Y-%m-%d %H:%M %Z}"


@schedule.command()
@click.argument("names", nargs=-1, required=True)
def remove(names: tuple[str, ...]) -> None:
    """Take schedules away; their reports stay."""
    from aar.orchestration.schedule import Schedules

    base = open_base()
    schedules = Schedules(base.paths.data)
    found = [schedules.get(name) for name in names]
    asyncio.run(_remove(base, schedules, found))


async def _remove(base: Base, schedules: Schedules, found: list[Schedule]) -> None:
    from aar.orchestration.schedule_keepers import clock

    spawner = _spawner(base)
    try:
        for item in found:
            if (entry := clock(item.keeper, spawner, os.environ)) is not None:
                await entry.remove(item)
            schedules.remove(item.name)
            click.echo(sanitize(f"{item.name} is gone."))
    finally:
        spawner.close()


@schedule.command()
@click.argument("names", nargs=-1)
def renew(names: tuple[str, ...]) -> None:
    """Write the entries of schedules anew (of all without NAMES), as this aar writes them."""
    from aar.orchestration.schedule import Schedules

    base = open_base()
    schedules = Schedules(base.paths.data)
    asyncio.run(_renew(base, [schedules.get(name) for name in names] or schedules.all()))


async def _renew(base: Base, found: list[Schedule]) -> None:
    from aar.orchestration.schedule_keepers import clock

    spawner = _spawner(base)
    try:
        for item in found:
            if (entry := clock(item.keeper, spawner, os.environ)) is not None:
                click.echo(sanitize(f"{item.name}: called by {item.keeper}: {await entry.add(item)}."))
            else:
                click.echo(sanitize(f"{item.name}: something of yours calls it; nothing is written."))
    finally:
        spawner.close()


@schedule.command()
@click.argument("name")
def show(name: str) -> None:
    """Print the newest report of a schedule."""
    from aar.orchestration.schedule import Schedules

    schedules = Schedules(open_base().paths.data)
    found = schedules.reports(name)
    if not found:
        schedules.get(name)
        raise NotThereError(f"'{name}' has no report yet; `aar schedule run {name}` runs it now.")
    click.echo(sanitize(found[-1].read_text(encoding="utf-8")), nl=False)


@schedule.command()
@click.argument("name")
@click.option("--due", is_flag=True, help="Only if a time has come for which it was not run.")
def run(name: str, due: bool) -> int:
    """Run a schedule now, keep a report, and tell the notification hooks.

    The exit code is that of its `aar run`.
    """
    from aar.orchestration.schedule import Schedules
    from aar.transports.cli.signals import interruptible

    interruptible()
    # The folder comes first: settings are those of where the work is.
    schedules = Schedules(_data())
    item = schedules.get(name)
    if due and item.due(datetime.now(UTC)) is None:
        return 0
    with schedules.running(name) as free:
        # Read again: another process may have run it meanwhile.
        item = schedules.get(name)
        now = datetime.now(UTC)
        slot = item.due(now)
        if not free:
            click.echo(sanitize(f"{name} runs already."), err=True)
            return 0 if due else 1
        if due and slot is None:
            return 0
        if slot is not None:
            # Before the work: a run that takes the machine down is not begun again and again.
            item = item.model_copy(update={"slot": slot})
            schedules.save(item)
        result = asyncio.run(_run(item))
        file = schedules.report(item, result, now)
    asyncio.run(_tell(item, result))
    click.echo(sanitize(file.read_text(encoding="utf-8")), nl=False)
    return result.exit_code


def _data() -> Path:
    from aar.config.paths import paths

    return paths().data


async def _run(item: Schedule) -> TaskResult:
    from aar.orchestration.batch_child import ChildOptions, run_child, run_words
    from aar.orchestration.batch_results import TaskResult
    from aar.safety.spawn import ProcessSpawner

    if not item.folder.is_dir():
        return TaskResult(id=item.name, exit_code=3, error=f"The folder {item.folder} is not there any more.")
    spawner = ProcessSpawner(item.folder)
    try:
        options = ChildOptions(item.folder)
        words = run_words(item.task, options, item.folder)
        result = await run_child(spawner, words, item.task.prompt, options, item.task.timeout)
    finally:
        spawner.close()
    return result.model_copy(update={"id": item.name, "title": item.task.name})


async def _tell(item: Schedule, result: TaskResult) -> None:
    """Tell the notification hooks; that one of them fails does not make the run a failure."""
    from aar.runtime.notify import notify

    state = "done" if result.status == "done" else f"{result.status.replace('_', ' ')} ({result.stop_reason})"
    try:
        base = open_base(cwd=item.folder if item.folder.is_dir() else None)
        spawner = _spawner(base)
        try:
            problems = await notify(base, spawner, f"Schedule {item.name}: {state}.", result.session_id or "")
        finally:
            spawner.close()
    except AarError as error:
        problems = [str(error)]
    for problem in problems:
        sys.stderr.write(sanitize(problem) + "\n")


def _spawner(base: Base) -> ProcessSpawner:
    from aar.safety.spawn import ProcessSpawner

    return ProcessSpawner(base.workspace, base.config.sandbox, own=base.own_folders)
