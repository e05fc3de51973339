"""Notes put in place: where they lie, who asks before one is kept, which ones come with a prompt."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aar.config.paths import ensure, project_key
from aar.config.trust import TrustStore, fingerprint
from aar.core.tokens import estimate_text
from aar.memory.notes import NoteStore
from aar.memory.notes_index import NotesIndex
from aar.memory.notes_proposed import ProposedNotes
from aar.protocol.errors import ConfigurationError, StorageError, UsageError
from aar.protocol.events import (
    AssistantMessage,
    ContextEvent,
    Event,
    Notice,
    ProviderMeta,
    SessionEvent,
    ToolResult,
    UserMessage,
)
from aar.protocol.ids import new_id
from aar.protocol.messages import ResourceBlock, TextBlock
from aar.protocol.notes import Embedder, Note, NoteAsk, NoteHit, PastWords
from aar.protocol.usage import Usage
from aar.safety.outside import signs_of_injection

if TYPE_CHECKING:
    from aar.core.session import Session
    from aar.runtime.base import Base
    from aar.runtime.parts import Runtime

KEEP, KEEP_FOR_ME, DROP = "Keep it", "Keep it for me only", "Do not keep it"
_PROMPT_CHARS: Final = 4000
_WINDOW_SHARE: Final = 20
"""Recalled notes take at most this part of the model's window."""
_AROUND: Final = 6
_PAST_CHARS: Final = 20_000
_MESSAGE_CHARS: Final = 4000
_EMBEDDERS: Final = "embedders"


def open_notes(base: Base, *, words_only: bool = False) -> NoteStore:
    """Return the notes that count in the project of ``base``; see ``[memory] embeddings``.

    Args:
        base: Settings and folders.
        words_only: Whether they are found by words whatever the settings say.
    """
    from aar.safety.environment import secret_values
    from aar.safety.redact import Redactor

    folder = base.paths.cache / "notes"
    user, project = base.note_folders
    try:
        file: Path | None = ensure(folder) / f"{project_key(base.workspace)}.sqlite"
    except StorageError:
        file = None
    return NoteStore(
        user=user,
        project=project if _may_use_project(base) else None,
        root=base.workspace,
        index=NotesIndex(file, None if words_only else _embedder(base)),
        redact=Redactor(secret_values(os.environ)).redact,
        stale_days=base.config.memory.stale_days,
    )


def _embedder(base: Base) -> Embedder | None:
    """Return what `[memory] embeddings` names, made once for each process and setting."""
    name = base.config.memory.embeddings
    if not name:
        return None
    made: dict[str, Embedder] = base.kept.setdefault(_EMBEDDERS, {})
    if name not in made:
        from aar.providers.embeddings import make_embedder
        from aar.runtime.key_command import key_command

        try:
            made[name] = make_embedder(name, base.config, run_command=key_command(base))
        except ConfigurationError as error:
            made[name] = _NoEmbedder(error)
    return made[name]


class _NoEmbedder:
    """Stands for a setting that is wrong: notes are found by words, and the user hears why."""

    name, least = "", 1.0

    def __init__(self, error: ConfigurationError) -> None:
        self._error = error

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Fail."""
        raise self._error

    def take_usage(self) -> Usage:
        """Return nothing."""
        return Usage()


async def pay_for_vectors(base: Base, session: Session) -> None:
    """Let a session, and the day, pay for the vectors that a server made for it."""
    name = base.config.memory.embeddings
    embedder: Embedder | None = base.kept.get(_EMBEDDERS, {}).get(name)
    usage = Usage() if embedder is None else embedder.take_usage()
    if name is None or not usage.total:
        return
    from aar.providers.catalog import lookup
    from aar.runtime.context import budget_of
    from aar.runtime.model_data import describe

    provider, _, model = name.partition("/")
    told, pricing = describe(base, provider, model, lookup(provider, model, base.config))
    price = told.price if told.price is not None or pricing is None else await pricing.price()
    cost = None if price is None else price.cost(usage)
    meta = ProviderMeta(provider=provider, model=model, usage=usage, cost_usd=cost)
    session.append(meta, scope=session.scope(new_id(), "embeddings"))
    budget_of(base, session).count(cost)


def proposed_notes(base: Base) -> ProposedNotes:
    """Return the notes that wait for a decision in the project of ``base``."""
    return ProposedNotes(base.note_folders[0] / "proposed", base.workspace)


def _may_use_project(base: Base) -> bool:
    """Tell whether the project's notes count: it is trusted, or holds nothing that needs trust yet."""
    if base.trusted:
        return True
    found = fingerprint(base.workspace)
    return not found.items or TrustStore(base.paths).is_trusted(base.workspace, found)


