"""``aar batch``: many tasks, each in a work tree or copy of its own, on this machine or on a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from aar.protocol.errors import UsageError
from aar.safety.sanitize import sanitize
from aar.transports.cli.options import POSITIVE, runtime_options, take_runtime_options
from aar.transports.cli.signals import Signals, interruptible

if TYPE_CHECKING:
    from aar.orchestration.batch import Batch, Doer
    from aar.orchestration.batch_child import ChildOptions
    from aar.orchestration.batch_results import Journal, TaskResult
    from aar.orchestration.work_places import Project
    from aar.protocol.ports import Spawner
    from aar.runtime import Base

_PATH = click.Path(path_type=Path)
_PASSED = ("base_url", "config_file", "profile", "sets", "add_dirs", "mcp_configs", "debug")
"""Options that go to each run as they are."""
_FLAGS = {"config_file": "--config", "sets": "--set", "add_dirs": "--add-dir", "mcp_configs": "--mcp-config"}


@click.command()
@click.argument("file", type=_PATH)
@runtime_options
@click.option("-j", "--jobs", type=click.IntRange(1, 64), help="Tasks at a time; by default one a core.")
@click.option("--out", type=_PATH, metavar="DIR", help="Folder of the results.  [default: FILE.results]")
@click.option("--copy", is_flag=True, help="Work in copies of the folder, ignored files included.")
@click.option("--max-steps", type=click.IntRange(min=1), help="Model requests of a task at most.")
@click.option(
    "--max-cost",
    type=POSITIVE,
    metavar="USD",
    help="US dollars of a task at most.",
)
@click.option(
    "--timeout",
    type=POSITIVE,
    metavar="SECONDS",
    help="Seconds of a task at most.",
)
@click.option(
    "--budget",
    type=POSITIVE,
    metavar="USD",
    help="US dollars of all tasks together at most.",
)
@click.option(
    "--verify", multiple=True, metavar="CMD", help="A task goes on until CMD passes, unless it names its own."
)
@click.option("--retry-failed", is_flag=True, help="Do tasks that failed once more.")
@click.option("--scheduler", metavar="ADDRESS", help="Work on the Dask cluster at ADDRESS (extra cluster).")
@click.option("--json", "as_json", is_flag=True, help="Write each result as a line of JSON when it comes.")
def batch(file: Path, **values: Any) -> int:
    """Do many tasks: FILE has one a line, as JSON with a "prompt".

    Start the same line again to go on with what is not done. Results are in FILE.results.
    """
    interruptible()
    options = take_runtime_options(values)
    if options.get("mode") == "ask":
        raise UsageError("Nobody is there to answer questions; take --mode plan, edit or auto.")
    return asyncio.run(_batch(file, options, values))


async def _batch(file: Path, options: dict[str, Any], values: dict[str, Any]) -> int:
    with Signals(lambda: None):
        return await _work(file, options, values)


async def _work(file: Path, options: dict[str, Any], values: dict[str, Any]) -> int:
    from aar.orchestration.batch import finish_project, open_project, work_folder
    from aar.orchestration.batch_results import Journal
    from aar.orchestration.batch_tasks import read_tasks
    from aar.runtime.base import base_arguments, open_base
    from aar.safety.spawn import ProcessSpawner

    tasks = read_tasks(file)
    base = open_base(**base_arguments(options))
    out = (values["out"] or file.with_name(f"{file.stem}.results")).absolute()
    journal = Journal(out)
    spawner = ProcessSpawner(base.workspace, base.config.sandbox, own=base.own_folders)
    try:
        work = work_folder(out)
        project = await open_project(spawner, journal, base.cwd, work, copy=values["copy"])
        async with _doer(spawner, project, journal, base, work, _child(options, values), values) as (
            doer,
            jobs,
        ):
            try:
                code, sentence = await _run(file, tasks, journal, doer, jobs, values)
                await _tell(base, spawner, f"Batch {file.name}: {sentence}")
                return code
            finally:
                if not journal.open_tasks(tasks, again=True):
                    with contextlib.suppress(OSError):
                        await finish_project(spawner, project, work)
    finally:
        spawner.close()
        journal.close()


def _child(options: dict[str, Any], values: dict[str, Any]) -> ChildOptions:
    from aar.orchestration.batch_child import ChildOptions

    flags: list[str] = []
    for name in _PASSED:
        value, flag = options.get(name), _FLAGS.get(name, f"--{name.replace('_', '-')}")
        if value is True:
            flags.append(flag)
        elif isinstance(value, (tuple, list)):
            flags += [f"{flag}={item}" for item in cast("Iterable[object]", value)]
        elif value:
            flags.append(f"{flag}={value}")
    return ChildOptions(
        Path.cwd(),
        tuple(flags),
        model=options.get("model"),
        mode=options.get("mode"),
        agent=options.get("agent"),
        verify=tuple(values["verify"]),
        max_steps=values["max_steps"],
        max_cost=values["max_cost"],
        timeout=values["timeout"],
    )


@contextlib.asynccontextmanager
async def _doer(
    spawner: Spawner,
    project: Project,
    journal: Journal,
    base: Base,
    work: Path,
    child: ChildOptions,
    values: dict[str, Any],
) -> AsyncGenerator[tuple[Doer, int]]:
    """Make who does the tasks; it is told how many at a time."""
    from aar.orchestration.batch import LocalDoer
    from aar.orchestration.work_places import Places

    places = Places(spawner, project, work, journal.folder)
    trusted = base.workspace if base.trusted else None
    if values["scheduler"] is None:
        jobs = max(2, min(8, os.cpu_count() or 2))
        yield LocalDoer(spawner, places, journal, child, base.paths, trusted), values["jobs"] or jobs
        return
    from aar.orchestration.batch_cluster import open_cluster

    address, data = values["scheduler"], base.paths.data
    cluster = open_cluster(address, places, journal, child, data, base.workspace, trusted=base.trusted)
    async with cluster as (doer, threads):
        yield doer, values["jobs"] or threads


async def _run(
    file: Path,
    tasks: list[Any],
    journal: Journal,
    doer: Doer,
    jobs: int,
    values: dict[str, Any],
) -> tuple[int, str]:
    """Do the tasks; return the exit code, and how it went in a sentence."""
    from aar.orchestration.batch import Batch
    from aar.orchestration.batch_results import summary

    before = len(journal.results(tasks))
    show = _Show(len(tasks), before, as_json=values["as_json"])
    if before:
        show.note(f"{before} of {len(tasks)} are known from before.")
    batch = Batch(
        tasks,
        journal,
        doer,
        jobs=jobs,
        budget=values["budget"],
        again=values["retry_failed"],
        told=show.result,
    )
    try:
        await batch.run()
    finally:
        journal.write_tables(tasks, file.name)
    results = journal.results(tasks)
    sentence = summary(results, len(tasks))
    if batch.out_of_money:
        sentence += " The budget is used up; give a larger --budget to go on."
    show.note(f"{sentence} {journal.folder / 'results.md'}")
    return _code(batch, results, len(tasks)), sentence


async def _tell(base: Base, spawner: Spawner, message: str) -> None:
    """Tell the notification hooks; that one of them fails does not make the batch a failure."""
    from aar.protocol.errors import AarError
    from aar.runtime.notify import notify

    try:
        problems = await notify(base, spawner, message)
    except AarError as error:
        problems = [str(error)]
    for problem in problems:
        click.echo(sanitize(problem), err=True)


def _code(batch: Batch, results: list[TaskResult], total: int) -> int:
    if batch.out_of_money:
        return 5
    return 0 if len(results) == total and all(item.status == "done" for item in results) else 1


class _Show:
    """Tells how it goes: a line a task."""

    def __init__(self, total: int, known: int, *, as_json: bool) -> None:
        self._total, self._count, self._json = total, known, as_json

    def result(self, item: TaskResult) -> None:
        self._count += 1
        if self._json:
            click.echo(sanitize(item.model_dump_json()))
            return
        state = "done" if item.status == "done" else f"{item.status.replace('_', ' ')} ({item.stop_reason})"
        changes = f"  +{item.added} -{item.removed}" if item.patch else ""
        line = f"[{self._count}/{self._total}] {item.id}  {state}  {item.duration_s:.1f} s{changes}"
        line += f"  {item.title}"
        click.echo(sanitize(line if item.error is None else f"{line}: {item.error[:200]}"))

    def note(self, text: str) -> None:
        click.echo(sanitize(text), err=True)
