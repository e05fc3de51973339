"""Sessions that live as long as the process (``--no-session``)."""

from __future__ import annotations

from builtins import list as List  # noqa: N812 - the stores have a method named list
from collections.abc import Iterator, Sequence
from pathlib import Path

from aar.config.paths import project_key
from aar.memory.event_lines import Place, Problem, parse_line
from aar.memory.session_scan import SessionInfo, scan_events
from aar.memory.session_words import Hit
from aar.protocol.errors import StorageError
from aar.protocol.events import Event


class MemoryFile:
    """One session in memory. Never degraded; fsync means nothing."""

    durable = False
    folder: Path | None = None
    degraded = False

    def __init__(self, session_id: str, project: str) -> None:
        self.session_id = session_id
        self.project = project
        self.lines: list[bytes] = []
        self.problems: list[Problem] = []
        self.is_open = True

    @property
    def error(self) -> str | None:
        """Always ``None``."""
        return None

    @property
    def unsaved(self) -> list[bytes]:
        """Always empty."""
        return []

    @property
    def whole_size(self) -> int | None:
        """Always ``None``: there is no file."""
        return None

    def append(self, lines: Sequence[str]) -> None:
        """Keep ``lines``."""
        self.lines.extend(line.encode() for line in lines)

    def fsync(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Give the session free; it can be opened again."""
        self.is_open = False


class MemoryStore:
    """Sessions in memory, with the interface of `SessionStore`."""

    def __init__(self) -> None:
        self._files: dict[str, MemoryFile] = {}

    def create(self, session_id: str, cwd: Path) -> MemoryFile:
        """Begin a session.

        Raises:
            StorageError: The id is taken.
        """
        if session_id in self._files:
            raise StorageError(f"There is a session {session_id} already; choose another id.")
        self._files[session_id] = MemoryFile(session_id, project_key(cwd))
        return self._files[session_id]

    def open(self, session_id: str, *, exclusive: bool = True) -> MemoryFile:
        """Open a session of this process again.

        Raises:
            StorageError: There is none, or it is open.
        """
        file = self._file(session_id)
        if exclusive and file.is_open:
            raise StorageError(f"The session {session_id} is open already; go on there, or fork it.")
        file.is_open = True
        return file

    def read(
        self,
        session_id: str,
        start_seq: int = 1,
        problems: List[Problem] | None = None,
        skip: frozenset[str] = frozenset(),
        place: Place | None = None,
    ) -> Iterator[Event]:
        """Yield the events from ``start_seq`` on."""
        for raw in tuple(self._file(session_id).lines):
            event = parse_line(raw)
            if (event.seq is None or event.seq >= start_seq) and event.type not in skip:
                yield event

    def tail(self, session_id: str, count: int) -> List[Event]:
        """Return the last ``count`` events."""
        lines = self._file(session_id).lines
        return [parse_line(raw) for raw in lines[max(0, len(lines) - count) :]]

    def exists(self, session_id: str) -> bool:
        """Tell whether there is such a session."""
        return session_id in self._files

    def find(self, prefix: str) -> str:
        """Return the one session id that starts with ``prefix``.

        Raises:
            StorageError: None does, or more than one.
        """
        ids = [name for name in self._files if name.upper().startswith(prefix.strip().upper())]
        if len(ids) != 1:
            raise StorageError(f"{len(ids) or 'No'} sessions start with {prefix!r}; give the whole id.")
        return ids[0]

    def latest(self, cwd: Path) -> str | None:
        """Return the newest session of the project at ``cwd``."""
        ids = [name for name, file in self._files.items() if file.project == project_key(cwd)]
        return max(ids, default=None)

    def list(self, cwd: Path | None = None) -> List[SessionInfo]:
        """Return the sessions of one project, or of all, the newest first."""
        key = None if cwd is None else project_key(cwd)
        names = sorted((n for n, f in self._files.items() if key in (None, f.project)), reverse=True)
        return [scan_events(name, self._files[name].lines) for name in names]

    def search(self, query: str, cwd: Path | None = None, limit: int = 50) -> List[Hit]:
        """Return nothing: what is not kept is not indexed."""
        return []

    def delete(self, session_id: str) -> None:
        """Forget a session.

        Raises:
            StorageError: There is none.
        """
        self._file(session_id)
        del self._files[session_id]

    def _file(self, session_id: str) -> MemoryFile:
        file = self._files.get(session_id)
        if file is None:
            raise StorageError(f"There is no session {session_id} in this process.")
        return file
