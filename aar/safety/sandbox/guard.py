"""Protected paths that a wall must let be written: compared after each command, and changes undone.

Everything is done by descriptors of folders that are opened without following links, because a command may
have swapped a folder for a link meanwhile. What is undone is kept aside, for it may have been the user's
own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path

from aar.safety.paths import SHELL_FILES
from aar.safety.sandbox.git_config import changes_execution
from aar.safety.sandbox.masks import MASK_MODE, is_mask

MAX_ENTRIES = 2_000
"""Files and folders of one snapshot; more are told, not watched."""
MAX_FILE_BYTES = 2_000_000
"""A larger file is compared by its stamp, and cannot be restored."""

_WALK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
"""Flags for folders on the way, which need not be readable."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """What lies at one path.

    Attributes:
        kind: ``folder``, ``file``, ``link`` or ``other``.
        mode: Permission bits; 0 for links.
        data: Content of a file, target of a link; ``None`` for a file that is too large.
        stamp: Identity and times of a file.
    """

    kind: str
    mode: int
    data: bytes | None = None
    stamp: tuple[int, int, int, int] = (0, 0, 0, 0)

    def same(self, other: Leaf | None) -> bool:
        """Return whether both are alike; a file that was only touched is."""
        if other is None or (self.kind, self.mode) != (other.kind, other.mode):
            return False
        if self.kind == "file" and (self.data is None or other.data is None):
            return self.stamp == other.stamp
        return self.data == other.data


Snapshot = dict[Path, Leaf]


class Keeper:
    """Takes snapshots; contents are read again only when a file's stamp has changed."""

    def __init__(self) -> None:
        self._known: dict[Path, Leaf] = {}
        self._ways: dict[Path, tuple[Path, ...]] = {}
        self._folders: dict[Path, Path] = {}

    def way(self, path: Path) -> tuple[Path, ...]:
        """Return the folders above ``path``, from the top, without the root."""
        if path not in self._ways:
            # One object for each folder: a dictionary finds the same object without comparing paths.
            above = tuple(reversed(path.parents))[1:]
            self._ways[path] = tuple(self._folders.setdefault(folder, folder) for folder in above)
        return self._ways[path]

    def take(self, paths: Iterable[Path]) -> Snapshot:
        """Return all that lies at and below ``paths`` (absolute), and the folders on the way to them."""
        found: Snapshot = {}
        seen: dict[Path, Leaf | None] = {}
        for path in paths:
            for parent in self.way(path):
                if parent not in seen:
                    seen[parent] = leaf = self._leaf(parent)
                    if leaf is not None:
                        found.setdefault(parent, leaf)
                leaf = seen[parent]
                if leaf is None or leaf.kind != "folder":
                    break
            else:
                self._walk(path, found)
        return found

    def _walk(self, top: Path, found: Snapshot) -> None:
        todo = [top]
        while todo and len(found) < MAX_ENTRIES:
            path = todo.pop()
            leaf = self._leaf(path)
            if leaf is None:
                continue
            found[path] = leaf
            if leaf.kind == "folder":
                with contextlib.suppress(OSError):
                    todo += [path / name for name in sorted(os.listdir(path))]  # noqa: PTH208 - names are enough

    def _leaf(self, path: Path) -> Leaf | None:
        try:
            status = os.lstat(path)
            mode = stat.S_IMODE(status.st_mode)
            if stat.S_ISDIR(status.st_mode):
                # A mask that stands there for another command is nothing.
                return None if mode == MASK_MODE and is_mask(path) else Leaf("folder", mode)
            if stat.S_ISLNK(status.st_mode):
                return Leaf("link", 0, os.fsencode(path.readlink()))
        except OSError:
            return None
        if not stat.S_ISREG(status.st_mode):
            return Leaf("other", mode)
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        known = self._known.get(path)
        if known is None or known.stamp != stamp or known.mode != mode:
            known = Leaf("file", mode, _content(path, status.st_size), stamp)
            self._known[path] = known
        return known


def _content(path: Path, size: int) -> bytes | None:
    if size > MAX_FILE_BYTES:
        return None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    return data if len(data) <= MAX_FILE_BYTES else None


_NOT_MISSED = ("commondir", "config.worktree")
"""Files of git that hardly any repository has."""


