"""What a checkpoint says of a workspace: the files with their modes and contents, and what was left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

FILE, PROGRAM, LINK = 0o100644, 0o100755, 0o120000
"""Modes of entries, as git writes them."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file: `FILE`, `PROGRAM` (executable) or `LINK`, and the name of its content."""

    mode: int
    blob: str


Files = dict[str, Entry]
"""Entries by path relative to the workspace. Bytes that are no UTF-8 are surrogates (``os.fsdecode``)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What is kept.

    Attributes:
        max_file_bytes: Larger files are left out, and told.
        max_files: A workspace of more files is not kept at all.
    """

    max_file_bytes: int = 20_000_000
    max_files: int = 200_000


@dataclass(frozen=True, slots=True)
class State:
    """A workspace at one moment.

    Attributes:
        engine: Who wrote ``roots``: ``git`` (trees) or ``plain`` (lists of files).
        roots: Folder of each repository (``""``: the workspace) and the name of what is kept of it.
        empty: Folders without any entry.
        skipped: What was left out, with the reason.
    """

    engine: Literal["git", "plain"]
    roots: Mapping[str, str]
    empty: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict[str, str])

    def to_bytes(self) -> bytes:
        """Return the canonical form: equal states give equal bytes."""
        body = {
            "engine": self.engine,
            "roots": dict(sorted(self.roots.items())),
            "empty": sorted(self.empty),
            "skipped": dict(sorted(self.skipped.items())),
        }
        return json.dumps(body, ensure_ascii=True, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> State:
        """Read what `to_bytes` wrote."""
        body: dict[str, Any] = json.loads(data)
        return cls(body["engine"], body["roots"], tuple(body["empty"]), body["skipped"])


@dataclass(frozen=True, slots=True)
class Delta:
    """How one path differs between two states; ``None``: it is not there."""

    path: str
    old: Entry | None
    new: Entry | None


class Engine(Protocol):
    """Takes states of a workspace and compares them."""

    async def capture(self) -> State:
        """Return the present state, its contents kept.

        Raises:
            TooLargeError: There are more files than the limit.
            StorageError: It could not be kept.
        """
        ...


class TooLargeError(Exception):
    """The workspace has more files than an engine takes."""


def compare(old: Files, new: Files) -> list[Delta]:
    """Return the differences in path order."""
    if old == new:
        return []
    paths = sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path))
    return [Delta(path, old.get(path), new.get(path)) for path in paths]


def dump_files(files: Files) -> bytes:
    """Return a list of files as bytes."""
    lines = [f"{entry.mode:o} {entry.blob} {json.dumps(path)}" for path, entry in sorted(files.items())]
    return "\n".join(lines).encode("ascii")


def load_files(data: bytes) -> Files:
    """Read what `dump_files` wrote."""
    files: Files = {}
    for line in data.decode("ascii").splitlines():
        mode, blob, path = line.split(" ", 2)
        files[json.loads(path)] = Entry(int(mode, 8), blob)
    return files
