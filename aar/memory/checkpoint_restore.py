"""Bringing files back: byte for byte, through real folders only, each one whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path, PurePosixPath

from aar.memory.checkpoint_state import LINK, PROGRAM, Delta
from aar.protocol.errors import StorageError
from aar.safety.paths import is_secret

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_READABLE_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW

ReadBlob = Callable[[str], bytes]


class Restorer:
    """Writes the ``new`` side of deltas into a folder.

    Args:
        root: The workspace.
        read: Returns a content by its name.
    """

    def __init__(self, root: Path, read: ReadBlob) -> None:
        self._root = root
        self._read = read
        self.problems: dict[str, str] = {}
        """Paths that could not be brought back, with the reason."""

    def apply(self, deltas: Iterable[Delta], made: Sequence[str] = (), gone: Sequence[str] = ()) -> list[str]:
        """Remove what is not in the target, write what is; return the paths that are now as in the target.

        Args:
            deltas: From the present to the target.
            made: Empty folders of the target.
            gone: Empty folders of the present that the target does not have.
        """
        ordered = sorted(deltas, key=lambda delta: delta.path)
        removed = [delta for delta in reversed(ordered) if delta.new is None]
        done = [delta.path for delta in removed if self._guarded(delta, self._remove)]
        written = [delta for delta in ordered if delta.new is not None]
        keep = {*made, *_parents([*made, *(delta.path for delta in written)])}
        emptied = {*gone, *_parents([*gone, *(delta.path for delta in removed)])}
        for folder in sorted(emptied - keep, reverse=True):
            self._remove_folder(folder)
        done += [delta.path for delta in written if self._guarded(delta, self._write)]
        for folder in made:
            with contextlib.suppress(OSError), self._folder(PurePosixPath(folder).parts, make=True):
                pass
        return sorted(done)

    def save_beside(self, path: str, data: bytes, mode: int) -> str:
        """Write ``data`` beside ``path`` under a new name that tells whose it is; return that name."""
        place = PurePosixPath(path)
        for number in range(1, 1000):
            name = f"{place.name}.yours" if number == 1 else f"{place.name}.yours-{number}"
            other = str(place.with_name(name))
            if not os.path.lexists(self._root / other):
                self._put(PurePosixPath(other), data, mode)
                return other
        raise StorageError(f"There are too many copies beside {path}; remove some.")

    def _guarded(self, delta: Delta, work: Callable[[Delta], None]) -> bool:
        parts = PurePosixPath(delta.path).parts
        try:
            if any(part.lower() == ".git" or part == ".." for part in parts) or delta.path.startswith("/"):
                raise StorageError("aar does not write there")
            work(delta)
        except OSError as error:
            self.problems[delta.path] = error.strerror or str(error)
        except StorageError as error:
            self.problems[delta.path] = str(error)
        else:
            return True
        return False

    def _remove(self, delta: Delta) -> None:
        place = PurePosixPath(delta.path)
        with contextlib.suppress(FileNotFoundError), self._folder(place.parts[:-1]) as folder:
            os.unlink(place.name, dir_fd=folder)

    def _remove_folder(self, path: str) -> None:
        """Remove an empty folder; one that holds something (an ignored file) stays."""
        place = PurePosixPath(path)
        with contextlib.suppress(OSError), self._folder(place.parts[:-1]) as folder:
            os.rmdir(place.name, dir_fd=folder)

    def _write(self, delta: Delta) -> None:
        assert delta.new is not None
        self._put(PurePosixPath(delta.path), self._read(delta.new.blob), delta.new.mode)

    def _put(self, place: PurePosixPath, data: bytes, mode: int) -> None:
        with self._folder(place.parts[:-1], make=True) as folder:
            temporary = f".aar-{secrets.token_hex(8)}"
            try:
                if mode == LINK:
                    os.symlink(data, os.fsencode(temporary), dir_fd=folder)
                else:
                    self._write_file(folder, temporary, data, self._bits(folder, place, mode))
                self._make_room(folder, place.name)
                os.replace(temporary, place.name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise

    @staticmethod
    def _make_room(folder: int, name: str) -> None:
        """Let a file take the place of an empty folder; a full one is not touched."""
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                os.rmdir(name, dir_fd=folder)

    @staticmethod
    def _write_file(folder: int, name: str, data: bytes, bits: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=folder)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            os.fchmod(fd, bits)

    def _bits(self, folder: int, place: PurePosixPath, mode: int) -> int:
        """Return the mode bits: of the file that is there, else the usual ones; secrets stay private."""
        try:
            status = os.stat(place.name, dir_fd=folder, follow_symlinks=False)
            bits = stat.S_IMODE(status.st_mode) if stat.S_ISREG(status.st_mode) else None
        except FileNotFoundError:
            bits = None
        if bits is None:
            bits = 0o600 if is_secret(self._root / place) else 0o666 & ~_umask()
        readers = (bits & 0o444) >> 2
        return bits | readers if mode == PROGRAM else bits & ~0o111

    @contextlib.contextmanager
    def _folder(self, parts: Sequence[str], *, make: bool = False) -> Generator[int]:
        """Open a folder below the root, following no link."""
        fd = os.open(self._root, _READABLE_FOLDER)
        try:
            for part in parts:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, dir_fd=fd)
                inner = os.open(part, _FOLDER, dir_fd=fd)
                os.close(fd)
                fd = inner
            yield fd
        finally:
            os.close(fd)


def _umask() -> int:
    """Return the umask, where the system tells without setting another one meanwhile (Linux)."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text("ascii", "replace").splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _parents(paths: Iterable[str]) -> set[str]:
    return {str(parent) for path in paths for parent in PurePosixPath(path).parents if str(parent) != "."}
