"""``aar plan``: plans of stored sessions and of files: shown, edited, exported, run."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aar.protocol.errors import UsageError
from aar.runtime import open_base
from aar.safety.sanitize import sanitize
from aar.transports.cli.console import Console
from aar.transports.cli.groups import NearestGroup
from aar.transports.cli.options import POSITIVE, runtime_options, take_runtime_options

if TYPE_CHECKING:
    from aar.core.agent import RunResult
    from aar.core.session import Session
    from aar.protocol.events import PlanEvent
    from aar.runtime import Runtime
    from aar.transports.cli.show import Show
    from aar.transports.cli.signals import Signals


@click.group(cls=NearestGroup)
def plan() -> None:
    """List, show, edit, export and run plans."""


@plan.command("list")
@click.option("--all", "everywhere", is_flag=True, help="Of all folders, not of this one only.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_(everywhere: bool, as_json: bool) -> None:
    """List the sessions that have a plan, the newest first."""
    from aar.runtime.plan.files import plans

    base = open_base()
    found = list(plans(base.store(), None if everywhere else base.workspace))
    if as_json:
        for session_id, _title, item in found:
            click.echo(json.dumps(_fields(session_id, item), ensure_ascii=False))
        return
    if not found:
        click.echo('There are no plans here yet; `aar run --mode plan "GOAL"` makes one.')
        return
    rows = [
        (session_id, item.stage, f"{_done(item)}/{len(item.items)}", item.goal or title)
        for session_id, title, item in found
    ]
    Console(sanitize).table(rows, header=("SESSION", "STAGE", "DONE", "GOAL"))


def _done(item: PlanEvent) -> int:
    return sum(step.status == "completed" for step in item.items)


def _fields(session_id: str, item: PlanEvent) -> dict[str, Any]:
    return {
        "session_id": session_id,
        "goal": item.goal,
        "stage": item.stage,
        "revision": item.revision,
        "replans": item.replans,
        "steps": [step.model_dump(mode="json") for step in item.items],
    }


@plan.command()
@click.argument("session_id", metavar="[SESSION]", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def show(session_id: str | None, as_json: bool) -> None:
    """Show the plan of a session; by default that of the newest session with one."""
    from aar.orchestration.plan_text import view

    found, item = _find(session_id)
    if as_json:
        click.echo(json.dumps(_fields(found, item), ensure_ascii=False))
    else:
        click.echo(sanitize(view(item)))


def _find(prefix: str | None) -> tuple[str, PlanEvent]:
    from aar.runtime.plan.files import find_plan

    base = open_base()
    return find_plan(base.store(), base.workspace, prefix)


@plan.command()
@click.argument("session_id", metavar="[SESSION]", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["markdown", "mermaid", "json"]),
    default="markdown",
    show_default=True,
    help="What is written.",
)
@click.option("-o", "--out", type=click.Path(path_type=Path), metavar="FILE", help="Write to FILE.")
def export(session_id: str | None, form: str, out: Path | None) -> None:
    """Write a plan as Markdown, which `aar plan run FILE` takes, as Mermaid or as JSON."""
    from aar.orchestration.plan_text import to_markdown, to_mermaid

    found, item = _find(session_id)
    if form == "json":
        text = json.dumps(_fields(found, item), ensure_ascii=False, indent=2) + "\n"
    else:
        text = to_mermaid(item) if form == "mermaid" else to_markdown(item)
    if out is None:
        click.echo(sanitize(text), nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}.") from error


@plan.command()
@click.argument("session_id", metavar="[SESSION]", required=False)
def edit(session_id: str | None) -> None:
    """Edit a plan in $EDITOR; what is no plan that can be run is refused, and nothing changes."""
    found, _ = _find(session_id)
    asyncio.run(_edit(found))


async def _edit(session_id: str) -> None:
    from aar.orchestration.plan_text import to_markdown, view
    from aar.runtime import open_runtime
    from aar.runtime.plan import current
    from aar.runtime.plan import edit as take
    from aar.transports.tui.prompt.outside import edit_text, editor_command

    command = editor_command(os.environ)
    runtime = open_runtime()
    try:
        session = runtime.open_session(session_id=session_id)
        try:
            before = to_markdown(current(session))
            after = await edit_text(runtime.spawner, command, before, runtime.workspace)
            if after == before:
                click.echo("Nothing was changed.")
            else:
                click.echo(sanitize(view(take(runtime, session, after))))
        finally:
            await session.aclose()
    finally:
        await runtime.aclose()


@plan.command()
@click.argument("which", metavar="[SESSION|FILE]", required=False)
@runtime_options
@click.option("--only", "only", metavar="ID,ID", help="Do these steps, and leave the others out.")
@click.option(
    "--output",
    type=click.Choice(["text", "json", "stream-json"]),
    default="text",
    show_default=True,
    help="What is written.",
)
@click.option("--max-cost", type=POSITIVE, metavar="USD", help="US dollars at most.")
@click.option(
    "--timeout",
    type=POSITIVE,
    metavar="SECONDS",
    help="Wall-clock seconds at most.",
)
@click.option("-q", "--quiet", is_flag=True, help="Write nothing but the report and errors.")
def run(
    which: str | None,
    only: str | None,
    output: str,
    max_cost: float | None,
    timeout: float | None,
    quiet: bool,
    **values: Any,
) -> int:
    """Run a plan, or go on with one that was interrupted or failed.

    Without an argument it is the plan of the newest session that has one. FILE is Markdown as `aar plan
    export` writes it. The exit code is 0 only when every step is done.
    """
    from aar.transports.cli.failures import Interrupted
    from aar.transports.cli.run import report_failure
    from aar.transports.cli.show import Show
    from aar.transports.cli.signals import interruptible

    interruptible()
    show = Show(output, quiet=quiet)
    options = take_runtime_options(values)
    options["flags"] = {"limits.usd": max_cost, "limits.seconds": timeout}
    try:
        return asyncio.run(_run(which, only, options, show))
    except (Exception, KeyboardInterrupt, Interrupted) as error:
        return report_failure(show, error)


async def _run(which: str | None, only: str | None, options: dict[str, Any], show: Show) -> int:
    from aar.runtime import open_runtime
    from aar.transports.cli.signals import Signals

    with Signals(show.clear) as signals:
        runtime = open_runtime(**options)
        try:
            session = _opened(runtime, which)
            try:
                return await _drive(runtime, session, only, show, signals)
            finally:
                signals.cancels(lambda: None)
                await session.aclose()
        finally:
            signals.cancels(lambda: None)
            await runtime.aclose()


def _opened(runtime: Runtime, which: str | None) -> Session:
    """Return the session whose plan is run; a file gets one of its own."""
    from aar.runtime.plan.files import find_plan

    if which is not None and Path(which).suffix.lower() in (".md", ".markdown"):
        return _from_file(runtime, Path(which))
    base = runtime.base
    session_id, _ = find_plan(base.store(), base.workspace, which)
    return runtime.open_session(session_id=session_id)


def _from_file(runtime: Runtime, file: Path) -> Session:
    from aar.orchestration.plan_text import from_markdown
    from aar.runtime.plan import set_down

    try:
        text = (runtime.base.cwd / file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"The plan {file} cannot be read: {getattr(error, 'strerror', None) or error}."
        ) from error
    goal, items = from_markdown(text, runtime.workspace)
    session = runtime.open_session(title=goal or file.stem)
    set_down(session, goal, items, f"from {file}")
    return session


async def _drive(runtime: Runtime, session: Session, only: str | None, show: Show, signals: Signals) -> int:
    from aar.runtime.plan import approve
    from aar.runtime.plan.running import run_plan
    from aar.transports.cli.printers import result_fields

    if only is not None:
        approve(session, only.replace(",", " ").split())
    agent = runtime.agent(session)
    show.on_lost = agent.cancel
    signals.cancels(agent.cancel)
    notices = list(runtime.notices)
    async with show.watching(session, runtime.opening_events(session)):
        for text in notices:
            session.append(runtime.notice(text))
        result: RunResult = await run_plan(runtime, session, agent)
    signals.cancels(lambda: None)
    code = int(result.exit_code) if signals.ended_by is None else 128 + signals.ended_by
    show.finish({**result_fields(result), "exit_code": code}, result)
    return code
