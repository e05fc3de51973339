"""Notes: long-term memory as Markdown files of the user and of a project. The files are the truth.

What a person writes with an editor counts like what aar writes. Nothing that looks like a secret is kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from difflib import get_close_matches
from pathlib import Path

from aar.config.files import UnusableFileError, write_atomic
from aar.config.front_matter import read_document
from aar.config.paths import ensure
from aar.memory.notes_check import doubts, similar_notes
from aar.memory.notes_format import checked, note_of, render
from aar.memory.notes_index import NotesIndex
from aar.protocol.errors import NotThereError, StorageError, UsageError
from aar.protocol.notes import Note, NoteHit, NoteScope

MAX_NOTES = 2000
"""Notes of one folder that are read."""


_kept: dict[str, tuple[tuple[int, int, int], Note | None]] = {}
"""Notes by path, with what tells that the file is still the same: parsing takes most of the time."""


def _read(path: Path, scope: NoteScope, inside: Path | None) -> Note | None:
    """Return the note in a file; ``None``: it holds none.

    Raises:
        UnusableFileError: It cannot be read, or leads out of ``inside``.
    """
    try:
        status = path.lstat()
    except OSError:
        return None
    stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
    kept = _kept.get(str(path))
    if kept is not None and kept[0] == stamp and not path.is_symlink():
        return kept[1]
    document = read_document(path, inside=inside)
    note = note_of(document, scope) if document is not None and document.body.strip() else None
    if len(_kept) > 2 * MAX_NOTES:
        _kept.clear()
    _kept[str(path)] = (stamp, note)
    return note


@dataclass
class NoteStore:
    """The notes that count in one project.

    Not for more than one thread at a time.

    Attributes:
        user: Folder of the user's notes.
        project: Folder of the project's notes; ``None``: they do not count here (no trust).
        root: Root of the project, resolved.
        index: Finds them.
        redact: Takes secrets out of text; a note that it would change is refused.
        stale_days: Age at which a note is called old; 0: never.
    """

    user: Path
    project: Path | None
    root: Path
    index: NotesIndex
    redact: Callable[[str], str]
    stale_days: int = 180

    # --- reading ------------------------------------------------------------------------------------------

    def all(self) -> list[Note]:
        """Return all notes, those of the project first, by name."""
        return [*self._of("project"), *self._of("user")]

    def _of(self, scope: NoteScope) -> list[Note]:
        # A link in a project's folder may not show what lies elsewhere, secrets of the project included.
        folder, inside = (self.user, None) if scope == "user" else (self.project, self.project)
        if folder is None or not folder.is_dir():
            return []
        found: list[Note] = []
        try:
            paths = sorted(folder.glob("*.md"))[:MAX_NOTES]
        except OSError:
            return []
        for path in paths:
            with contextlib.suppress(UnusableFileError):
                note = _read(path, scope, inside)
                if note is not None:
                    found.append(note)
        return found

    def get(self, name: str, scope: NoteScope | None = None) -> Note:
        """Return the note ``name``, the project's before the user's.

        Raises:
            UsageError: There is none.
        """
        bare = name.strip().removesuffix(".md")
        wanted, _, rest = bare.partition("/")
        if rest and wanted in ("user", "project"):
            scope, bare = ("user" if wanted == "user" else "project"), rest
        notes = [note for note in self.all() if scope in (None, note.scope)]
        found = next((note for note in notes if note.name == bare), None)
        if found is None:
            near = get_close_matches(bare, [note.name for note in notes], 1, 0.5)
            hint = f"Did you mean {near[0]}?" if near else "`aar memory list` shows all."
            raise NotThereError(f"There is no note {bare[:80]!r}. {hint}")
        return found

    def search(self, query: str, tags: Sequence[str] = (), limit: int = 10) -> list[NoteHit]:
        """Return notes that fit ``query``, the best first; without words all of them, newest first.

        Args:
            query: Words.
            tags: Only notes that have all of these.
            limit: Notes at most.
        """
        notes = self.all()
        wanted = {tag.lower().lstrip("#") for tag in tags}
        chosen = [note for note in notes if wanted <= set(note.tags)]
        if query.strip():
            hits = self.index.search({note.path: note for note in notes}, query, len(notes))
            paths = {note.path for note in chosen}
            hits = [hit for hit in hits if hit.note.path in paths]
        else:
            chosen.sort(key=lambda note: note.updated, reverse=True)
            hits = [NoteHit(note, 0.0) for note in chosen]
        return [self.weighed(hit, notes) for hit in hits[:limit]]

    def recall(self, prompt: str, limit: int) -> list[NoteHit]:
        """Return the notes that belong to a prompt, the best first; none where nothing fits."""
        notes = self.all()
        hits = self.index.fitting({note.path: note for note in notes}, prompt)
        return [self.weighed(hit, notes) for hit in hits[:limit]]

    def weighed(self, hit: NoteHit, notes: Sequence[Note]) -> NoteHit:
        """Return a hit with what is doubtful about it."""
        return replace(hit, warnings=tuple(doubts(hit.note, notes, self.root, self.stale_days)))

    def similar(self, note: Note) -> list[Note]:
        """Return notes that say much the same, under other names."""
        return similar_notes(note, self.all())

    # --- writing ------------------------------------------------------------------------------------------

    def prepare(self, note: Note, today: date | None = None) -> Note:
        """Return ``note`` as it would be kept: named, dated, in place of the one of its name.

        Raises:
            UsageError: It is empty, too long, holds a secret, or its project has no notes here.
        """
        note = checked(note)
        self._demand_no_secret(note)
        folder = self._folder(note.scope)
        now = (today or date.today()).isoformat()
        earlier = next((item for item in self._of(note.scope) if item.name == note.name), None)
        created = earlier.created if earlier is not None else ""
        more = {**(earlier.more if earlier is not None else {}), **note.more}
        path = str(folder / f"{note.name}.md")
        return replace(note, created=created or note.created or now, updated=now, path=path, more=more)

    def save(self, note: Note, today: date | None = None) -> Note:
        """Keep ``note``; one of the same name and scope is replaced. Return it as it is kept.

        Raises:
            UsageError: See `prepare`.
            StorageError: It cannot be written.
        """
        note = self.prepare(note, today)
        folder = self._folder(note.scope)
        try:
            if note.scope == "user":
                ensure(folder)
            else:
                folder.mkdir(parents=True, exist_ok=True)
            target = folder / f"{note.name}.md"
            if note.scope == "project" and (target.is_symlink() or folder.resolve() != folder):
                raise UsageError(f"{target} is or lies behind a link; remove that first.")
            write_atomic(target, render(note).encode(), 0o600 if note.scope == "user" else 0o644)
        except OSError as error:
            raise StorageError(f"The note cannot be written to {folder} ({error.strerror}).") from error
        return note

    def delete(self, note: Note) -> None:
        """Remove a note's file.

        Raises:
            StorageError: It cannot be removed.
        """
        try:
            Path(note.path).unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"{note.path} cannot be removed ({error.strerror}).") from error

    def _folder(self, scope: NoteScope) -> Path:
        folder = self.user if scope == "user" else self.project
        if folder is None:
            raise NotThereError(
                "This project is not trusted, so it keeps no notes; look at it with `aar trust --show`, or "
                "keep the note for yourself (scope user)."
            )
        return folder

    def _demand_no_secret(self, note: Note) -> None:
        for line in (note.title, *note.tags, note.source, *note.body.splitlines(), note.body):
            if self.redact(line) != line:
                place = " ".join(self.redact(line).split())[:80]
                raise UsageError(
                    f"The note is not kept: it holds what looks like a secret ({place}). Write where the "
                    "secret is found instead of what it is."
                )
