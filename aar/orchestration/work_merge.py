"""Changes of a work tree as changes of the project as it is now, which others may have changed meanwhile."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from aar.orchestration.work_places import Changes, Git, Place, changes_since

_NAMES: Final = ("now", "base", "theirs")


async def fit(git: Git, place: Place, changes: Changes, now: str) -> tuple[Changes, tuple[str, ...]]:
    """Return what ``changes`` are to the state ``now``, and the files of which both changed the same lines.

    Args:
        git: Of the repository.
        place: Where the changes were made; its index holds them.
        changes: As `Places.changes` told them.
        now: Commit of the project's present state.

    Raises:
        StorageError: Git fails.
    """
    call = _Calls(git, place)
    moved = await call.names("diff", "--name-only", "--no-renames", "-z", place.base, now)
    both = [path for path in changes.files if path in moved]
    if not both:
        return changes, ()
    theirs = await call.entries("ls-files", "-s", "-z")
    present = await call.entries("ls-tree", "-r", "-z", now)
    before = await call.entries("ls-tree", "-r", "-z", place.base)
    conflicts: list[str] = []
    for path in both:
        sides = present.get(path), before.get(path), theirs.get(path)
        if sides[0] == sides[2]:
            continue
        merged = None if None in sides else await call.merged([side[1] for side in sides if side])
        if merged is None:
            conflicts.append(path)
        elif side := theirs.get(path):
            theirs[path] = side[0], merged
    if conflicts:
        return changes, tuple(conflicts)
    index = {"GIT_INDEX_FILE": str(place.outer / "merged.index")}
    await call.run("read-tree", now, env=index)
    for path in changes.files:
        entry = theirs.get(path)
        words = ("--force-remove", "--", path) if entry is None else ("--add", "--cacheinfo", *entry, path)
        await call.run("update-index", *words, env=index)
    return await changes_since(git, place, now, index), ()


class _Calls:
    def __init__(self, git: Git, place: Place) -> None:
        self._git, self._place = git, place

    async def run(
        self, *words: str, env: Mapping[str, str] | None = None, failing: bool = True
    ) -> bytes | None:
        place = self._place
        return await self._git.run(
            *words, cwd=place.folder, env={**place.env, **(env or {})}, failing=failing
        )

    async def names(self, *words: str) -> frozenset[str]:
        return frozenset(_split(await self.run(*words)))

    async def entries(self, *words: str) -> dict[str, tuple[str, str]]:
        """Return mode and blob of each path."""
        found: dict[str, tuple[str, str]] = {}
        for row in _split(await self.run(*words)):
            facts, _, path = row.partition("\t")
            mode, *ids = facts.split(" ")
            # `ls-tree` has the kind in front of the id, `ls-files` a stage after it.
            found[path] = mode, next(word for word in ids if len(word) >= 40)
        return found

    async def merged(self, blobs: Iterable[str]) -> str | None:
        """Return the blob of three merged ones (now, before, theirs); ``None``: they conflict."""
        files: list[Path] = []
        for name, blob in zip(_NAMES, blobs, strict=True):
            file = self._place.outer / f"merge.{name}"
            data = await self.run("cat-file", "blob", blob) or b""
            await asyncio.to_thread(file.write_bytes, data)
            files.append(file)
        text = await self.run("merge-file", "-p", "-q", *map(str, files), failing=False)
        if text is None:
            return None
        await asyncio.to_thread(files[0].write_bytes, text)
        made = await self.run("hash-object", "-w", "--no-filters", str(files[0]))
        return (made or b"").decode().strip()


def _split(data: bytes | None) -> list[str]:
    return [item for item in os.fsdecode(data or b"").split("\0") if item]
