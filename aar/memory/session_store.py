"""Session files (DESIGN 4): ``<root>/<project-key>/<session_id>.jsonl``, one event a line, append-only.

`SessionStore` keeps them on disk, `MemoryStore` only as long as the process lives; both are an `EventStore`.
"""

from __future__ import annotations

import os
import re
import shutil
from builtins import list as List  # noqa: N812 - the stores have a method named list
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from aar.config.paths import project_key
from aar.memory.event_lines import Place, Problem, read_events, tail_events
from aar.memory.file_lock import lock_holder, try_lock
from aar.memory.session_file import SessionFile
from aar.memory.session_scan import SessionInfo
from aar.protocol.errors import StorageError
from aar.protocol.events import Event

if TYPE_CHECKING:
    from aar.memory.session_words import Hit

__all__ = ["EventFile", "EventStore", "Problem", "SessionFile", "SessionInfo", "SessionStore"]

_SAFE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SUFFIX = ".jsonl"


class EventFile(Protocol):
    """One session, open for appending."""

    problems: List[Problem]
    durable: bool

    @property
    def error(self) -> str | None:
        """Why writing failed last; ``None`` while all is well."""
        ...

    @property
    def folder(self) -> Path | None:
        """Folder for what belongs to the session besides its events; ``None``: nowhere."""
        ...

    @property
    def degraded(self) -> bool:
        """Whether lines are in memory only, because they could not be written."""
        ...

    @property
    def unsaved(self) -> List[bytes]:
        """Those lines, oldest first."""
        ...

    @property
    def whole_size(self) -> int | None:
        """Bytes of the file, when it holds exactly what was there and what was appended; else ``None``."""
        ...

    def append(self, lines: Sequence[str]) -> None:
        """Write ``lines`` at the end, in one write."""
        ...

    def fsync(self) -> None:
        """Bring all that was written to the disk."""
        ...

    def close(self) -> None:
        """Give the session free."""
        ...


class EventStore(Protocol):
    """All sessions."""

    def create(self, session_id: str, cwd: Path) -> EventFile:
        """Begin a session."""
        ...

    def open(self, session_id: str, *, exclusive: bool = True) -> EventFile:
        """Open a session for appending."""
        ...

    def read(
        self,
        session_id: str,
        start_seq: int = 1,
        problems: List[Problem] | None = None,
        skip: frozenset[str] = frozenset(),
        place: Place | None = None,
    ) -> Iterator[Event]:
        """Yield the stored events from ``start_seq`` on, without those of the types in ``skip``.

        Those behind ``place``, which is moved to the end.
        """
        ...

    def tail(self, session_id: str, count: int) -> List[Event]:
        """Return the last ``count`` stored events."""
        ...

    def exists(self, session_id: str) -> bool:
        """Tell whether there is such a session."""
        ...


