"""``aar memory``: notes for later sessions."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aar.protocol.errors import UsageError
from aar.runtime import open_base
from aar.safety.sanitize import sanitize
from aar.transports.cli.console import Console
from aar.transports.cli.groups import NearestGroup

if TYPE_CHECKING:
    from datetime import datetime

    from aar.protocol.notes import Note, NoteHit

_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
_CWD = click.option("--cwd", type=click.Path(path_type=Path), help="The notes of this folder's project.")
_TAGS = click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only notes with this tag.")


@click.group(cls=NearestGroup)
def memory() -> None:
    """Keep notes for later sessions: yours, and those of a project."""


@memory.command("list")
@_TAGS
@click.option(
    "--since",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="Only notes that were changed on this day or later, such as 2026-01-31.",
)
@click.option("--proposed", is_flag=True, help="Those that wait for your decision.")
@_JSON
@_CWD
def list_(
    tags: tuple[str, ...], since: datetime | None, proposed: bool, as_json: bool, cwd: Path | None
) -> None:
    """List notes, the newest first."""
    from aar.protocol.notes import NoteHit
    from aar.runtime.notes import open_notes, proposed_notes

    base = open_base(cwd=cwd)
    if proposed:
        hits = [NoteHit(note, 0.0) for note in proposed_notes(base).all()]
    else:
        hits = open_notes(base).search("", tags, 10_000)
    if since is not None:
        day = since.date().isoformat()
        hits = [hit for hit in hits if hit.note.updated >= day]
    _print(hits, as_json)


@memory.command()
@click.argument("words", metavar="QUERY", nargs=-1, required=True)
@_TAGS
@click.option("--limit", type=click.IntRange(min=1), default=10, show_default=True, help="Notes at most.")
@_JSON
@_CWD
def search(
    words: tuple[str, ...], tags: tuple[str, ...], limit: int, as_json: bool, cwd: Path | None
) -> None:
    """Find notes by words, the best first."""
    from aar.runtime.notes import by_words_only, open_notes

    store = open_notes(open_base(cwd=cwd))
    _print(store.search(" ".join(words), tags, limit), as_json)
    if told := by_words_only(store):
        click.echo(sanitize(told), err=True)


def _print(hits: list[NoteHit], as_json: bool) -> None:
    if as_json:
        for hit in hits:
            click.echo(json.dumps(_fields(hit), ensure_ascii=False))
        return
    rows = [
        (hit.note.name, hit.note.scope, hit.note.updated, hit.note.title, ", ".join(hit.note.tags))
        for hit in hits
    ]
    Console(sanitize).table(rows, header=("NAME", "SCOPE", "UPDATED", "TITLE", "TAGS"))
    for hit in hits:
        for warning in hit.warnings:
            click.echo(sanitize(f"{hit.note.name}: {warning}"), err=True)
    if not hits:
        click.echo("There are none.", err=True)


def _fields(hit: NoteHit) -> dict[str, object]:
    note = hit.note
    return {
        "name": note.name,
        "scope": note.scope,
        "title": note.title,
        "tags": list(note.tags),
        "created": note.created,
        "updated": note.updated,
        "source": note.source,
        "path": note.path,
        "snippet": hit.snippet,
        "warnings": list(hit.warnings),
    }


@memory.command()
@click.argument("name")
@_CWD
def show(name: str, cwd: Path | None) -> None:
    """Print one note as it is in its file."""
    from aar.memory.notes_format import render
    from aar.protocol.notes import NoteHit
    from aar.runtime.notes import open_notes

    store = open_notes(open_base(cwd=cwd))
    note = store.get(name)
    click.echo(sanitize(render(note)), nl=False)
    for warning in store.weighed(NoteHit(note, 0.0), store.all()).warnings:
        click.echo(sanitize(f"{note.name}: {warning}"), err=True)


@memory.command()
@click.argument("title")
@click.argument("text", required=False)
@click.option("--user", is_flag=True, help="For all projects, not for this one only.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="A word to find it by.")
@click.option("--name", default="", help="Its name; by default made from the title.")
@_CWD
def add(title: str, text: str | None, user: bool, tags: tuple[str, ...], name: str, cwd: Path | None) -> None:
    """Keep a note: TITLE and TEXT; without TEXT, or with '-', standard input brings it.

    A note of the same name is replaced.
    """
    from aar.protocol.notes import Note

    if text is None and sys.stdin.isatty():
        raise UsageError("Give the text of the note, or '-' and write it to standard input.")
    body = sys.stdin.read() if text is None or text == "-" else text
    _keep(cwd, Note(name, "user" if user else "project", title, body, tags))


def _keep(cwd: Path | None, note: Note) -> None:
    from aar.runtime.notes import keep_note, open_notes

    base = open_base(cwd=cwd)
    store = open_notes(base)
    alike = store.similar(store.prepare(note))
    kept = keep_note(base, store, note)
    click.echo(sanitize(f"{kept.name}: {kept.path}"))
    for other in alike:
        click.echo(sanitize(f"{other.name} says much the same; keep one of them."), err=True)


@memory.command()
@click.argument("name")
@_CWD
def edit(name: str, cwd: Path | None) -> None:
    """Change a note in your editor ($VISUAL, $EDITOR)."""
    from aar.config.front_matter import Document, split
    from aar.memory.notes_format import note_of, render
    from aar.runtime.notes import keep_note, open_notes
    from aar.safety.spawn import ProcessSpawner
    from aar.transports.tui.prompt.outside import edit_text, editor_command

    base = open_base(cwd=cwd)
    store = open_notes(base)
    note = store.get(name)
    before = render(note)
    spawner = ProcessSpawner(base.workspace, base.config.sandbox, own=base.own_folders)
    try:
        after = asyncio.run(edit_text(spawner, editor_command(os.environ), before, base.workspace))
    finally:
        spawner.close()
    if after.strip() == before.strip():
        click.echo("Nothing was changed.", err=True)
        return
    meta, body = split(after)
    changed = note_of(Document(Path(note.path), meta, body), note.scope)
    kept = keep_note(base, store, replace(changed, created=note.created))
    click.echo(sanitize(f"{kept.name}: {kept.path}"))


@memory.command()
@click.argument("names", nargs=-1, required=True)
@_CWD
def delete(names: tuple[str, ...], cwd: Path | None) -> None:
    """Remove notes and their files."""
    from aar.runtime.notes import open_notes, remove_note

    base = open_base(cwd=cwd)
    store = open_notes(base)
    for note in [store.get(name) for name in names]:
        remove_note(base, store, note)
        click.echo(sanitize(f"{note.name} ({note.scope}) is gone."))


@memory.command()
@_JSON
@_CWD
def check(as_json: bool, cwd: Path | None) -> int:
    """Point out old notes, contradictions, doubles, secrets, and files that are gone. 1: there are some."""
    from aar.memory.notes_check import check_notes
    from aar.runtime.notes import open_notes

    store = open_notes(open_base(cwd=cwd))
    notes = store.all()
    found = check_notes(notes, store.root, store.stale_days, store.redact)
    for item in found:
        fields = {"name": item.note.name, "scope": item.note.scope, "kind": item.kind, "what": item.sentence}
        line = json.dumps(fields, ensure_ascii=False) if as_json else f"{item.note.name}: {item.sentence}"
        click.echo(sanitize(line))
    if not found and not as_json:
        click.echo(f"Nothing is doubtful (notes: {len(notes)}).")
    return 1 if found else 0


@memory.command()
@click.argument("names", nargs=-1, required=True)
@_CWD
def accept(names: tuple[str, ...], cwd: Path | None) -> None:
    """Keep notes that wait for your decision."""
    from aar.runtime.notes import accept_note

    base = open_base(cwd=cwd)
    for name in names:
        kept = accept_note(base, name)
        click.echo(sanitize(f"{kept.name}: {kept.path}"))


@memory.command()
@click.argument("names", nargs=-1, required=True)
@_CWD
def drop(names: tuple[str, ...], cwd: Path | None) -> None:
    """Forget notes that wait for your decision."""
    from aar.runtime.notes import proposed_notes

    waiting = proposed_notes(open_base(cwd=cwd))
    for name in names:
        waiting.drop(name)
        click.echo(sanitize(f"{name} is forgotten."))
