"""The state of a small workspace, or of one where git is absent: read here, without a process."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aar.memory.checkpoint_objects import ObjectStore
from aar.memory.checkpoint_state import (
    FILE,
    LINK,
    PROGRAM,
    Entry,
    Files,
    Limits,
    State,
    TooLargeError,
    dump_files,
)

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

MAX_EMPTY: Final = 5_000
"""Empty folders that are remembered."""
_RACY_NS: Final = 50_000_000
"""A file changed less than this before it was read may change again within one tick of its clock."""

_Rules = tuple[tuple[str, "GitIgnoreSpec"], ...]
_Stamp = tuple[int, int, int, int, int]


def ignore_rules(prefix: str, folder: str) -> tuple[str, GitIgnoreSpec] | None:
    """Read the ignore file of ``folder``, and git's own list where it is a repository."""
    lines: list[str] = []
    for name in (".git/info/exclude", ".gitignore"):
        try:
            fd = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(fd, "rb") as file:
                lines += file.read(1_000_000).decode("utf-8", "surrogateescape").splitlines()
        except OSError:
            continue
    lines = [line for line in lines if line.strip() and not line.startswith("#")]
    if not lines:
        return None
    from pathspec import GitIgnoreSpec

    return prefix, GitIgnoreSpec.from_lines(lines)


@dataclass(slots=True)
class _Scan:
    """One walk over the workspace."""

    files: Files = field(default_factory=dict[str, Entry])
    empty: list[str] = field(default_factory=list[str])
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    began_ns: int = field(default_factory=time.time_ns)


class PlainEngine:
    """Walks the workspace and keeps contents; files whose stamp is known are not read again.

    Args:
        root: The workspace.
        objects: Where contents go.
        limits: What is kept.
    """

    def __init__(self, root: Path, objects: ObjectStore, limits: Limits) -> None:
        self._root = str(root)
        self._objects = objects
        self._limits = limits
        self._known: dict[str, tuple[_Stamp, Entry]] = {}

    async def capture(self) -> State:
        """Return the present state; see `aar.memory.checkpoint_state.Engine`."""
        return await asyncio.to_thread(self.take)

    def take(self) -> State:
        """Do the work of `capture`."""
        scan = _Scan()
        self._walk("", (), scan)
        # As in a git index: what was kept once stays kept, also when it is ignored since.
        for path in [path for path in self._known if path not in scan.files and path not in scan.skipped]:
            self._take_file(path, scan, missing_ok=True)
        self._known = {path: item for path, item in self._known.items() if path in scan.files}
        root = self._objects.put(dump_files(scan.files))
        return State("plain", {"": root}, tuple(scan.empty[:MAX_EMPTY]), scan.skipped)

    def _walk(self, prefix: str, rules: _Rules, scan: _Scan) -> None:
        folder = f"{self._root}/{prefix}".rstrip("/")
        try:
            with os.scandir(folder) as found:
                entries = list(found)
        except OSError as error:
            scan.skipped[prefix.rstrip("/")] = f"folder cannot be read: {error.strerror}"
            return
        if not entries and prefix:
            scan.empty.append(prefix.rstrip("/"))
            return
        names = {entry.name for entry in entries}
        if ".git" in names:
            rules = ()  # a repository of its own: the outer one's rules end here
        if (".gitignore" in names or ".git" in names) and (own := ignore_rules(prefix, folder)):
            rules = (*rules, own)
        for entry in entries:
            path = prefix + entry.name
            if entry.name.lower() == ".git":
                continue
            is_folder = entry.is_dir(follow_symlinks=False)
            if rules and _ignored(path, is_folder, rules):
                continue
            if is_folder:
                self._walk(path + "/", rules, scan)
            else:
                self._take_file(path, scan)

    def _take_file(self, path: str, scan: _Scan, *, missing_ok: bool = False) -> None:
        if len(scan.files) >= self._limits.max_files:
            raise TooLargeError
        full = f"{self._root}/{path}"
        try:
            if missing_ok and _through_link(self._root, path):
                return
            status = os.lstat(full)
            stamp = (status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
            known = self._known.get(path)
            if known is not None and known[0] == stamp and self._objects.has(known[1].blob):
                scan.files[path] = known[1]
                return
            if stat.S_ISDIR(status.st_mode) and missing_ok:
                return
            entry = self._keep(full, status)
        except (FileNotFoundError, NotADirectoryError):
            return  # it went away while we looked
        except _LeftOutError as reason:
            scan.skipped[path] = str(reason)
            return
        except PermissionError:
            scan.skipped[path] = "cannot be read"
            return
        scan.files[path] = entry
        if max(status.st_mtime_ns, status.st_ctime_ns) < scan.began_ns - _RACY_NS:
            self._known[path] = (stamp, entry)
        else:
            self._known[path] = ((0, 0, 0, 0, 0), entry)

    def _keep(self, full: str, status: os.stat_result) -> Entry:
        if stat.S_ISLNK(status.st_mode):
            return Entry(LINK, self._objects.put(os.fsencode(os.readlink(full))))  # noqa: PTH115 - Path would tidy it up
        if not stat.S_ISREG(status.st_mode):
            raise _LeftOutError("no regular file")
        if status.st_size > self._limits.max_file_bytes:
            raise _LeftOutError(f"larger than {self._limits.max_file_bytes / 1e6:g} MB")
        fd = os.open(full, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            data = file.read(self._limits.max_file_bytes + 1)
        if len(data) > self._limits.max_file_bytes:
            raise _LeftOutError("grew while it was read")
        return Entry(PROGRAM if status.st_mode & 0o100 else FILE, self._objects.put(data))


class _LeftOutError(Exception):
    """Why a file is not kept."""


def _through_link(root: str, path: str) -> bool:
    """Tell whether a folder on the way to ``path`` is a link (or no folder)."""
    parts = path.split("/")[:-1]
    return any(not _is_real_folder("/".join([root, *parts[:end]])) for end in range(1, len(parts) + 1))


def _is_real_folder(path: str) -> bool:
    return stat.S_ISDIR(os.lstat(path).st_mode)


def _ignored(path: str, is_folder: bool, rules: _Rules) -> bool:
    """Ask the nearest rules first; the first that say anything decide."""
    for prefix, spec in reversed(rules):
        verdict = spec.check_file(path[len(prefix) :] + ("/" if is_folder else "")).include
        if verdict is not None:
            return verdict
    return False
