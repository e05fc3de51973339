"""Work trees of git in which agents work that another agent has started."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from aar.orchestration.work_merge import fit
from aar.orchestration.work_places import (
    Changes,
    Git,
    Place,
    Places,
    Project,
    check_amount,
    find_project,
    snapshot,
)
from aar.protocol.errors import UsageError
from aar.runtime.background import Background
from aar.runtime.policy import model_hosts
from aar.safety.spawn import ProcessSpawner

if TYPE_CHECKING:
    from aar.runtime.parts import Runtime
    from aar.safety.files import WorkspaceFiles


class AgentTree:
    """One work tree with a wall around it; implements `aar.orchestration.merge_back.WorkTree`.

    Args:
        runtime: Whose settings hold in it.
        source: The project, or the work tree of the agent that started this one.
        lock: Held while git's list of work trees changes.
    """

    def __init__(self, runtime: Runtime, source: Path, lock: asyncio.Lock) -> None:
        self._runtime, self._source, self._lock = runtime, source, lock
        # Not below aar's own folders, which no tool may read.
        self._work = Path(tempfile.mkdtemp(prefix="aar-agent-")).resolve()
        self._folder = self._work / "tree" / source.name
        self._made: tuple[Places, Place] | None = None
        self._git: Git | None = None
        self.background = Background()
        self.spawner = ProcessSpawner(
            self._folder,
            runtime.config.sandbox.model_copy(update={"writable": ()}),
            own=runtime.base.own_folders,
            never=model_hosts(runtime.config),
            shared_git=False,
        )

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self._folder

    def files(self) -> WorkspaceFiles:
        """Return file access within the work tree alone."""
        return self._runtime.files_in(self._folder, self.spawner)

    async def open(self) -> None:
        """Make it, with the project as it is now, unless it is there from an earlier run.

        Raises:
            UsageError: The project is in no git repository, or too much of it is not committed.
            StorageError: There is no room, or git fails.
        """
        if self._made is None:
            try:
                await self._make()
            except BaseException:
                await self.remove()
                raise
        for rule in self._runtime.spawner.egress.domains.rules:
            self.spawner.allow_domain(str(rule))

    async def _make(self) -> None:
        spawner = self._runtime.spawner
        root, prefix, kind = await find_project(spawner, self._source, copy=False)
        if kind != "worktree":
            raise UsageError("Work trees need a git repository; `git init` makes one.")
        if prefix:
            raise UsageError("Start aar in the root of the repository to let agents work in work trees.")
        git = self._git = Git(spawner, root)
        await check_amount(git)
        ref = f"refs/aar/{self._work.name}"
        try:
            base = await snapshot(git, self._work, ref)
            async with self._lock:
                places = Places(spawner, Project(root, prefix, kind, base), self._work)
                self._made = places, await places.make("tree", "")
        finally:
            # From here on the work tree's own HEAD keeps that commit.
            await git.run("update-ref", "-d", ref, failing=False)

    async def changes(self) -> Changes:
        """Return what differs from the project as it was; see `Places.changes`."""
        if self._made is None:
            return Changes()
        places, place = self._made
        return await places.changes(place)

    async def fitted(self, changes: Changes) -> tuple[Changes, tuple[str, ...]]:
        """Return them as changes of the project as it is now; see `fit`."""
        if self._made is None or self._git is None:
            return changes, ()
        ref = f"refs/aar/{self._work.name}"
        try:
            now = await snapshot(self._git, self._work, ref)
            return await fit(self._git, self._made[1], changes, now)
        finally:
            await self._git.run("update-ref", "-d", ref, failing=False)

    async def rest(self) -> None:
        """End all processes in it."""
        for process in self.background.values():
            if process.running:
                await process.kill()
        self.background.clear()
        self.spawner.close()

    async def remove(self) -> None:
        """Remove it with all that is in it."""
        await self.rest()
        if self._made is not None:
            places, place = self._made
            self._made = None
            async with self._lock:
                await places.remove(place)
        await asyncio.to_thread(shutil.rmtree, self._work, ignore_errors=True)
