"""Notes for later sessions: look at them, add, remove, decide on those that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from aar.commands.base import (
    Choice,
    ChoiceItem,
    Command,
    Context,
    Failure,
    Result,
    Table,
    Text,
    one_line,
    starting_with,
)
from aar.memory.notes import NoteStore
from aar.protocol.errors import UsageError
from aar.protocol.notes import Note, NoteHit

_USAGE = (
    "Write /memory, or with one of: search WORDS, show NAME, add TITLE: TEXT, delete NAME, check, waiting."
)


async def _memory(context: Context, argument: str) -> Result:
    """List the notes, or do what the first word says."""
    if not context.runtime.config.memory.enabled:
        return Failure("There are no notes: [memory] enabled is off.")
    verb, _, rest = argument.partition(" ")
    if not verb:
        return await _list(context)
    action = _ACTIONS.get(verb)
    if action is None:
        return Failure(_USAGE)
    return await action(context, rest.strip())


async def _store(context: Context) -> NoteStore:
    from aar.runtime.notes import open_notes

    return await asyncio.to_thread(open_notes, context.runtime.base)


async def _waiting(context: Context, argument: str) -> Result:
    """Show the notes that wait for a decision."""
    from aar.runtime.notes import proposed_notes

    notes = await asyncio.to_thread(proposed_notes(context.runtime.base).all)
    if not notes:
        return Text("No note waits for a decision.")
    items = [
        ChoiceItem(note.name, f"/memory accept {note.name}", one_line(f"{note.title}: {note.body}"))
        for note in notes
    ]
    return Choice(
        "Notes that wait", tuple(items), "/memory accept NAME keeps one, /memory drop NAME forgets it."
    )


async def _list(context: Context) -> Result:
    from aar.runtime.notes import proposed_notes

    hits = (await _store(context)).search("", limit=1000)
    waiting = len(await asyncio.to_thread(proposed_notes(context.runtime.base).all))
    more = f"{waiting} wait for your decision: /memory waiting." if waiting else ""
    if not hits:
        return Text(f"There are no notes yet; /memory add TITLE: TEXT writes one. {more}".strip())
    return _table("Notes", hits, more or "/memory show NAME shows one.")


def _table(title: str, hits: Sequence[NoteHit], note: str) -> Table:
    rows = tuple(
        (
            hit.note.name,
            hit.note.scope,
            hit.note.updated,
            one_line(hit.note.title, 60),
            ", ".join(hit.note.tags),
            one_line("; ".join(hit.warnings), 80),
        )
        for hit in hits
    )
    return Table(title, ("name", "scope", "updated", "title", "tags", "doubts"), rows, note)


async def _search(context: Context, argument: str) -> Result:
    tags = [word[1:] for word in argument.split() if word.startswith("#") and len(word) > 1]
    words = " ".join(word for word in argument.split() if not word.startswith("#"))
    if not words and not tags:
        raise UsageError("Say what to search for: /memory search WORDS #TAG.")
    store = await _store(context)
    hits = await asyncio.to_thread(store.search, words, tags)
    if not hits:
        return Text("No note fits. /sessions search looks through earlier sessions.")
    return _table(f"Notes with {argument}", hits, "/memory show NAME shows one.")


async def _show(context: Context, argument: str) -> Result:
    store = await _store(context)
    note = await asyncio.to_thread(store.get, argument)
    hit = await asyncio.to_thread(lambda: store.weighed(NoteHit(note, 0.0), store.all()))
    facts = [
        note.scope,
        f"written {note.created}" if note.created else "",
        f"changed {note.updated}" if note.updated else "",
        f"from session {note.source}" if note.source else "",
        ", ".join(note.tags),
    ]
    doubts = "".join(f"\n\n> {warning}" for warning in hit.warnings)
    about = " · ".join(fact for fact in facts if fact)
    return Text(f"## {note.title}\n\n*{about}*{doubts}\n\n{note.body}\n\n{note.path}")


async def _add(context: Context, argument: str) -> Result:
    from aar.runtime.notes import keep_note

    user = argument.startswith("--user ")
    words = argument.removeprefix("--user ").strip()
    title, colon, body = words.partition(":")
    if not colon or not body.strip():
        title, _, body = words.partition("\n")
    body, tags = body.strip() or title, [word[1:] for word in title.split() if word.startswith("#")]
    title = " ".join(word for word in title.split() if not word.startswith("#"))
    if not title:
        raise UsageError("Write /memory add TITLE: TEXT; --user before it keeps it for all projects.")
    store = await _store(context)
    scope = "user" if user or store.project is None else "project"
    note = await asyncio.to_thread(store.prepare, Note("", scope, title, body, tuple(tags)))
    alike = await asyncio.to_thread(store.similar, note)
    kept = await asyncio.to_thread(keep_note, context.runtime.base, store, note)
    more = "".join(f" It says much the same as {other.name}." for other in alike)
    return Text(f"Kept as {kept.name}, in {kept.path}.{more}")


async def _delete(context: Context, argument: str) -> Result:
    from aar.runtime.notes import remove_note

    store = await _store(context)
    note = await asyncio.to_thread(store.get, argument)
    await asyncio.to_thread(remove_note, context.runtime.base, store, note)
    return Text(f"The note {note.name} ({note.scope}) is gone.")


async def _edit(context: Context, argument: str) -> Result:
    note = await asyncio.to_thread((await _store(context)).get, argument)
    return Text(f"The file is the note: change {note.path}, or run `aar memory edit {note.name}`.")


async def _check(context: Context, argument: str) -> Result:
    from aar.memory.notes_check import check_notes

    store = await _store(context)
    notes = await asyncio.to_thread(store.all)
    found = await asyncio.to_thread(check_notes, notes, store.root, store.stale_days, store.redact)
    if not found:
        return Text(f"Nothing is doubtful (notes: {len(notes)}).")
    rows = tuple((item.note.name, item.kind, item.sentence) for item in found)
    return Table("Doubtful notes", ("note", "kind", "what"), rows)


async def _accept(context: Context, argument: str) -> Result:
    from aar.runtime.notes import accept_note

    kept = await asyncio.to_thread(accept_note, context.runtime.base, argument)
    return Text(f"Kept as {kept.name}, in {kept.path}.")


async def _drop(context: Context, argument: str) -> Result:
    from aar.runtime.notes import proposed_notes

    await asyncio.to_thread(proposed_notes(context.runtime.base).drop, argument)
    return Text(f"The proposal {argument} is forgotten.")


_ACTIONS: dict[str, Callable[[Context, str], Awaitable[Result]]] = {
    "search": _search,
    "show": _show,
    "add": _add,
    "edit": _edit,
    "delete": _delete,
    "check": _check,
    "waiting": _waiting,
    "accept": _accept,
    "drop": _drop,
}


def _complete(context: Context, text: str) -> Sequence[str]:
    return starting_with(list(_ACTIONS), text) if " " not in text else []


def commands() -> list[Command]:
    """Return the commands of this family."""
    return [
        Command("memory", "Show the notes for later sessions; search, add, remove and check them.", _memory,
                usage="[search|show|add|edit|delete|check|waiting|accept|drop …]", group="look",
                aliases=("notes",), complete=_complete,
                example="/memory add Test database: start it first with make db"),
    ]  # fmt: skip
