"""The file of one session, open for writing: whole batches at its end, patient with a failing disk."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from aar.memory.event_lines import Problem, newer_version, parse_line
from aar.memory.file_lock import lock_holder, try_lock, unlock
from aar.protocol.errors import StorageError

_BLOCK = 1 << 16


class SessionOpenError(StorageError):
    """Another process has the session open."""


class SessionFile:
    """One session's file, open for appending. Use `SessionStore.create` or `SessionStore.open`.

    When the disk fails, lines stay in memory in order and are tried again with each append and fsync.

    Attributes:
        path: The file.
        problems: What was found wrong, and repaired, when the file was opened.
        durable: Whether fsync has a meaning.
    """

    durable = True

    def __init__(self, path: Path, *, exclusive: bool = True) -> None:
        self.path = path
        self.problems: list[Problem] = []
        self.newer: int | None = None
        self._exclusive = exclusive
        self._fd: int | None = None
        self._unsaved: deque[bytes] = deque()
        self._written_of_first = 0
        self._write_error: str | None = None
        self._sync_error: str | None = None
        self._expected: int | None = None
        self._guard = threading.Lock()
        self._closing = threading.Lock()

    @property
    def folder(self) -> Path:
        """The folder beside the file for what belongs to the session (made when needed)."""
        return self.path.with_suffix(".d")

    @property
    def degraded(self) -> bool:
        """Whether lines are in memory only, because they could not be written."""
        return bool(self._unsaved) or self.error is not None

    @property
    def error(self) -> str | None:
        """Why writing failed last, as the system says it; ``None`` while all is well."""
        return self._write_error or self._sync_error

    @property
    def unsaved(self) -> list[bytes]:
        """The lines that are in memory only, oldest first."""
        return list(self._unsaved)

    @property
    def whole_size(self) -> int | None:
        """Bytes of the file, when it holds exactly what was there and what was appended; else ``None``."""
        if self._fd is None or self._expected is None or os.fstat(self._fd).st_size != self._expected:
            return None
        return self._expected

    def open_new(self) -> None:
        """Create the file.

        A disk that refuses leaves the file degraded.

        Raises:
            StorageError: It exists already.
        """
        try:
            self._fd = self._create()
            self._expected = 0
        except OSError as error:
            # Not every FileExistsError is about the file: a folder's name may be taken too.
            if isinstance(error, FileExistsError) and self.path.exists():
                taken = f"There is a session {self.path.stem} already; choose another id."
                raise StorageError(taken) from None
            self._fail(error)

    def _create(self) -> int:
        make_private(self.path.parent)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        fd = os.open(self.path, flags, 0o600)
        try_lock(fd)
        return fd

    def open_existing(self) -> None:
        """Open the file, take its lock and repair a torn end.

        Raises:
            StorageError: It does not exist, is not readable, or another process writes it.
        """
        name = self.path.stem
        try:
            self.newer = newer_version(self.path)
            flags = os.O_RDONLY if self.newer else os.O_RDWR | os.O_APPEND
            self._fd = os.open(self.path, flags | os.O_CLOEXEC)
        except FileNotFoundError:
            raise StorageError(f"There is no session {name}; see `aar sessions list`.") from None
        except OSError as error:
            text = f"The session {name} cannot be opened: {error.strerror}."
            raise StorageError(f"{text} `aar run --fork {name}` goes on in a copy.") from None
        if self.newer:
            self.problems.append(Problem(1, _newer_text(name, self.newer)))
            return
        if self._exclusive and not try_lock(self._fd):
            raise self._locked(name)
        try:
            self._repair_end(self._fd)
            self._expected = os.fstat(self._fd).st_size
        except OSError as error:
            self._fail(error)

    def _locked(self, name: str) -> SessionOpenError:
        assert self._fd is not None
        pid = lock_holder(self._fd)
        os.close(self._fd)
        self._fd = None
        who = f"process {pid}" if pid else "another process"
        return SessionOpenError(
            f"The session {name} is open in {who}; close it there, go on in a copy with "
            f"`aar run --fork {name}`, or read it with `aar sessions show {name}`."
        )

    def _repair_end(self, fd: int) -> None:
        """Make the file end with a whole line; a torn one is kept beside it."""
        size = os.fstat(fd).st_size
        if size == 0 or os.pread(fd, 1, size - 1) == b"\n":
            return
        start = _start_of_last_line(fd, size)
        torn = _pread_all(fd, start, size)
        try:
            parse_line(torn)
        except ValueError:
            kept = self._keep_torn(torn)
            os.ftruncate(fd, start)
            self.problems.append(
                Problem(0, f"The last line was cut off by a crash; what was left of it is in {kept}.")
            )
        else:
            os.write(fd, b"\n")

    def _keep_torn(self, torn: bytes) -> Path:
        make_private(self.folder)
        number = 1
        while (path := self.folder / f"torn-{number}").exists():
            number += 1
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            rest = memoryview(torn)
            while rest:
                rest = rest[os.write(fd, rest) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        return path

    def append(self, lines: Sequence[str]) -> None:
        """Write ``lines`` (without line ends) at the end, in one write; they may stay in memory.

        Raises:
            StorageError: The file was written by a newer aar.
        """
        if self.newer:
            raise StorageError(_newer_text(self.path.stem, self.newer))
        with self._guard:
            if not self._unsaved and self._fd is not None:
                self._write_fresh("\n".join((*lines, "")).encode())
            else:
                self._unsaved.extend(f"{line}\n".encode() for line in lines)
                self._retry()

    def _write_fresh(self, data: bytes) -> None:
        assert self._fd is not None
        done = 0
        try:
            while done < len(data):
                done += os.write(self._fd, data[done:] if done else data)
        except OSError as error:
            self._keep_rest(data, done)
            self._fail(error)
        if self._expected is not None:
            self._expected += done

    def _keep_rest(self, data: bytes, done: int) -> None:
        """Hold back the lines of ``data`` that are not whole on disk; ``done`` bytes are."""
        start = data.rfind(b"\n", 0, done) + 1
        self._unsaved.extend(data[start:].splitlines(keepends=True))
        self._written_of_first = done - start

    def _retry(self) -> None:
        try:
            if self._fd is None:
                self._fd = self._create()
            while self._unsaved:
                data = b"".join(self._unsaved)[self._written_of_first :]
                self._forget(os.write(self._fd, data))
        except OSError as error:
            self._fail(error)
        else:
            self._write_error = None

    def _forget(self, written: int) -> None:
        written += self._written_of_first
        while self._unsaved and written >= len(self._unsaved[0]):
            written -= len(self._unsaved.popleft())
        self._written_of_first = written

    def _fail(self, error: OSError) -> None:
        self._write_error = error.strerror or str(error)
        self._expected = None

    def fsync(self) -> None:
        """Bring all that was written to the disk; a failure shows in `degraded`. For a thread."""
        with self._closing:
            with self._guard:
                if self.newer:
                    return
                if self._unsaved or self._fd is None:
                    self._retry()
                fd = self._fd
            if fd is None:
                return
            # Appends go on meanwhile; only closing has to wait.
            try:
                os.fsync(fd)
            except OSError as error:
                self._sync_error = error.strerror or str(error)
            else:
                self._sync_error = None

    def close(self) -> None:
        """Try once more to save what is in memory, give the lock back and close."""
        with self._closing, self._guard:
            if self._unsaved:
                self._retry()
            if self._fd is not None:
                if self._exclusive:
                    unlock(self._fd)
                os.close(self._fd)
                self._fd = None


def make_private(folder: Path) -> None:
    """Make ``folder`` and its missing parents, for the owner only (0700)."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _newer_text(name: str, version: int) -> str:
    return (
        f"The session {name} was written by a newer aar (format {version}) and is read-only here; "
        "update aar to go on with it."
    )


def _start_of_last_line(fd: int, size: int) -> int:
    end = size
    while end > 0:
        begin = max(0, end - _BLOCK)
        at = os.pread(fd, end - begin, begin).rfind(b"\n")
        if at >= 0:
            return begin + at + 1
        end = begin
    return 0


def _pread_all(fd: int, start: int, end: int) -> bytes:
    pieces: list[bytes] = []
    while start < end and (piece := os.pread(fd, end - start, start)):
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)
