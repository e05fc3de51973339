"""Notes that wait: proposed while nobody was there to decide."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from aar.config.files import UnusableFileError, write_atomic
from aar.config.front_matter import read_document
from aar.config.paths import ensure
from aar.memory.notes_format import note_of, render
from aar.protocol.errors import NotThereError, StorageError
from aar.protocol.notes import Note

MAX_WAITING = 200
"""Proposals of all projects; more are not taken."""
_PLACE = ("for_scope", "workspace")


class ProposedNotes:
    """The proposals of all projects, a file each.

    Args:
        folder: Where they lie.
        workspace: The project whose proposals are of interest.
    """

    def __init__(self, folder: Path, workspace: Path) -> None:
        self._folder = folder
        self._workspace = str(workspace)

    def all(self) -> list[Note]:
        """Return the proposals of this project, by name."""
        found: list[Note] = []
        for path in sorted(self._folder.glob("*.md")) if self._folder.is_dir() else []:
            with contextlib.suppress(UnusableFileError):
                document = read_document(path)
                if document is None or document.meta.get("workspace") != self._workspace:
                    continue
                scope = "user" if document.meta.get("for_scope") == "user" else "project"
                found.append(note_of(document, scope))
        return found

    def add(self, note: Note) -> str:
        """Let a note wait; return its name among the proposals.

        Raises:
            UsageError: Too many wait already.
            StorageError: It cannot be written.
        """
        try:
            ensure(self._folder)
            taken = {path.stem for path in self._folder.glob("*.md")}
            if len(taken) >= MAX_WAITING:
                raise NotThereError(
                    f"{MAX_WAITING} notes wait already; look at them with `aar memory list --proposed`."
                )
            mine = {item.name for item in self.all()}
            name, count = note.name, 1
            while name in taken - mine:
                count += 1
                name = f"{note.name}-{count}"
            more = {**note.more, "for_scope": note.scope, "workspace": self._workspace}
            write_atomic(self._folder / f"{name}.md", render(replace(note, more=more)).encode())
        except OSError as error:
            raise StorageError(f"The note cannot be kept in {self._folder} ({error.strerror}).") from error
        return name

    def get(self, name: str) -> Note:
        """Return a proposal as the note that it would be.

        Raises:
            UsageError: There is none of this name.
        """
        for note in self.all():
            if note.name == name.strip():
                more = {key: value for key, value in note.more.items() if key not in _PLACE}
                return replace(note, more=more)
        raise NotThereError(
            f"No note {name[:80]!r} waits here; `aar memory list --proposed` shows those that do."
        )

    def drop(self, name: str) -> None:
        """Forget a proposal.

        Raises:
            UsageError: There is none of this name.
        """
        Path(self.get(name).path).unlink(missing_ok=True)
