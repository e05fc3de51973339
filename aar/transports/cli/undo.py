"""``aar undo``, ``aar redo`` and ``aar checkpoints``: what a session did goes back, and comes again."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import click

from aar.protocol.errors import ConfigurationError, StorageError, UsageError
from aar.protocol.state import ExitCode
from aar.runtime import open_base
from aar.safety.sanitize import sanitize
from aar.transports.cli.console import Console
from aar.transports.cli.groups import NearestGroup

if TYPE_CHECKING:
    from aar.core.file_diffs import FileDiff
    from aar.core.rewind import Scope
    from aar.core.session import Session
    from aar.runtime.base import Base
    from aar.runtime.undo import OnConflict, Undo, UndoReport

_MOST = 20
_SCOPES = ("both", "files", "conversation")


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what undo, redo and restore share."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="As one JSON object."),
        click.option("--dry-run", is_flag=True, help="Tell what would be done, change nothing."),
        click.option("--keep-both", is_flag=True, help="Save your version of a file beside as NAME.yours."),
        click.option("--force", is_flag=True, help="Overwrite files that you changed since (redo has them)."),
        click.option("--session", "session_id", metavar="ID", help="This session; default: the newest here."),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("steps", type=click.IntRange(min=1), default=1, metavar="[N]")
@click.option("--prompts", type=click.IntRange(min=1), metavar="N", help="To before the last N prompts.")
@click.option("--to", "checkpoint", metavar="ID", help="To this checkpoint.")
@click.option("--scope", type=click.Choice(_SCOPES), default="both", help="What goes back; default: both.")
@_options
def undo(
    steps: int,
    prompts: int | None,
    checkpoint: str | None,
    scope: str,
    session_id: str | None,
    force: bool,
    keep_both: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Go back to before the last N steps that changed files (default 1).

    Files that you changed since are not overwritten: nothing is done until you say --keep-both or --force.
    """
    conflict = _on_conflict(force, keep_both)

    async def work(door: Undo) -> UndoReport:
        return await door.undo(
            steps,
            cast("Scope", scope),
            prompts=prompts,
            checkpoint=checkpoint,
            on_conflict=conflict,
            preview=dry_run,
        )

    return _run(work, session_id, as_json, dry_run)


@click.command()
@_options
def redo(session_id: str | None, force: bool, keep_both: bool, dry_run: bool, as_json: bool) -> int:
    """Take the last undo back."""
    conflict = _on_conflict(force, keep_both)

    async def work(door: Undo) -> UndoReport:
        return await door.redo(on_conflict=conflict, preview=dry_run)

    return _run(work, session_id, as_json, dry_run)


@click.group(cls=NearestGroup)
def checkpoints() -> None:
    """List, show, make, restore and tidy up kept states of this folder."""


@checkpoints.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--limit", type=click.IntRange(min=1), default=50, help="The last N; default 50.")
def list_checkpoints(as_json: bool, limit: int) -> None:
    """List the checkpoints of this folder, the newest first."""

    async def work(door: Undo) -> list[Any]:
        return door.list()

    found = asyncio.run(_with_door(work, None, events=False))[-limit:][::-1]
    if as_json:
        for item in found:
            fields = {"id": item.id, "kind": item.kind, "ts": item.ts, "session_id": item.session_id}
            click.echo(json.dumps({**fields, "call_id": item.call_id, "label": item.label}))
        return
    if not found:
        click.echo("There are no checkpoints here yet.")
        return
    rows = [(item.id, _when(item.ts), item.kind, item.session_id[-8:], item.label) for item in found]
    Console(sanitize).table(rows, header=("ID", "TIME", "KIND", "SESSION", "LABEL"))


@checkpoints.command()
@click.argument("checkpoint", metavar="ID")
@click.option("--stat", is_flag=True, help="Names and counts only.")
def show(checkpoint: str, stat: bool) -> None:
    """Show how the files differ now from a checkpoint."""

    async def work(door: Undo) -> list[FileDiff]:
        return await door.changes_since(checkpoint)

    diffs = _found(lambda: asyncio.run(_with_door(work, None, events=False)))
    if not diffs:
        click.echo("Nothing differs from that checkpoint.")
    for diff in diffs:
        click.echo(sanitize(_diff_text(diff, stat)))


@checkpoints.command()
@click.argument("label", default="")
def create(label: str) -> None:
    """Keep the present state, with a LABEL if you like, and print its id."""

    async def work(door: Undo) -> str:
        return (await door.create(label)).id

    click.echo(asyncio.run(_with_door(work, None, events=False)))


@checkpoints.command()
@click.argument("checkpoint", metavar="ID")
@_options
def restore(
    checkpoint: str, session_id: str | None, force: bool, keep_both: bool, dry_run: bool, as_json: bool
) -> int:
    """Bring the files of a checkpoint back; the conversation stays."""
    conflict = _on_conflict(force, keep_both)

    async def work(door: Undo) -> UndoReport:
        return await door.undo(scope="files", checkpoint=checkpoint, on_conflict=conflict, preview=dry_run)

    return _run(work, session_id, as_json, dry_run, optional=True)


@checkpoints.command()
def gc() -> None:
    """Throw away what is older than [checkpoints] keep_days or beyond quota_mb."""
    base = open_base()
    settings = base.config.checkpoints

    async def work(door: Undo) -> Any:
        quota = settings.quota_mb * 1_000_000
        return await door.store.gc(keep_days=settings.keep_days, quota_bytes=quota)

    report = asyncio.run(_with_door(work, None, events=False))
    click.echo(
        f"{report.removed} checkpoints thrown away, {report.kept} kept; "
        f"{report.bytes_before / 1e6:.1f} MB before, {report.bytes_after / 1e6:.1f} MB now."
    )


