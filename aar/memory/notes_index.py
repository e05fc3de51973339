"""The full-text index of notes: a cache beside the files, brought up to date before each question.

The files are the truth. Where the database is damaged or cannot be written, one in memory does instead.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Final, TypeVar

from aar.protocol.notes import Note, NoteHit

_VERSION: Final = 1
_SCHEMA: Final = (
    "CREATE TABLE files (id INTEGER PRIMARY KEY, path TEXT UNIQUE, stamp TEXT)",
    "CREATE VIRTUAL TABLE notes USING fts5 (title, tags, body, tokenize = 'porter unicode61')",
)
_FIND: Final = (
    # The weights are those of title, tags and body.
    "SELECT path, bm25(notes, 4.0, 3.0, 1.0), snippet(notes, 2, '', '', '…', 16) FROM notes "
    "JOIN files ON files.id = notes.rowid WHERE notes MATCH ?"
)
_HALF_LIFE_DAYS: Final = 120.0
_RECENT: Final = 0.5
"""What a note of today gains over one that is very old, as a share."""
_OF_PROJECT: Final = 1.25
_MOST_WORDS: Final = 32
_WORD: Final = re.compile(r"\w+")
# Scripts that put no spaces between words: the tokenizer would take a sentence as one word.
_UNSPACED: Final = re.compile(r"[\u0e00-\u0eff\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
_COMMON: Final = frozenset(
    _WORD.findall(
        """
    a about add after again all also an and any are as at be been before but by can change check
    code could create did do does done each edit every file files find first fix for from get give
    go good has have help here how i if in into is it its just know last let like line lines list
    look make many may me more most must my need new no not now of off ok on one only open or other
    our out over please project put read run same say see set should show so some still stop such
    sure take tell than that the their them then there these they thing this those to too try two up
    us use used using very want was way we well were what when where which while who why will with
    work works would write you your
    """
    )
)
"""Words that stand in any prompt and say nothing of what it is about."""
_T = TypeVar("_T")


def telling_words(text: str) -> list[str]:
    """Return the words of ``text`` that say what it is about, in order, each once."""
    found = (word for word in _WORD.findall(text.lower()) if word not in _COMMON)
    kept = (word for word in found if len(word) > 2 or _UNSPACED.search(word))
    return list(dict.fromkeys(kept))[:_MOST_WORDS]


class NotesIndex:
    """Finds notes by words. Not for more than one thread at a time.

    Args:
        file: The database; ``None``: in memory.
    """

    def __init__(self, file: Path | None) -> None:
        self.file = file

    def search(self, notes: Mapping[str, Note], query: str, limit: int) -> list[NoteHit]:
        """Return the notes in which words of ``query`` stand, the best first.

        Words are found in other forms too; a word also finds longer ones that begin with it.

        Args:
            notes: All notes by path; those that are not among them are forgotten.
            query: Words.
            limit: Notes at most.
        """
        words = [word for word in _WORD.findall(query.lower()) if word]
        telling = [word for word in words if word not in _COMMON] or words
        if not telling:
            return []
        if _UNSPACED.search(query):
            return _by_parts(notes, query, limit)
        wanted = " OR ".join(f'"{word}" *' for word in telling[:_MOST_WORDS])

        def work(database: sqlite3.Connection) -> list[NoteHit]:
            rows = database.execute(_FIND, (wanted,))
            return [NoteHit(notes[path], _ranked(notes[path], -rank), " ".join(snippet.split()))
                    for path, rank, snippet in rows if path in notes]  # fmt: skip

        hits = self._carefully(notes, work)
        return sorted(hits, key=lambda hit: (-hit.score, hit.note.name))[:limit]

    def fitting(self, notes: Mapping[str, Note], prompt: str) -> list[NoteHit]:
        """Return the notes that belong to a prompt, the best first.

        A note belongs to it when a telling word stands in its title or tags, or two stand in its text.
        """
        words = telling_words(prompt)
        if not words or not notes:
            return []
        if _UNSPACED.search(prompt):
            return _by_parts(notes, prompt, len(notes))

        def work(database: sqlite3.Connection) -> list[NoteHit]:
            points: dict[str, float] = {}
            weights: dict[str, float] = {}
            for word in words:
                places = {
                    place: _paths(database, f'{{{place}}} : "{word}"') for place in ("title tags", "body")
                }
                either = places["title tags"] | places["body"]
                worth = math.log(1 + len(notes) / len(either)) if either else 0.0
                for path in either & notes.keys():
                    strong = path in places["title tags"]
                    points[path] = points.get(path, 0.0) + (2 if strong else 1)
                    weights[path] = weights.get(path, 0.0) + worth * (2 if strong else 1)
            return [
                NoteHit(notes[path], _ranked(notes[path], weights[path]))
                for path, count in points.items()
                if count >= 2
            ]

        return sorted(self._carefully(notes, work), key=lambda hit: (-hit.score, hit.note.name))

    def _carefully(self, notes: Mapping[str, Note], work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do ``work``; when the database is damaged, with a new one; when that fails too, in memory."""
        for _ in range(2 if self.file is not None else 0):
            try:
                with contextlib.closing(self._opened()) as database:
                    _refresh(database, notes)
                    return work(database)
            except sqlite3.OperationalError as error:
                if (getattr(error, "sqlite_errorcode", 0) & 0xFF) != sqlite3.SQLITE_ERROR:
                    break  # locked, read-only or full: the file may be well
                self.rebuild()
            except OSError:
                break
            except sqlite3.DatabaseError:
                self.rebuild()
        with contextlib.closing(_prepared(sqlite3.connect(":memory:"))) as database:
            _refresh(database, notes)
            return work(database)

    def rebuild(self) -> None:
        """Throw the database away; the next question makes it anew."""
        if self.file is not None:
            for suffix in ("", "-journal", "-wal", "-shm"):
                with contextlib.suppress(OSError):
                    Path(f"{self.file}{suffix}").unlink(missing_ok=True)

    def _opened(self) -> sqlite3.Connection:
        assert self.file is not None
        # Made first, for the owner only: it holds what the notes hold.
        os.close(os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        return _prepared(sqlite3.connect(self.file, timeout=2.0))


def _prepared(database: sqlite3.Connection) -> sqlite3.Connection:
    database.isolation_level = None
    database.execute("PRAGMA synchronous = OFF")
    if database.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
        database.execute("BEGIN IMMEDIATE")
        for name in ("notes", "files"):
            database.execute(f"DROP TABLE IF EXISTS {name}")
        for statement in _SCHEMA:
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {_VERSION}")
        database.execute("COMMIT")
    return database


def _stamp(note: Note) -> str:
    """Return what changes when the words of a note do."""
    import hashlib

    return hashlib.sha256("\0".join((note.title, " ".join(note.tags), note.body)).encode()).hexdigest()


def _refresh(database: sqlite3.Connection, notes: Mapping[str, Note]) -> None:
    """Let the database hold exactly the notes that there are."""
    known = {path: (row, stamp) for row, path, stamp in database.execute("SELECT id, path, stamp FROM files")}
    stamps = {path: _stamp(note) for path, note in notes.items()}
    gone = [row for path, (row, stamp) in known.items() if stamps.get(path) != stamp]
    fresh = [path for path, stamp in stamps.items() if known.get(path, (0, ""))[1] != stamp]
    if not gone and not fresh:
        return
    database.execute("BEGIN IMMEDIATE")
    try:
        for row in gone:
            database.execute("DELETE FROM notes WHERE rowid = ?", (row,))
            database.execute("DELETE FROM files WHERE id = ?", (row,))
        for path in fresh:
            note = notes[path]
            row = database.execute(
                "INSERT INTO files (path, stamp) VALUES (?, ?)", (path, stamps[path])
            ).lastrowid
            texts = (note.title, " ".join(note.tags), note.body.replace("\0", " "))
            database.execute(
                "INSERT INTO notes (rowid, title, tags, body) VALUES (?, ?, ?, ?)", (row, *texts)
            )
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _paths(database: sqlite3.Connection, match: str) -> set[str]:
    rows = database.execute(
        "SELECT path FROM notes JOIN files ON files.id = notes.rowid WHERE notes MATCH ?", (match,)
    )
    return {path for (path,) in rows}


def _ranked(note: Note, fit: float) -> float:
    """Return how well a note fits: recent ones and those of the project count more."""
    # BM25 gives next to nothing for a word that stands in most notes; then age and scope decide.
    share = 1 + _RECENT * recency(note.updated)
    return (max(fit, 0.0) + 0.01) * share * (_OF_PROJECT if note.scope == "project" else 1.0)


def recency(updated: str, today: date | None = None) -> float:
    """Return 1 for a date of today, less for older ones, 0 where none is known."""
    try:
        days = ((today or date.today()) - date.fromisoformat(updated)).days
    except ValueError:
        return 0.0
    return 0.5 ** (max(days, 0) / _HALF_LIFE_DAYS)


def _by_parts(notes: Mapping[str, Note], text: str, limit: int) -> list[NoteHit]:
    """Look through all notes for pairs of neighbouring signs, for scripts without spaces."""
    pairs = {run[at : at + 2] for run in _UNSPACED.findall(text) for at in range(max(1, len(run) - 1))}
    hits: list[NoteHit] = []
    for note in notes.values():
        whole = f"{note.title}\n{' '.join(note.tags)}\n{note.body}"
        found: Sequence[str] = [pair for pair in pairs if pair in whole]
        if len(found) >= min(2, len(pairs)):
            hits.append(NoteHit(note, _ranked(note, float(len(found)))))
    return sorted(hits, key=lambda hit: (-hit.score, hit.note.name))[:limit]
