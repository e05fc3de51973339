"""One bounded look through the workspace: secret files that no path names, and nested git folders."""

from __future__ import annotations

import hashlib
import os
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from aar.safety.paths import is_secret_name

MAX_ENTRIES = 30_000
"""Entries that one look reads; what lies behind is not hidden, which the wall's gaps tell."""
MAX_SECONDS = 0.25
"""Seconds that one look takes at most."""
_MAX_COMPARED = 1_000_000
_SKIPPED = frozenset(
    {
        "node_modules",
        "site-packages",
        "dist-packages",
        "__pycache__",
        ".git",
        ".hg",
        ".svn",
        ".tox",
        ".nox",
        "target",
    }
)
_SHARE = 50
"""A look that took t seconds is good for this many times t: it costs at most 2 % of the time."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What a look found.

    Attributes:
        secrets: Files to hide, resolved.
        git_folders: Git folders below the root, not the root's own.
        whole: Whether everything was seen.
    """

    secrets: tuple[Path, ...] = ()
    git_folders: tuple[Path, ...] = ()
    whole: bool = True


class WorkspaceScan:
    """Looks again when what it knows is old, as seldom as looking is dear."""

    def __init__(self, root: Path, readable: Iterable[Path] = ()) -> None:
        self._root = root
        self._readable = tuple(readable)
        self._found: Findings | None = None
        self._until = 0.0
        self._took = 0.0

    @property
    def slow(self) -> bool:
        """Whether the next call of `findings` may take long enough to be worth a thread."""
        return time.monotonic() >= self._until and (self._found is None or self._took > 0.01)

    def findings(self) -> Findings:
        """Return what is in the workspace."""
        now = time.monotonic()
        if self._found is None or now >= self._until:
            self._found = look(self._root, self._readable)
            self._took = time.monotonic() - now
            self._until = time.monotonic() + self._took * _SHARE
        return self._found


def look(root: Path, readable: tuple[Path, ...] = ()) -> Findings:
    """Walk ``root``, breadth first, within the bounds."""
    deadline = time.monotonic() + MAX_SECONDS
    todo, at, seen = [str(root)], 0, 0
    candidates: list[str] = []
    git: list[Path] = []
    while at < len(todo):
        if seen > MAX_ENTRIES or time.monotonic() > deadline:
            break
        folder = todo[at]
        at += 1
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        seen += len(entries)
        names = {entry.name for entry in entries}
        if at > 1 and ".git" in names:
            git.append(Path(folder, ".git"))
        if at > 1 and "pyvenv.cfg" in names:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _SKIPPED:
                    todo.append(entry.path)
            elif is_secret_name(entry.name):
                candidates.append(entry.path)
    secrets = _worth_hiding(root, candidates, readable)
    return Findings(secrets, tuple(git), at == len(todo))


def _worth_hiding(root: Path, candidates: list[str], readable: tuple[Path, ...]) -> tuple[Path, ...]:
    index = read_index(root) if candidates else b""
    hidden: list[Path] = []
    for name in candidates:
        path = Path(name).resolve()
        if (
            not path.is_file()
            or not path.is_relative_to(root)
            or any(path.is_relative_to(r) for r in readable)
        ):
            continue
        if not is_committed(path, path.relative_to(root).as_posix().encode(), index):
            hidden.append(path)
    return tuple(dict.fromkeys(hidden))


def read_index(root: Path) -> bytes:
    """Return the git index of a plain repository; empty where there is none."""
    try:
        return (root / ".git" / "index").read_bytes()
    except OSError:
        return b""


def is_committed(path: Path, name: bytes, index: bytes) -> bool:
    """Return whether the index holds this very content under ``name``: then git gives it to everybody anyway.

    The entry must have the blob id of the file, so that an entry that a command forged opens nothing. Format:
    gitformat-index(5), versions 2 and 3: id (20 bytes), flags (2 or 4), path, NUL.
    """
    length = struct.pack(">H", min(len(name), 0xFFF))
    at = index.find(name + b"\0")
    while at >= 62:
        for flags in (at - 2, at - 4):
            same_length = index[flags + 1] == length[1] and index[flags] & 0x0F == length[0]
            if same_length and index[flags - 20 : flags] == _blob_id(path):
                return True
        at = index.find(name + b"\0", at + 1)
    return False


def _blob_id(path: Path) -> bytes:
    try:
        if path.stat().st_size > _MAX_COMPARED:
            return b""
        data = path.read_bytes()
    except OSError:
        return b""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).digest()