class Guard:
    """The protected paths around one command.

    Args:
        keeper: Shared by all commands of a session.
        root: Root of the project, for names.
        paths: What to watch.
        aside: Folder for what is undone.
    """

    def __init__(self, keeper: Keeper, root: Path, paths: Iterable[Path], aside: Path) -> None:
        self._keeper = keeper
        self._root = root
        self._paths = tuple(paths)
        self._aside = aside
        self._before = keeper.take(self._paths)
        self._open: set[Path] = set()
        self._parents = {parent for path in self._paths for parent in keeper.way(path)}

    def open(self, path: Path) -> None:
        """Let ``path`` be changed until `accept`: somebody has leave to."""
        self._open.add(path)

    def accept(self, path: Path) -> None:
        """Take ``path`` as it is now: aar itself has written it, with leave."""
        self._open.discard(path)
        if not any(path.is_relative_to(one) or one.is_relative_to(path) for one in self._paths):
            return
        for old in [old for old in self._before if old.is_relative_to(path)]:
            del self._before[old]
        self._before |= self._keeper.take([path])

    @property
    def unwanted(self) -> tuple[Path, ...] | None:
        """Where nothing is and nobody would miss what is made; ``None``: other paths are watched as well."""
        # Shells read files of theirs in the home only.
        away = self._root != Path.home().resolve()
        idle = {self._root / name for name in SHELL_FILES} if away else set[Path]()
        watched = tuple(path for path in self._paths if path not in idle)
        missed = any(path in self._before or path.name not in _NOT_MISSED for path in watched)
        return None if missed else watched

    def undo(self) -> tuple[str, ...]:
        """Restore what a command has changed; returns one sentence a path."""
        after = self._keeper.take(self._paths)
        changed = [path for path in {**self._before, **after} if self._differs(path, after)]
        notices: list[str] = []
        settled: list[Path] = []
        for path in sorted(changed):
            if any(path.is_relative_to(top) for top in settled):
                continue
            old = self._before.get(path)
            try:
                notices.append(self._restore(path, old, after.get(path)))
            except OSError as error:
                notices.append(f"{self._name(path)} was changed and could not be restored: {error.strerror}.")
            if old is None:
                settled.append(path)
        return tuple(notices)

    def _differs(self, path: Path, after: Snapshot) -> bool:
        old, new = self._before.get(path), after.get(path)
        if any(path.is_relative_to(one) for one in self._open):
            return False
        if (
            path in self._parents
            and (new is None or new.kind == "folder")
            and (old is None or old.kind == "folder")
        ):
            # Only what is watched counts, not the folders on the way, unless one was swapped.
            return new is None and any(p.is_relative_to(path) for p in self._before if p != path)
        if old is not None and old.same(new):
            return False
        if old is None and new is not None and new.kind == "folder" and self._leads_to_open(path):
            return False
        return not self._is_harmless(path, old, new)

    def _is_harmless(self, path: Path, old: Leaf | None, new: Leaf | None) -> bool:
        if new is None:
            return old is None
        if path.name in ("config", "config.worktree") and self._in_git(path):
            before = old.data if old is not None and old.kind == "file" else b""
            plain = new.kind == "file" and before is not None and new.data is not None
            return plain and not changes_execution(before or b"", new.data or b"")
        fresh = old is None and self._in_git(path)
        # git makes hooks that never run in each new repository.
        return fresh and ((path.name == "hooks" and new.kind == "folder") or path.name.endswith(".sample"))

    def _leads_to_open(self, path: Path) -> bool:
        return any(one.is_relative_to(path) for one in self._open)

    @staticmethod
    def _in_git(path: Path) -> bool:
        return ".git" in path.parts or any(part.endswith(".git") for part in path.parts)

    def _name(self, path: Path) -> str:
        inside = path.is_relative_to(self._root)
        return repr(str(path.relative_to(self._root) if inside else path))[1:-1]

    def _restore(self, path: Path, old: Leaf | None, new: Leaf | None) -> str:
        if old is not None and (old.kind == "other" or (old.kind == "file" and old.data is None)):
            raise OSError(0, "it was too large to be kept, or no file")
        with _folder_of(path) as folder:
            if new is not None and not (old is not None and old.kind == new.kind == "folder"):
                self._set_aside(path, new)
                _remove(path.name, folder)
            if old is None:
                return f"{self._name(path)} is protected: what the command made there was removed."
            _put(path.name, old, folder)
        return f"{self._name(path)} is protected: the command's change was undone."

    def _set_aside(self, path: Path, leaf: Leaf) -> None:
        if leaf.kind != "file" or not leaf.data:
            return
        with contextlib.suppress(OSError):
            self._aside.mkdir(parents=True, exist_ok=True, mode=0o700)
            name = f"{time.strftime('%Y%m%d-%H%M%S')}-{time.monotonic_ns()}-{path.name}"
            fd = os.open(self._aside / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(leaf.data)


@contextlib.contextmanager
def _folder_of(path: Path) -> Generator[int]:
    """Open the folder that holds ``path``, following no link."""
    fd = os.open("/", _WALK)
    try:
        for part in path.parts[1:-1]:
            inner = os.open(part, _WALK | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def _remove(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except IsADirectoryError:
        shutil.rmtree(name, dir_fd=folder)
    except PermissionError:  # what unlink says for folders on some systems
        shutil.rmtree(name, dir_fd=folder)


def _put(name: str, leaf: Leaf, folder: int) -> None:
    if leaf.kind == "folder":
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=folder)
    elif leaf.kind == "link":
        os.symlink(leaf.data or b"", os.fsencode(name), dir_fd=folder)
        return
    else:
        fd = os.open(
            name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder
        )
        with os.fdopen(fd, "wb") as file:
            file.write(leaf.data or b"")
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fchmod(fd, leaf.mode)
    finally:
        os.close(fd)
