"""The state of a large workspace, by git: its index is the cache of stamps, its objects are what is kept.

The git directory, index and configuration are aar's own (see `aar.memory.checkpoint_git_run`). Nothing of the
user's repository is read but ignore files, and nothing is written.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from aar.memory.checkpoint_git_run import Git, complaints
from aar.memory.checkpoint_objects import ObjectStore
from aar.memory.checkpoint_scan import MAX_EMPTY
from aar.memory.checkpoint_state import Delta, Entry, Files, Limits, State, TooLargeError
from aar.protocol.errors import StorageError

EMPTY_TREE: Final = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""Name of the tree without entries; git knows it without having it."""
MAX_NESTED: Final = 50
"""Repositories inside the workspace that are kept too."""
_NO_ENTRY: Final = "0" * 40


class GitEngine:
    """Takes states of a workspace as git trees, one for each repository in it.

    Args:
        git: Runs git.
        root: The workspace.
        objects: The same objects, for what needs no process.
        limits: What is kept.
        excludes: More files of ignore patterns (the user's own).
    """

    def __init__(
        self, git: Git, root: Path, objects: ObjectStore, limits: Limits, excludes: Iterable[Path] = ()
    ) -> None:
        self._git = git
        self._root = root
        self._objects = objects
        self._limits = limits
        self._excludes = tuple(excludes)
        self._trees: dict[str, tuple[_IndexStamp, str]] = {}
        self._left_out: dict[str, set[bytes]] = {}

    async def capture(self) -> State:
        """Return the present state; see `aar.memory.checkpoint_state.Engine`."""
        roots: dict[str, str] = {}
        empty: list[str] = []
        skipped: dict[str, str] = {}
        todo = [""]
        while todo:
            prefix = todo.pop(0)
            found = await self._take(prefix)
            roots[prefix] = found.tree
            empty += found.empty
            skipped |= found.skipped
            for nested in found.nested:
                if len(roots) + len(todo) > MAX_NESTED:
                    skipped[nested] = f"one of more than {MAX_NESTED} repositories inside"
                else:
                    todo.append(nested)
        return State("git", roots, tuple(dict.fromkeys(empty))[:MAX_EMPTY], skipped)

    def forget(self) -> None:
        """Forget what was written: the indexes are gone."""
        self._trees.clear()
        self._left_out.clear()

    async def files(self, tree: str, prefix: str = "") -> Files:
        """Return the entries of one tree."""
        output = await self._git.demand("ls-tree", "-r", "-z", "--full-tree", tree)
        files: Files = {}
        for line in output.split(b"\0"):
            head, _, path = line.partition(b"\t")
            if path:
                mode, _, blob = head.decode("ascii").split(" ")
                files[_joined(prefix, os.fsdecode(path))] = Entry(int(mode, 8), blob)
        return files

    async def compare(self, old: str, new: str, prefix: str = "") -> list[Delta]:
        """Return how two trees differ."""
        if old == new:
            return []
        output = await self._git.demand("diff-tree", "-r", "-z", "--no-renames", old, new)
        parts = output.split(b"\0")
        deltas: list[Delta] = []
        for head, path in zip(parts[::2], parts[1::2], strict=False):
            modes = head.decode("ascii").lstrip(":").split(" ")
            before, after = (
                None if blob == _NO_ENTRY else Entry(int(mode, 8), blob)
                for mode, blob in ((modes[0], modes[2]), (modes[1], modes[3]))
            )
            deltas.append(Delta(_joined(prefix, os.fsdecode(path)), before, after))
        return deltas

    async def _take(self, prefix: str) -> _Found:
        """Bring the index of one repository up to date and write its tree; a broken index is made anew."""
        index = "index" if not prefix else "index-" + hashlib.sha256(os.fsencode(prefix)).hexdigest()[:16]
        try:
            return await self._update(prefix, index)
        except StorageError:
            (self._git.folder / index).unlink(missing_ok=True)
            self._trees.pop(prefix, None)
            self._left_out.pop(prefix, None)
            return await self._update(prefix, index)

    async def _update(self, prefix: str, index: str) -> _Found:
        root = self._root / prefix if prefix else self._root
        found = _Found()
        changed = await self._changed(root, prefix, index, found)
        if len(changed) > self._limits.max_files:
            raise TooLargeError
        file = self._git.folder / index
        known = self._trees.get(prefix)
        # Another process may have brought the shared index up to date.
        is_fresh = known is not None and known[0] == _stamp(file)
        add, remove = self._sort(root, prefix, changed, found)
        if add or remove or not is_fresh:
            if remove:
                lines = b"".join(b"0 %s\t%s\0" % (_NO_ENTRY.encode(), path) for path in remove)
                await self._git.demand(
                    "update-index", "-z", "--index-info", root=root, index=index, stdin=lines
                )
            await self._add(root, prefix, index, add, found)
            if found.hidden:
                return await self._update(prefix, index)
            tree = await self._git.demand("write-tree", root=root, index=index)
            self._trees[prefix] = (_stamp(file), tree.decode("ascii").strip())
        found.tree = self._trees[prefix][1]
        return found

    async def _changed(self, root: Path, prefix: str, index: str, found: _Found) -> list[bytes]:
        """Return the paths that are new, changed or gone; put nested repositories and empty folders aside."""
        listing = ["ls-files", "-z", "-o", "-m", "-d", "--exclude-per-directory=.gitignore"]
        listing += [f"--exclude-from={file}" for file in self._ignore_files(root)]
        output = await self._git.demand(*listing, "--directory", root=root, index=index)
        names = [name for name in dict.fromkeys(output.split(b"\0")) if name]
        changed = [name for name in names if not name.endswith(b"/")]
        folders = [name[:-1] for name in names if name.endswith(b"/")]
        unknown = [name for name in folders if not self._is_known(root, prefix, name, found)]
        if unknown:
            listing = [word for word in listing if word not in ("-m", "-d")]
            few = [os.fsdecode(name) for name in unknown] if len(unknown) <= 200 else []
            output = await self._git.demand(*listing, "--", *few, root=root, index=index)
            for name in output.split(b"\0"):
                if name.endswith(b"/"):
                    nested = _joined(prefix, os.fsdecode(name[:-1]))
                    if nested not in found.nested:
                        found.nested.append(nested)
                elif name:
                    changed.append(name)
            for name in unknown:
                _find_empty(root, os.fsdecode(name), prefix, found.empty)
        return list(dict.fromkeys(changed))

    def _is_known(self, root: Path, prefix: str, name: bytes, found: _Found) -> bool:
        """Settle a folder that needs no listing: an empty one, or a repository of its own."""
        folder = root / os.fsdecode(name)
        path = _joined(prefix, os.fsdecode(name))
        try:
            with os.scandir(folder) as entries:
                names = {entry.name for entry in entries}
        except OSError as error:
            found.skipped[path] = f"folder cannot be read: {error.strerror}"
            return True
        if not names:
            found.empty.append(path)
        elif ".git" in names:
            found.nested.append(path)
        return not names or ".git" in names

    def _ignore_files(self, root: Path) -> list[Path]:
        own = _common_folder(root / ".git") / "info" / "exclude"
        return [file for file in (own, *self._excludes) if file.is_file() and os.access(file, os.R_OK)]

    def _sort(
        self, root: Path, prefix: str, changed: list[bytes], found: _Found
    ) -> tuple[list[bytes], list[bytes]]:
        """Tell what is to be added and what removed; what cannot be kept is removed and told."""
        add: list[bytes] = []
        remove: list[bytes] = []
        base = os.fsencode(root)
        real: dict[bytes, bool] = {b"": True}
        before, left_out = self._left_out.get(prefix, set[bytes]()), set[bytes]()
        for path in sorted(changed):
            why = self._unfit(base, path, real)
            if why is None:
                add.append(path)
                continue
            if why:
                found.skipped[_joined(prefix, os.fsdecode(path))] = why
                left_out.add(path)
            elif _below_real_folders(base, path, dict(real)):
                found.hidden = True
            if path not in before:
                remove.append(path)
        self._left_out[prefix] = left_out
        return add, remove

    def _unfit(self, base: bytes, path: bytes, real: dict[bytes, bool]) -> str | None:
        """Return why a path cannot be added: empty when it is gone, ``None`` when it can."""
        if not _below_real_folders(base, path.rpartition(b"/")[0], real):
            return ""
        full = base + b"/" + path
        try:
            status = os.lstat(full)
        except OSError:
            return ""
        if stat.S_ISLNK(status.st_mode):
            return None
        if stat.S_ISDIR(status.st_mode):
            return ""
        if not stat.S_ISREG(status.st_mode):
            return "no regular file"
        if status.st_size > self._limits.max_file_bytes:
            return f"larger than {self._limits.max_file_bytes / 1e6:g} MB"
        return (
            None
            if os.access(full, os.R_OK, effective_ids=os.access in os.supports_effective_ids)
            else "cannot be read"
        )

    async def _add(self, root: Path, prefix: str, index: str, paths: list[bytes], found: _Found) -> None:
        """Add files to the index; those that git refuses are found by halving, and told."""
        if not paths:
            return
        words = ("update-index", "-z", "--add", "--remove", "--replace", "--stdin")
        result = await self._git.run(*words, root=root, index=index, stdin=b"\0".join(paths) + b"\0")
        if result.exit_code == 0:
            return
        reason = complaints(result)
        if (
            result.exit_code is None
            or result.timed_out
            or (b"write" in result.stderr and b"object" in result.stderr)
        ):
            raise StorageError(f"git update-index failed: {reason[0] if reason else 'killed'}")
        if b"index file" in result.stderr:
            raise StorageError("The index of the checkpoints is damaged.")
        if len(paths) == 1:
            path = _joined(prefix, os.fsdecode(paths[0]))
            found.skipped[path] = reason[0].removeprefix("error: ") if reason else "git does not take it"
            return
        middle = len(paths) // 2
        await self._add(root, prefix, index, paths[:middle], found)
        await self._add(root, prefix, index, paths[middle:], found)

    # --- objects -----------------------------------------------------------------------------------------

    async def unpack(self, names: Iterable[str]) -> None:
        """Make packed objects loose, so that they can be read here."""
        wanted = [name for name in dict.fromkeys(names) if not self._objects.has(name)]
        if not wanted:
            return
        spool = self._git.folder / f"read-{secrets.token_hex(8)}"
        try:
            await self._git.demand(
                "cat-file", "--batch", stdin="\n".join(wanted).encode() + b"\n", spool=spool
            )
            await asyncio.to_thread(self._put_batch, spool)
        finally:
            await asyncio.to_thread(spool.unlink, missing_ok=True)

    def _put_batch(self, spool: Path) -> None:
        with spool.open("rb") as file:
            while head := file.readline():
                words = head.split()
                if len(words) == 3 and words[1] == b"blob":
                    self._objects.put(file.read(int(words[2])))
                    file.read(1)


