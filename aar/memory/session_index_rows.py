"""Tables of the index of sessions, and the row of one file."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aar.memory.session_scan import SessionInfo

VERSION: Final = 1
"""Of the tables; a database of another version is made anew."""

SCHEMA: Final = (
    """CREATE TABLE files (
        id TEXT PRIMARY KEY, project TEXT, name TEXT, head TEXT, size INTEGER, file_size INTEGER,
        mtime_ns INTEGER, words_at INTEGER, title TEXT, named INTEGER, cwd TEXT, model TEXT, updated TEXT,
        events INTEGER, cost_usd REAL, cost_known INTEGER) WITHOUT ROWID""",
    "CREATE TABLE passages (id INTEGER PRIMARY KEY, session_id TEXT, seq INTEGER, kind TEXT)",
    "CREATE INDEX passages_of ON passages (session_id)",
    'CREATE VIRTUAL TABLE words USING fts5(text, tokenize = "unicode61 remove_diacritics 2")',
)

_COLUMNS: Final = (
    "id, project, name, head, size, file_size, mtime_ns, words_at, title, named, cwd, model, updated, "
    "events, cost_usd, cost_known"
)


@dataclass(slots=True)
class FileRow:
    """One session file as the index knows it.

    Attributes:
        info: What lists show; its ``size`` is the place up to which whole lines were read.
        project: Name of the folder that the file lies in.
        head: Hash of the beginning of the first line.
        file_size: Bytes of the file when it was read.
        mtime_ns: Its time of change then.
        words_at: Place up to which texts are indexed.
    """

    info: SessionInfo
    project: str
    head: str = ""
    file_size: int = 0
    mtime_ns: int = 0
    words_at: int = 0

    def is_of(self, path: Path, status: os.stat_result) -> bool:
        """Tell whether the file is still as it was when it was read."""
        same = self.file_size == status.st_size and self.mtime_ns == status.st_mtime_ns
        return same and self.info.path == path


def load_rows(database: sqlite3.Connection, root: Path) -> dict[str, FileRow]:
    """Return all rows by session id."""
    found: dict[str, FileRow] = {}
    for fields in database.execute(f"SELECT {_COLUMNS} FROM files"):  # noqa: S608 - a constant
        row = _row(fields, root)
        found[row.info.id] = row
    return found


def _row(fields: tuple[Any, ...], root: Path) -> FileRow:
    (name, project, file, head, size, file_size, mtime_ns, words_at) = fields[:8]
    (title, named, cwd, model, updated, events, cost_usd, cost_known) = fields[8:]
    info = SessionInfo(
        name,
        title=title,
        cwd=cwd,
        model=model,
        updated=updated,
        events=events,
        cost_usd=cost_usd,
        cost_known=bool(cost_known),
        path=root / project / file,
        named=bool(named),
        size=size,
    )
    return FileRow(info, project, head, file_size, mtime_ns, words_at)


def save_row(database: sqlite3.Connection, row: FileRow) -> None:
    """Write the row of one file."""
    info = row.info
    values = (
        info.id,
        row.project,
        info.path.name if info.path is not None else "",
        row.head,
        info.size,
        row.file_size,
        row.mtime_ns,
        row.words_at,
        info.title,
        info.named,
        info.cwd,
        info.model,
        info.updated,
        info.events,
        info.cost_usd,
        info.cost_known,
    )
    marks = ", ".join("?" * len(values))
    database.execute(f"INSERT OR REPLACE INTO files ({_COLUMNS}) VALUES ({marks})", values)  # noqa: S608 - constants
