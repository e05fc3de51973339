"""The index of all sessions (DESIGN 4): a cache for lists and search, made from the files at any time.

``<root>/session_index.sqlite`` has a row for each session file, with the place up to which it was read, so
that a file that grew is read from there on. Whole texts are indexed when somebody searches, lists need none.
Where the database is damaged it is made anew; where it cannot be written, one in memory does for the moment.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Final, TypeVar

from aar.config.paths import project_key
from aar.memory.session_index_rows import SCHEMA, VERSION, FileRow, load_rows, save_row
from aar.memory.session_scan import Scanner, SessionInfo, time_of
from aar.memory.session_words import Hit, add_words, drop_words, find_words

__all__ = ["Hit", "SessionIndex"]

_WAIT_S: Final = 2.0
_BATCH: Final = 200
_HEAD_BYTES: Final = 512

_T = TypeVar("_T")


class SessionIndex:
    """What is known of all session files below ``root``; nothing that only it knows.

    Not for more than one thread at a time. Close it after use.

    Args:
        root: Folder of all sessions.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file = root / "session_index.sqlite"
        self._database: sqlite3.Connection | None = None

    def __enter__(self) -> SessionIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        if self._database is not None:
            with contextlib.suppress(sqlite3.Error):
                self._database.close()
            self._database = None

    def list(self, cwd: Path | None = None) -> list[SessionInfo]:
        """Return the sessions of one project, or of all, last written first."""

        def work(database: sqlite3.Connection) -> list[SessionInfo]:
            rows = _Refresh(database, self.root).run(words=False)
            return _newest(rows, cwd)

        return self._carefully(work)

    def search(self, query: str, cwd: Path | None = None, limit: int = 50) -> list[Hit]:
        """Return sessions in which all words of ``query`` stand in one message, the best first.

        A word also finds longer ones that begin with it; ``"several words"`` are found side by side.

        Args:
            query: Words.
            cwd: Of this project only.
            limit: Sessions at most.
        """

        def work(database: sqlite3.Connection) -> list[Hit]:
            rows = _Refresh(database, self.root).run(words=True)
            infos = {info.id: info for info in _newest(rows, cwd)}
            return find_words(database, query, infos, limit)

        return self._carefully(work)

    def rebuild(self) -> None:
        """Throw the database away; the next question makes it anew."""
        self.close()
        for suffix in ("", "-journal", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                Path(f"{self.file}{suffix}").unlink(missing_ok=True)

    def _carefully(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do ``work``; when the database is damaged, with a new one; when that fails too, in memory."""
        for attempt in range(2):
            try:
                return work(self._opened())
            except sqlite3.OperationalError as error:
                # Locked, read-only, full: the file may be well, and is left alone.
                self.close()
                if not _is_damage(error):
                    break
                self.rebuild()
            except OSError:
                break
            except (sqlite3.DatabaseError, TypeError, ValueError, OverflowError):
                # Values of other kinds than were written are damage too.
                self.close()
                if attempt == 0:
                    self.rebuild()
        self.close()
        self._database = _prepared(sqlite3.connect(":memory:"))
        return work(self._database)

    def _opened(self) -> sqlite3.Connection:
        if self._database is None:
            # Made first, for the owner only: it holds what the sessions hold.
            os.close(os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._database = _prepared(sqlite3.connect(self.file, timeout=_WAIT_S))
        return self._database


def _is_damage(error: sqlite3.OperationalError) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    # A table that is missing or has other columns is told as a plain error.
    return code in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _prepared(database: sqlite3.Connection) -> sqlite3.Connection:
    database.isolation_level = None
    # A power cut may damage it; then it is made anew.
    database.execute("PRAGMA synchronous = OFF")
    if database.execute("PRAGMA user_version").fetchone()[0] != VERSION:
        with _transaction(database):
            names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for name in ("words", "passages", "files"):
                if (name,) in names:
                    database.execute(f"DROP TABLE {name}")
            for statement in SCHEMA:
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {VERSION}")
    return database


@contextlib.contextmanager
def _transaction(database: sqlite3.Connection) -> Generator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _newest(rows: dict[str, FileRow], cwd: Path | None) -> list[SessionInfo]:
    key = None if cwd is None else project_key(cwd)
    chosen = [row for row in rows.values() if key is None or row.project == key]
    chosen.sort(key=lambda row: (row.mtime_ns, row.info.id), reverse=True)
    return [row.info for row in chosen]


class _Refresh:
    """Brings the database up to what the files are now."""

    def __init__(self, database: sqlite3.Connection, root: Path) -> None:
        self._database = database
        self._root = root

    def run(self, *, words: bool) -> dict[str, FileRow]:
        """Read what is new.

        Args:
            words: Also index the texts.

        Returns:
            All rows by session id.
        """
        rows = load_rows(self._database, self._root)
        stale: list[tuple[str, Path, os.stat_result]] = []
        found: set[str] = set()
        for session_id, path, status in _files(self._root):
            found.add(session_id)
            row = rows.get(session_id)
            fresh = row is not None and row.is_of(path, status)
            if not fresh or (words and row is not None and row.words_at < row.info.size):
                stale.append((session_id, path, status))
        gone = [session_id for session_id in rows if session_id not in found]
        if gone:
            with _transaction(self._database):
                for session_id in gone:
                    del rows[session_id]
                    drop_words(self._database, session_id)
                    self._database.execute("DELETE FROM files WHERE id = ?", (session_id,))
        for start in range(0, len(stale), _BATCH):
            with _transaction(self._database):
                for session_id, path, status in stale[start : start + _BATCH]:
                    self._take(rows, session_id, path, status, words)
        return rows

    def _take(
        self, rows: dict[str, FileRow], session_id: str, path: Path, status: os.stat_result, words: bool
    ) -> None:
        row = rows.get(session_id)
        try:
            with path.open("rb") as file:
                head = hashlib.sha256(file.read(_HEAD_BYTES).split(b"\n")[0]).hexdigest()
                if row is None or not _goes_on(row, path, head, status, file.fileno()):
                    drop_words(self._database, session_id)
                    row = FileRow(SessionInfo(session_id, path=path), path.parent.name, head=head)
                file.seek(row.info.size)
                scanner = Scanner(row.info)
                for raw in file:
                    if not raw.endswith(b"\n"):
                        break
                    scanner.feed(raw)
                    row.info.size += len(raw)
                scanner.finish()
                if words:
                    file.seek(row.words_at)
                    add_words(self._database, session_id, file, row.info.size - row.words_at)
                    row.words_at = row.info.size
        except OSError:
            rows.pop(session_id, None)
            return
        row.info.updated = row.info.updated or time_of(status.st_mtime)
        row.file_size, row.mtime_ns = status.st_size, status.st_mtime_ns
        rows[session_id] = row
        save_row(self._database, row)


def _goes_on(row: FileRow, path: Path, head: str, status: os.stat_result, fd: int) -> bool:
    """Tell whether the file is the one that was read, only longer."""
    if row.info.path != path or row.head != head or status.st_size < row.info.size:
        return False
    return row.info.size == 0 or os.pread(fd, 1, row.info.size - 1) == b"\n"


def _files(root: Path) -> Iterator[tuple[str, Path, os.stat_result]]:
    """Yield id, path and status of every session file: two system calls for each, none for its folder."""
    with contextlib.suppress(OSError), os.scandir(root) as projects:
        for project in projects:
            with contextlib.suppress(OSError), os.scandir(project.path) as entries:
                for entry in entries:
                    if entry.name.endswith(".jsonl"):
                        with contextlib.suppress(OSError):
                            yield entry.name[:-6], Path(entry.path), entry.stat()