def keep_note(base: Base, store: NoteStore, note: Note) -> Note:
    """Keep a note; trust in a project holds on over a note that the user put there.

    Raises:
        UsageError: It may not be kept.
        StorageError: It cannot be written.
    """
    if note.scope == "user":
        return store.save(note)
    with _Trusting(base) as trust:
        kept = store.save(note)
        trust.changed = kept.path
    return kept


def remove_note(base: Base, store: NoteStore, note: Note) -> None:
    """Remove a note; trust in a project holds on.

    Raises:
        StorageError: It cannot be removed.
    """
    if note.scope == "user":
        store.delete(note)
        return
    with _Trusting(base) as trust:
        store.delete(note)
        trust.changed = note.path


def accept_note(base: Base, name: str) -> Note:
    """Keep a note that waits for a decision.

    Raises:
        UsageError: None of this name waits, or it may not be kept.
        StorageError: It cannot be written.
    """
    waiting = proposed_notes(base)
    kept = keep_note(base, open_notes(base), waiting.get(name))
    waiting.drop(name)
    return kept


class _Trusting:
    """Carries trust over a change that the user made through aar, if nothing else changed meanwhile."""

    def __init__(self, base: Base) -> None:
        self._base = base
        self._store = TrustStore(base.paths)
        self.changed = ""

    def __enter__(self) -> _Trusting:
        found = fingerprint(self._base.workspace)
        trusted = self._store.is_trusted(self._base.workspace, found)
        self._before = {item.path: item.sha256 for item in found.items}
        self._holds = trusted or not found.items
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None or not self._holds or not self.changed:
            return
        root = self._base.workspace
        found = fingerprint(root)
        now = {item.path: item.sha256 for item in found.items}
        other = {path for path in {*now, *self._before} if now.get(path) != self._before.get(path)}
        if other <= {Path(self.changed).relative_to(root).as_posix()}:
            self._store.record(root, found)


