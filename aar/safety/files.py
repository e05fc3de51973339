"""Files within the limits: read almost anywhere but secrets, write only in the workspace.

A path is resolved once, judged, and then opened by a walk over folder descriptors in which no step
follows a link. Whoever swaps a folder or file for a link between the judgement and the opening makes the
walk fail; he cannot make it arrive anywhere else.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets as random_names
import stat
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

from aar.protocol.errors import ToolCategory, ToolFailure
from aar.protocol.ports import FileStamp
from aar.safety.beneath import FOLDER, open_beneath
from aar.safety.paths import is_protected, is_secret, matches

MAX_WHOLE_FILE: Final = 64 * 1024 * 1024
"""Bytes of the largest file that is read into memory as a whole."""

_HASH_ALWAYS: Final = 4 * 1024 * 1024
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS: Final = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a link"),
)


class WorkspaceFiles:
    """`FileAccess` for one workspace.

    Attributes:
        root: The workspace, absolute and resolved.
        roots: All folders that may be written.
    """

    def __init__(
        self,
        root: Path,
        *,
        extra_roots: Sequence[Path] = (),
        readable: Sequence[str | Path] = (),
        secrets: Sequence[str | Path] = (),
        protected: Sequence[str] = (),
        changing: Callable[[Path], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Make the access.

        Args:
            root: The workspace.
            extra_roots: More folders that may be written.
            readable: Places or names that may be read although they look secret.
            secrets: More places or names that may not be read.
            protected: More paths in the workspace whose writing asks.
            changing: Surrounds each change of a protected path, so that the wall of a command that runs
                meanwhile takes it as aar's own.
        """
        self.root = Path(os.path.realpath(root))
        self.roots = (self.root, *(Path(os.path.realpath(extra)) for extra in extra_roots))
        self._readable = list(readable)
        self._secrets = tuple(secrets)
        self._protected = tuple(protected)
        self._changing = changing
        self._known: dict[Path, FileStamp] = {}

    # Paths ------------------------------------------------------------------------------------------

    def resolve(self, path: str) -> Path:
        """Return the absolute, symlink-free path; whatever does not exist is taken as written."""
        place = self._place(path)
        try:
            return Path(os.path.realpath(place))
        except (OSError, ValueError) as error:
            self._fail(path, error)

    def display(self, path: Path) -> str:
        """Return the path as the model should see it: relative inside the workspace."""
        if path.is_relative_to(self.root):
            return path.relative_to(self.root).as_posix()
        return path.as_posix()

    def exists(self, path: str) -> bool:
        """Tell whether anything is there."""
        return os.path.lexists(self.resolve(path))

    def is_secret(self, path: Path) -> bool:
        """Tell whether the resolved ``path`` may not be read."""
        if not is_secret(path, extra=self._secrets):
            return False
        return not any(matches(pattern, path) for pattern in self._readable)

    def is_protected(self, path: Path) -> bool:
        """Tell whether writing the resolved ``path`` must ask."""
        inside = next((base for base in self.roots if path.is_relative_to(base)), None)
        return inside is not None and is_protected(path.relative_to(inside), extra=self._protected)

    def may_read(self, path: Path) -> bool:
        """Tell whether the resolved ``path`` may be read."""
        return not self.is_secret(path)

    def unlock(self, path: str) -> None:
        """Let one secret be read (and written, in the workspace) from now on."""
        self._readable.append(self.resolve(path))

    # Reading ----------------------------------------------------------------------------------------

    @contextmanager
    def open_binary(self, path: str) -> Generator[BinaryIO]:
        """Open a regular file for reading; nothing is remembered.

        Raises:
            ToolFailure: ``blocked``, ``not_found`` or ``invalid_arguments``.
        """
        resolved = self._readable_path(path)
        try:
            # Opening a device can have effects of its own, so that its kind is asked before and after.
            self._demand_regular(path, os.lstat(resolved))
            descriptor = _open_from(Path("/"), resolved, _READ)
        except OSError as error:
            self._fail(path, error)
        with os.fdopen(descriptor, "rb", buffering=1 << 18) as file:
            self._demand_regular(path, os.fstat(descriptor))
            os.set_blocking(descriptor, True)
            yield file

    def peek_bytes(self, path: str) -> bytes:
        """Return a file's content without remembering that the model knows it."""
        return self._read(path)[0]

    def read_bytes(self, path: str) -> bytes:
        """Return a regular file's content and remember that the model knows it."""
        data, info = self._read(path)
        self.remember(path, FileStamp(len(data), info.st_mtime_ns, hashlib.sha256(data).hexdigest()))
        return data

    def remember(self, path: str, stamp: FileStamp) -> None:
        """Note which content of ``path`` the model knows."""
        self._known[self.resolve(path)] = stamp

    @property
    def known(self) -> dict[Path, FileStamp]:
        """Which content of which file the model knows, the file that it met last at the end."""
        return dict(self._known)

    def _read(self, path: str) -> tuple[bytes, os.stat_result]:
        with self.open_binary(path) as file:
            info = os.fstat(file.fileno())
            data = file.read(MAX_WHOLE_FILE + 1)
        if len(data) > MAX_WHOLE_FILE:
            raise ToolFailure(
                ToolCategory.INVALID_ARGUMENTS,
                f"{path} is larger than {MAX_WHOLE_FILE >> 20} MiB, too large to take as a whole. "
                "Read a range of lines, or work on it with a command.",
            )
        return data, info

    def _readable_path(self, path: str) -> Path:
        resolved = self.resolve(path)
        if self.is_secret(resolved):
            raise ToolFailure(
                ToolCategory.BLOCKED,
                f"{path} may hold secrets and is not read. Go on without it, or ask the user for it.",
            )
        return resolved

    # Writing ----------------------------------------------------------------------------------------

    def write_bytes(self, path: str, data: bytes) -> None:
        """Replace a file atomically (parents are made, mode bits kept); refuses a stale one."""
        resolved = self._writable_path(path, self.resolve(path))
        try:
            with self._change(resolved), self._parent(resolved, make=True) as folder:
                before = self._examine(path, resolved, folder)
                self._replace(resolved, folder, data, before)
        except OSError as error:
            self._fail(path, error)

    def delete(self, path: str) -> None:
        """Remove a regular file, or a link (not its target); refuses a stale file."""
        place = self._place(path)
        resolved = self._writable_path(path, Path(os.path.realpath(place.parent)) / place.name)
        try:
            with self._change(resolved), self._parent(resolved, make=False) as folder:
                info = os.lstat(resolved.name, dir_fd=folder)
                if not stat.S_ISLNK(info.st_mode):
                    self._demand_regular(path, info)
                    self._demand_fresh(path, resolved, folder, info)
                os.unlink(resolved.name, dir_fd=folder)
        except OSError as error:
            self._fail(path, error)
        self._known.pop(resolved, None)

    def _writable_path(self, path: str, resolved: Path) -> Path:
        if not any(resolved.is_relative_to(base) for base in self.roots):
            where = "" if self._place(path) == resolved else f" (it leads to {resolved})"
            raise ToolFailure(
                ToolCategory.BLOCKED,
                f"{path}{where} is outside the workspace and may not be written. Write below {self.root}.",
            )
        if resolved in self.roots:
            raise ToolFailure(ToolCategory.INVALID_ARGUMENTS, f"{path} is a folder, not a file.")
        if self.is_secret(resolved):
            raise ToolFailure(
                ToolCategory.BLOCKED,
                f"{path} may hold secrets and is not written. Ask the user to change it.",
            )
        return resolved

    def _change(self, resolved: Path) -> AbstractContextManager[object]:
        return self._changing(resolved) if self.is_protected(resolved) else nullcontext()

    @contextmanager
    def _parent(self, resolved: Path, *, make: bool) -> Generator[int]:
        base = next(base for base in self.roots if resolved.is_relative_to(base))
        descriptor = _walk(base, resolved.relative_to(base).parts[:-1], make=make)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _examine(self, path: str, resolved: Path, folder: int) -> os.stat_result | None:
        try:
            info = os.lstat(resolved.name, dir_fd=folder)
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(info.st_mode):
            raise OSError(errno.ELOOP, "link")
        self._demand_regular(path, info)
        if not info.st_mode & 0o222:
            raise ToolFailure(
                ToolCategory.BLOCKED, f"{path} is marked read-only. Ask the user before you change its mode."
            )
        self._demand_fresh(path, resolved, folder, info)
        return info

    def _replace(self, resolved: Path, folder: int, data: bytes, before: os.stat_result | None) -> None:
        temporary = f".{resolved.name[:100]}.{random_names.token_hex(6)}.tmp"
        descriptor = os.open(temporary, _CREATE, 0o666 if before is None else 0o600, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if before is not None:
                    _keep_owner_and_mode(descriptor, before)
                info = os.fstat(descriptor)
            os.rename(temporary, resolved.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
        self._known[resolved] = FileStamp(len(data), info.st_mtime_ns, hashlib.sha256(data).hexdigest())

    # Checks -----------------------------------------------------------------------------------------

    def _demand_fresh(self, path: str, resolved: Path, folder: int, info: os.stat_result) -> None:
        known = self._known.get(resolved)
        if known is None:
            return
        same = (info.st_size, info.st_mtime_ns) == (known.size, known.mtime_ns)
        if same and info.st_size > _HASH_ALWAYS:
            return
        if info.st_size != known.size or _digest(resolved.name, folder) != known.sha256:
            raise ToolFailure(
                ToolCategory.STALE_FILE,
                f"{path} changed on disk since you last read it. Read it again first.",
            )

    def _demand_regular(self, path: str, info: os.stat_result) -> None:
        if stat.S_ISREG(info.st_mode):
            return
        kind = next((name for test, name in _KINDS if test(info.st_mode)), "no regular file")
        hint = " Use list_directory to see what is in it." if kind == "a folder" else ""
        raise ToolFailure(ToolCategory.INVALID_ARGUMENTS, f"{path} is {kind}, not a regular file.{hint}")

    def _place(self, path: str) -> Path:
        """Make a path absolute without following anything."""
        if not path.strip() or "\0" in path:
            raise ToolFailure(
                ToolCategory.INVALID_ARGUMENTS,
                "The path is empty or holds a NUL character. Give a file name.",
            )
        if path == "~" or path.startswith("~/"):
            path = str(Path.home()) + path[1:]
        return Path(re.sub(r"^/+", "/", str(self.root / path)))

    def _fail(self, path: str, error: OSError | ValueError) -> NoReturn:
        number = getattr(error, "errno", None)
        if number == errno.ENOENT:
            raise ToolFailure(ToolCategory.NOT_FOUND, f"There is no file {path}.{self._hint(path)}") from None
        if number == errno.EISDIR:
            raise ToolFailure(ToolCategory.INVALID_ARGUMENTS, f"{path} is a folder, not a file.") from None
        if number == errno.ELOOP:
            raise ToolFailure(
                ToolCategory.BLOCKED, f"{path} goes through a link that loops or changed while it was opened."
            ) from None
        if number in (errno.ENOTDIR, errno.EEXIST):
            raise ToolFailure(
                ToolCategory.INVALID_ARGUMENTS,
                f"A part of {path} is a file, or a link, where a folder is needed.",
            ) from None
        if number in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise ToolFailure(ToolCategory.BLOCKED, f"The system refuses access to {path}.") from None
        if number in (errno.ENXIO, errno.ENODEV, errno.EAGAIN):
            raise ToolFailure(
                ToolCategory.INVALID_ARGUMENTS, f"{path} is a device, pipe or socket, not a regular file."
            ) from None
        if number in (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ, None):
            raise ToolFailure(ToolCategory.INVALID_ARGUMENTS, f"{path[:200]} is no usable path.") from None
        reason = os.strerror(number)
        raise ToolFailure(ToolCategory.EXCEPTION, f"{path} could not be used: {reason}.") from None

    def _hint(self, path: str) -> str:
        from difflib import get_close_matches

        place = self._place(path)
        try:
            names = [entry.name for entry in islice(place.parent.iterdir(), 2000)]
        except OSError:
            return " Use find_files to look for it."
        near = get_close_matches(place.name, names, n=3, cutoff=0.6)
        shown = [self.display(place.parent / name) for name in near]
        return f" Near it: {', '.join(shown)}." if shown else " Use find_files to look for it."


def _walk(base: Path, parts: Sequence[str], *, make: bool) -> int:
    """Open the folder ``base/parts``, following no link; the caller closes it."""
    start = os.open(base, FOLDER)
    try:
        return open_beneath(start, parts, FOLDER)
    except FileNotFoundError:
        if not make:
            raise
    finally:
        os.close(start)
    return _made(base, parts)


def _made(base: Path, parts: Sequence[str]) -> int:
    """Open the folder step by step and make what is missing."""
    descriptor = os.open(base, FOLDER)
    for part in parts:
        try:
            with suppress(FileExistsError):
                os.mkdir(part, 0o777, dir_fd=descriptor)
            following = open_beneath(descriptor, [part], FOLDER)
        finally:
            os.close(descriptor)
        descriptor = following
    return descriptor


def _open_from(base: Path, path: Path, flags: int) -> int:
    start = os.open(base, FOLDER)
    try:
        return open_beneath(start, path.relative_to(base).parts, flags)
    finally:
        os.close(start)


def _keep_owner_and_mode(descriptor: int, before: os.stat_result) -> None:
    made = os.fstat(descriptor)
    if (made.st_uid, made.st_gid) != (before.st_uid, before.st_gid):
        with suppress(OSError):
            os.fchown(descriptor, before.st_uid, before.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode))


def _digest(name: str, folder: int) -> str:
    with os.fdopen(os.open(name, _READ, dir_fd=folder), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