# --- the door --------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _opened(session_id: str | None, *, events: bool, optional: bool) -> AsyncGenerator[Undo]:
    from aar.runtime.checkpoints import make_store
    from aar.runtime.undo import Undo
    from aar.safety.spawn import ProcessSpawner

    base = open_base()
    if not base.config.checkpoints.enabled:
        raise ConfigurationError("No checkpoints are kept: [checkpoints] enabled is off.")
    session = _session(base, session_id, optional=optional) if events else None
    spawner = ProcessSpawner(base.workspace, base.config.sandbox, own=base.own_folders)
    try:
        yield Undo(make_store(base, spawner), session)
    finally:
        spawner.close()
        if session is not None:
            await session.aclose()


def _session(base: Base, session_id: str | None, *, optional: bool) -> Session | None:
    from aar.core.session import Session

    store = base.store()
    try:
        found = store.find(session_id) if session_id is not None else store.latest(base.workspace)
    except StorageError as error:
        raise ConfigurationError(str(error)) from error
    if found is None:
        if optional:
            return None
        raise ConfigurationError(
            f"There is no session of {base.workspace} yet, so nothing to take back or bring back."
        )
    session = Session.resume(store, found)
    if session.cwd.resolve() != base.workspace:
        where = session.cwd
        session.close()
        raise ConfigurationError(f"That session worked in {where}; go there, or give --session another id.")
    return session


async def _with_door(
    work: Callable[[Undo], Coroutine[Any, Any, Any]],
    session_id: str | None,
    *,
    events: bool = True,
    optional: bool = False,
) -> Any:
    async with _opened(session_id, events=events, optional=optional) as door:
        return await work(door)


def _found(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except StorageError as error:
        raise ConfigurationError(str(error)) from error


def _on_conflict(force: bool, keep_both: bool) -> OnConflict:
    if force and keep_both:
        raise UsageError("--force overwrites your changes and --keep-both saves them beside: take one.")
    if force:
        return "force"
    return "keep_both" if keep_both else "refuse"


def _run(
    work: Callable[[Undo], Coroutine[Any, Any, UndoReport]],
    session_id: str | None,
    as_json: bool,
    dry_run: bool,
    *,
    optional: bool = False,
) -> int:
    report: UndoReport = asyncio.run(_with_door(work, session_id, optional=optional))
    if as_json:
        click.echo(json.dumps(_fields(report), ensure_ascii=False))
    else:
        _tell(report, dry_run)
    whole = (report.done and not report.problems) or (dry_run and not report.conflicts)
    return ExitCode.OK if whole else ExitCode.UNFINISHED


def _fields(report: UndoReport) -> dict[str, Any]:
    return {
        "done": report.done,
        "kind": report.kind,
        "scope": report.scope,
        "to_seq": report.to_seq,
        "checkpoint_id": report.checkpoint_id,
        "restored": list(report.restored),
        "conflicts": [conflict.path for conflict in report.conflicts],
        "beside": report.beside,
        "left_alone": list(report.left_alone),
        "not_kept": report.not_kept,
        "problems": report.problems,
        "irreversible": [{"what": item.what, "why": item.why} for item in report.irreversible],
    }


def _tell(report: UndoReport, dry_run: bool) -> None:
    if report.conflicts and not report.done:
        click.echo("You changed these files since; nothing was overwritten:")
        for conflict in report.conflicts[:_MOST]:
            click.echo(sanitize(_diff_text(conflict.diff, False)))
        click.echo("--keep-both saves your versions as NAME.yours, --force overwrites them (redo has them).")
        return
    what = {"undo": "Undone", "redo": "Done again"}[report.kind]
    click.echo(f"Would be {what.lower()}:" if dry_run else f"{what} ({report.scope}).")
    _lines("  ", report.restored)
    for title, lines in (
        ("Your versions are in:", list(report.beside.values())),
        ("Changed by you only, left as they are:", list(report.left_alone)),
        ("No checkpoint has them:", [f"{path} ({why})" for path, why in report.not_kept.items()]),
        ("Could not be written:", [f"{path} ({why})" for path, why in report.problems.items()]),
        ("Cannot be undone:", [f"{item.what}: {item.why}" for item in report.irreversible]),
    ):
        if lines:
            click.echo(title)
            _lines("  ", lines)


def _lines(indent: str, lines: Any) -> None:
    for line in list(lines)[:_MOST]:
        click.echo(indent + sanitize(line))
    if len(lines) > _MOST:
        click.echo(f"{indent}… and {len(lines) - _MOST} more")


def _diff_text(diff: FileDiff, stat: bool) -> str:
    counts = "binary" if diff.binary else f"+{diff.added} -{diff.removed}"
    lines = [f"  {diff.path} ({diff.action}, {counts}{', ' + diff.mode if diff.mode else ''})"]
    for hunk in () if stat else diff.hunks:
        lines.append(f"  @@ line {hunk.old_start} -> {hunk.new_start}")
        for sign, texts in (("-", hunk.old), ("+", hunk.new)):
            lines += [f"  {sign}{text.decode('utf-8', 'replace').rstrip()}" for text in texts[:40]]
            lines += [f"  {sign}… {len(texts) - 40} more lines"] if len(texts) > 40 else []
    return "\n".join(lines)


def _when(ts: float) -> str:
    return datetime.fromtimestamp(ts).astimezone().strftime("%Y-%m-%d %H:%M:%S")