class SessionNotes:
    """The notes of one session.

    Args:
        runtime: All parts.
        session: The session.
    """

    def __init__(self, runtime: Runtime, session: Session) -> None:
        self._runtime, self._session = runtime, session
        self._recalled: set[tuple[str, str]] = set()
        self._words_only = False

    async def recall(self, prompt: str) -> list[Event]:
        """Return the events that put notes that fit a prompt before the model, each note once."""
        settings = self._runtime.config.memory
        if not settings.enabled or not settings.recall or not prompt.strip():
            return []
        hits, trouble = await asyncio.to_thread(self._find, prompt[:_PROMPT_CHARS], settings.recall)
        await pay_for_vectors(self._runtime.base, self._session)
        told: list[Event] = [Notice(level="warning", code="notes", message=trouble)] if trouble else []
        fresh = [hit for hit in hits if (hit.note.path, hit.note.updated) not in self._recalled]
        window = self._runtime.active.capabilities.context_window
        budget = min(settings.recall_tokens, (window or 1_000_000) // _WINDOW_SHARE)
        texts = within(fresh, budget)
        if not texts:
            return told
        used = fresh[: len(texts)]
        self._recalled |= {(hit.note.path, hit.note.updated) for hit in used}
        names = ", ".join(hit.note.name for hit in used)
        label = f"Recalled {len(used)} {'note' if len(used) == 1 else 'notes'}: {names}"
        blocks = tuple(TextBlock(text=text) for text in texts)
        return [
            *told,
            Notice(level="info", code="notes", message=f"{label}. /memory shows them."),
            ContextEvent(source="notes", label=label, content=blocks, trusted=False),
        ]

    def _find(self, prompt: str, limit: int) -> tuple[list[NoteHit], str]:
        """Return notes that fit, and what to tell the user."""
        store = open_notes(self._runtime.base, words_only=self._words_only)
        hits = store.recall(prompt, limit)
        # Asked once: a server that is not there would hold up each prompt.
        self._words_only = self._words_only or bool(store.index.trouble)
        return hits, by_words_only(store)


def by_words_only(store: NoteStore) -> str:
    """Return the sentence that tells why words alone counted in the last search; empty: they did not."""
    trouble = store.index.trouble
    return f"Notes are found by words alone now. {trouble}" if trouble else ""


def within(hits: Sequence[NoteHit], budget: int) -> list[str]:
    """Return the texts of notes, the last one cut, in ``budget`` tokens; fewer where there is no room."""
    texts: list[str] = []
    for hit in hits:
        note = hit.note
        lines = [f"Note {note.name} ({note.scope}, {note.updated or 'no date'}): {note.title}"]
        lines += [f"Doubtful: {warning}" for warning in hit.warnings]
        body = note.body
        room = budget - estimate_text("\n".join(lines)) - 20
        if room < 40:
            break
        if estimate_text(body) > room:
            body = f"{body[: room * 3].rsplit(None, 1)[0]} … (memory_read {note.name} gives the rest)"
        texts.append("\n".join([*lines, body]))
        budget -= estimate_text(texts[-1])
    return texts


@dataclass(frozen=True)
class CallNotes:
    """The `aar.protocol.notes.NoteKeeper` of one tool call."""

    runtime: Runtime
    session: Session
    event: Event
    outside: Callable[[], bool]

    async def search(self, query: str, tags: Sequence[str], limit: int) -> list[NoteHit]:
        """Return notes that fit; see `aar.protocol.notes.NoteKeeper`."""
        base = self.runtime.base
        hits = await asyncio.to_thread(lambda: open_notes(base).search(query, tags, limit))
        await pay_for_vectors(base, self.session)
        return hits

    async def search_sessions(self, query: str, limit: int) -> list[PastWords]:
        """Return places of earlier sessions."""
        store, own = self.runtime.store, self.session.session_id
        hits = await asyncio.to_thread(store.search, query, self.runtime.workspace, limit + 1)
        return [
            PastWords(
                f"{hit.session.id}#{hit.seq}",
                hit.session.title,
                hit.session.updated[:10],
                hit.kind,
                hit.plain,
            )
            for hit in hits
            if hit.session.id != own
        ][:limit]

    async def read(self, name: str) -> NoteHit:
        """Return a note."""

        def find() -> NoteHit:
            store = open_notes(self.runtime.base)
            return store.weighed(NoteHit(store.get(name), 0.0), store.all())

        return await asyncio.to_thread(find)

    async def past(self, reference: str) -> str:
        """Return what was said around a place of an earlier session of this project."""
        session_id, _, seq = reference.strip().partition("#")
        if not seq.isdigit():
            raise UsageError("A place in a session is written SESSION_ID#NUMBER, as memory_search gives it.")
        return await asyncio.to_thread(self._past, session_id, int(seq))

    def _past(self, session_id: str, seq: int) -> str:
        store = self.runtime.store
        of_project = {info.id for info in store.list(self.runtime.workspace)}
        found = store.find(session_id) if session_id else ""
        if found not in of_project:
            raise UsageError("There is no such session in this project.")
        lines: list[str] = []
        # A few events more than are shown: not all of them are words.
        for event in store.read(found, max(1, seq - 3 * _AROUND), None, frozenset({"prompt"})):
            if (event.seq or 0) > seq + 3 * _AROUND:
                break
            text = _words(event)
            if text:
                lines.append(f"[{event.seq}] {text[:_MESSAGE_CHARS]}")
        return "\n\n".join(lines)[:_PAST_CHARS] or "Nothing was said there."

    async def propose(self, note: Note, ask: NoteAsk) -> str:
        """Let the user decide whether a note is kept; see `aar.protocol.notes.NoteKeeper`."""
        base, settings = self.runtime.base, self.runtime.config.memory
        if not settings.enabled or settings.write == "off":
            raise UsageError("Notes are not written here ([memory] write).")
        store = await asyncio.to_thread(open_notes, base)
        source = f"{self.session.session_id}#{self.event.seq}" if self.event.seq else self.session.session_id
        if note.scope == "project" and store.project is None:
            note = replace(note, scope="user")
        note = await asyncio.to_thread(store.prepare, replace(note, source=source))
        concerns = await asyncio.to_thread(self._concerns, store, note)
        doubtful = self.outside() or _speaks_up(note) or self.runtime.mode == "plan"
        if settings.write == "auto" and not doubtful:
            kept = await asyncio.to_thread(keep_note, base, store, note)
            return f"Kept as {kept.name} ({kept.scope})."
        answer = await ask(self._question(note, concerns), _options(note))
        if answer is None:
            name = await asyncio.to_thread(proposed_notes(base).add, note)
            return f"Nobody is here to decide, so the note {name} waits: aar memory accept {name}."
        if answer not in (KEEP, KEEP_FOR_ME):
            said = f" They said: {answer}" if answer and answer != DROP else ""
            return f"The user does not want this note; it is not kept.{said}"
        if answer == KEEP_FOR_ME:
            note = replace(note, scope="user")
        kept = await asyncio.to_thread(keep_note, base, store, note)
        return f"Kept as {kept.name} ({kept.scope})."

    def _concerns(self, store: NoteStore, note: Note) -> list[str]:
        found: list[str] = []
        notes = store.all()
        earlier = next((item for item in notes if (item.name, item.scope) == (note.name, note.scope)), None)
        if earlier is not None:
            found.append(f"It replaces the note {note.name} of {earlier.updated}: {earlier.body[:300]}")
        found += [f"It says much the same as {other.name}." for other in store.similar(note)]
        hit = store.weighed(NoteHit(note, 0.0), notes)
        found += [f"It {warning}." for warning in hit.warnings]
        if self.outside():
            found.append("Text from outside came in before it was proposed; read it with care.")
        if _speaks_up(note):
            found.append("It speaks as if it could give orders to a model.")
        return found

    def _question(self, note: Note, concerns: Sequence[str]) -> str:
        place = Path(note.path)
        root = self.runtime.workspace
        shown = place.relative_to(root) if place.is_relative_to(root) else place
        tags = f" [{', '.join(note.tags)}]" if note.tags else ""
        parts = [
            f"Keep this note for later sessions, in {shown}?",
            f"{note.title}{tags}\n\n{note.body}",  # whole: who agrees must have seen all of it
            *concerns,
        ]
        return "\n\n".join(parts)


def _speaks_up(note: Note) -> bool:
    """Tell whether a note speaks to a model like a prompt."""
    return signs_of_injection("\n".join((note.title, " ".join(note.tags), note.body)))


def _options(note: Note) -> list[str]:
    return [KEEP, *([KEEP_FOR_ME] if note.scope == "project" else []), DROP]


def _words(event: Event) -> str:
    match event:
        case UserMessage():
            blocks = [item.text for item in event.content if isinstance(item, TextBlock | ResourceBlock)]
            return f"user: {' '.join(blocks)}"
        case AssistantMessage():
            return f"assistant: {event.content}"
        case ToolResult():
            return f"{event.tool_name}: {event.output}"
        case SessionEvent():
            return f"session: {event.title}" if event.title else ""
        case _:
            return ""
