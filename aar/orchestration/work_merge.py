"""Changes of a work tree as changes of the project as it is now, which others may have changed meanwhile."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from aar.orchestration.work_places import Changes, Git, changes_between, written_tree

_FILES: Final = frozenset({"100644", "100755"})
_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class _Side:
    mode: str
    blob: str

    @property
    def there(self) -> bool:
        return self.mode != "000000"


async def fit(git: Git, base: str, theirs: str) -> tuple[Changes, tuple[str, ...]]:
    """Return what changes are to the project as it is now, and files of which both changed the same lines.

    Needs no newer git than work trees do, and runs no merge program that the repository names.

    Args:
        git: Of the project.
        base: State from which the changes began.
        theirs: State with the changes.

    Raises:
        StorageError: Git fails.
    """
    work = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="aar-merge-"))
    try:
        now = await written_tree(git, work)
        return await _Merge(git, work).fit(base, now, theirs)
    finally:
        await asyncio.to_thread(shutil.rmtree, work, ignore_errors=True)


class _Merge:
    def __init__(self, git: Git, work: Path) -> None:
        self._git, self._work = git, work

    async def fit(self, base: str, now: str, theirs: str) -> tuple[Changes, tuple[str, ...]]:
        moved, wanted = await self._changed(base, now), await self._changed(base, theirs)
        if not moved:
            return await changes_between(self._git, base, theirs), ()
        conflicts = _clashes(moved, wanted)
        entries: dict[str, _Side] = {}
        for path, (before, after) in wanted.items():
            merged = await self._merged(moved[path][1], before, after) if path in moved else after
            if merged is None:
                conflicts.add(path)
            else:
                entries[path] = merged
        if conflicts:
            return Changes(), tuple(sorted(conflicts))
        return await changes_between(self._git, now, await self._written(now, entries)), ()

    async def _changed(self, one: str, other: str) -> dict[str, tuple[_Side, _Side]]:
        """Return how each path that differs was, and is."""
        rows = await self._git.run(
            "diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", one, other
        )
        words = iter(os.fsdecode(rows or b"").split("\0"))
        found: dict[str, tuple[_Side, _Side]] = {}
        # ":MODE MODE ID ID STATUS", then the path; see "Raw output format" of git-diff.
        for facts, path in zip(words, words, strict=False):
            modes, blobs = facts[1:].split(" ")[:2], facts.split(" ")[2:4]
            found[path] = _Side(modes[0], blobs[0]), _Side(modes[1], blobs[1])
        return found

    async def _merged(self, now: _Side, before: _Side, theirs: _Side) -> _Side | None:
        """Return what becomes of one path; ``None``: a conflict."""
        if now == theirs:
            return now
        if not {now.mode, before.mode, theirs.mode} <= _FILES:
            return None
        mode = now.mode if theirs.mode == before.mode else theirs.mode
        if theirs.blob == before.blob:
            return _Side(mode, now.blob)
        blob = await self._merged_blob({"now": now, "base": before, "theirs": theirs})
        return None if blob is None else _Side(mode, blob)

    async def _merged_blob(self, sides: Mapping[str, _Side]) -> str | None:
        files: list[Path] = []
        for name, side in sides.items():
            data = await self._git.run("cat-file", "blob", side.blob) or b""
            files.append(self._work / name)
            await asyncio.to_thread(files[-1].write_bytes, data)
        text = await self._git.run("merge-file", "-p", "-q", *map(str, files), failing=False)
        if text is None:
            return None
        await asyncio.to_thread(files[0].write_bytes, text)
        return await self._git.text("hash-object", "-w", "--no-filters", str(files[0]))

    async def _written(self, now: str, entries: Mapping[str, _Side]) -> str:
        """Return the state ``now`` with ``entries`` in it, as a tree of git."""
        env = {"GIT_INDEX_FILE": str(self._work / "index")}
        await self._git.run("read-tree", now, env=env)
        gone = [path for path, side in entries.items() if not side.there]
        added = [(path, side) for path, side in entries.items() if side.there]
        # A folder may come where a file was, so that goes first.
        for at in range(0, len(gone), _AT_ONCE):
            await self._git.run("update-index", "--force-remove", "--", *gone[at : at + _AT_ONCE], env=env)
        for at in range(0, len(added), _AT_ONCE):
            facts = [
                word
                for path, side in added[at : at + _AT_ONCE]
                for word in ("--cacheinfo", side.mode, side.blob, path)
            ]
            await self._git.run("update-index", "--add", *facts, env=env)
        return await self._git.text("write-tree", env=env)


def _clashes(moved: Mapping[str, tuple[_Side, _Side]], wanted: Mapping[str, tuple[_Side, _Side]]) -> set[str]:
    """Return the paths that one made a file and the other a folder."""
    ours = {path for path, (_, side) in moved.items() if side.there}
    theirs = {path for path, (_, side) in wanted.items() if side.there}
    return (ours & _folders(theirs)) | (theirs & _folders(ours))


def _folders(paths: set[str]) -> set[str]:
    return {str(folder) for path in paths for folder in PurePosixPath(path).parents}