_IndexStamp = tuple[int, int, int]


def _stamp(file: Path) -> _IndexStamp:
    try:
        status = file.stat()
    except OSError:
        return 0, 0, 0
    return status.st_ino, status.st_size, status.st_mtime_ns


class _Found:
    """What one repository of the workspace holds."""

    def __init__(self) -> None:
        self.tree = EMPTY_TREE
        self.nested: list[str] = []
        self.empty: list[str] = []
        self.skipped: dict[str, str] = {}
        self.hidden = False  # a folder took the place of a known file: git does not list all that is in it


def _joined(prefix: str, path: str) -> str:
    return f"{prefix}/{path}" if prefix else path


def _below_real_folders(base: bytes, folder: bytes, real: dict[bytes, bool]) -> bool:
    """Tell whether every folder on the way is one, and no link."""
    known = real.get(folder)
    if known is None:
        above = _below_real_folders(base, folder.rpartition(b"/")[0], real)
        try:
            known = above and stat.S_ISDIR(os.lstat(base + b"/" + folder).st_mode)
        except OSError:
            known = False
        real[folder] = known
    return known


def _common_folder(git: Path) -> Path:
    """Return the git directory that the worktrees of a repository share, by reading what points to it."""
    try:
        if git.is_file():
            target = git.read_text("utf-8", "replace").strip().removeprefix("gitdir:").strip()
            git = git.parent / target
        common = git / "commondir"
        return git / common.read_text("utf-8", "replace").strip() if common.is_file() else git
    except OSError:
        return git


def _find_empty(root: Path, name: str, prefix: str, empty: list[str]) -> None:
    """Add the empty folders at and below ``name``, up to a bound; links are not followed."""
    for folder, folders, files in os.walk(root / name):
        if len(empty) >= MAX_EMPTY:
            return
        inside = os.path.relpath(folder, root)
        if ".git" in folders or ".git" in files:
            folders.clear()
        elif not folders and not files:
            empty.append(_joined(prefix, inside))


def user_ignore_file(environ: Mapping[str, str]) -> Path:
    """Return git's default file of the user's own ignore patterns."""
    base = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME", "~")).expanduser() / ".config")
    return Path(base) / "git" / "ignore"