class SessionStore:
    """Sessions as files.

    Args:
        root: The folder of all sessions, such as ``<data>/sessions``; made when needed.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def create(self, session_id: str, cwd: Path) -> SessionFile:
        """Begin a session of the project at ``cwd``. A disk that refuses gives a degraded file.

        Raises:
            StorageError: The id is taken or is no id.
        """
        _check_id(session_id)
        if self._find_path(session_id) is not None:
            raise StorageError(f"There is a session {session_id} already; choose another id.")
        file = SessionFile(self.root / project_key(cwd) / f"{session_id}{_SUFFIX}")
        file.open_new()
        return file

    def open(self, session_id: str, *, exclusive: bool = True) -> SessionFile:
        """Open a session for appending; a torn last line is put aside first.

        Args:
            session_id: The whole id.
            exclusive: Take the lock. Without it nothing keeps two writers apart.

        Raises:
            StorageError: It does not exist, cannot be opened, or another process has it open.
        """
        file = SessionFile(self.path(session_id), exclusive=exclusive)
        file.open_existing()
        return file

    def path(self, session_id: str) -> Path:
        """Return the file of a session.

        Raises:
            StorageError: There is none.
        """
        path = self._find_path(session_id)
        if path is None:
            raise StorageError(f"There is no session {session_id}; see `aar sessions list`.")
        return path

    def read(
        self,
        session_id: str,
        start_seq: int = 1,
        problems: List[Problem] | None = None,
        skip: frozenset[str] = frozenset(),
        place: Place | None = None,
    ) -> Iterator[Event]:
        """Yield the events from ``start_seq`` on, without those of the types in ``skip``.

        Lines that are no events go into ``problems``. See `read_events` for ``place``.

        Raises:
            StorageError: There is no such session, or it cannot be read.
        """
        path = self.path(session_id)
        try:
            yield from read_events(path, start_seq, problems, skip, place)
        except OSError as error:
            raise _unreadable(session_id, error) from error

    def tail(self, session_id: str, count: int) -> List[Event]:
        """Return the last ``count`` events, without reading the rest of the file.

        Raises:
            StorageError: There is no such session, or it cannot be read.
        """
        path = self.path(session_id)
        try:
            return tail_events(path, count)
        except OSError as error:
            raise _unreadable(session_id, error) from error

    def exists(self, session_id: str) -> bool:
        """Tell whether there is such a session."""
        return self._find_path(session_id) is not None

    def find(self, prefix: str) -> str:
        """Return the one session id that starts with ``prefix``, in any project; case does not matter.

        Raises:
            StorageError: None does, or more than one.
        """
        wanted = prefix.strip().upper()
        if not wanted:
            raise StorageError("The id of the session is empty; see `aar sessions list`.")
        ids = sorted(path.stem for path in self._paths() if path.stem.upper().startswith(wanted))
        exact = [name for name in ids if name.upper() == wanted]
        if exact or len(ids) == 1:
            return (exact or ids)[0]
        if not ids:
            raise StorageError(f"No session starts with {prefix!r}; see `aar sessions list`.")
        shown = ", ".join(ids[:5]) + (", …" if len(ids) > 5 else "")
        raise StorageError(f"{len(ids)} sessions start with {prefix!r} ({shown}); give more of the id.")

    def latest(self, cwd: Path) -> str | None:
        """Return the session of the project at ``cwd`` that was written last."""
        paths = self._paths(cwd)
        return max(paths, key=_age, default=Path()).stem or None

    def list(self, cwd: Path | None = None) -> List[SessionInfo]:
        """Return the sessions of one project, or of all, last written first; unreadable ones are left out.

        Raises:
            StorageError: The folder of all sessions cannot be read.
        """
        # Imported here: most commands need no database.
        from aar.memory.session_index import SessionIndex

        if not self._is_there():
            return []
        with SessionIndex(self.root) as index:
            return index.list(cwd)

    def search(self, query: str, cwd: Path | None = None, limit: int = 50) -> List[Hit]:
        """Return the sessions in which something is found; see `SessionIndex.search`.

        Raises:
            StorageError: The folder of all sessions cannot be read.
        """
        from aar.memory.session_index import SessionIndex

        if not self._is_there():
            return []
        with SessionIndex(self.root) as index:
            return index.search(query, cwd, limit)

    def delete(self, session_id: str) -> None:
        """Remove a session and what belongs to it.

        Raises:
            StorageError: There is none, it is open somewhere, or the disk refuses.
        """
        path = self.path(session_id)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if not try_lock(fd):
                    who = f"process {pid}" if (pid := lock_holder(fd)) else "another process"
                    raise StorageError(f"The session {session_id} is open in {who}; close it there first.")
                path.unlink()
            finally:
                os.close(fd)
        except OSError as error:
            raise StorageError(f"The session {session_id} cannot be deleted: {error.strerror}.") from error
        shutil.rmtree(path.with_suffix(".d"), ignore_errors=True)

    def _is_there(self) -> bool:
        if not self.root.is_dir():
            return False
        if not os.access(self.root, os.R_OK | os.X_OK):
            raise StorageError(f"The sessions in {self.root} cannot be read: no permission for this folder.")
        return True

    def _paths(self, cwd: Path | None = None) -> List[Path]:
        pattern = f"{'*' if cwd is None else project_key(cwd)}/*{_SUFFIX}"
        return [*self.root.glob(pattern)]

    def _find_path(self, session_id: str) -> Path | None:
        _check_id(session_id)
        return next(iter(self.root.glob(f"*/{session_id}{_SUFFIX}")), None)


def _check_id(session_id: str) -> None:
    if not _SAFE_ID.fullmatch(session_id):
        raise StorageError(f"{session_id!r} is no session id; see `aar sessions list`.")


def _age(path: Path) -> tuple[int, str]:
    try:
        return path.stat().st_mtime_ns, path.stem
    except OSError:
        return 0, path.stem


def _unreadable(session_id: str, error: OSError) -> StorageError:
    return StorageError(f"The session {session_id} cannot be read: {error.strerror}.")
