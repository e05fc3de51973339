"""Work trees of git in which agents work that another agent has started."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aar.orchestration.work_merge import fit
from aar.orchestration.work_places import Changes, Place, Places
from aar.runtime.background import Background
from aar.runtime.policy import model_hosts
from aar.runtime.work_trees import WorkTrees
from aar.safety.spawn import ProcessSpawner

if TYPE_CHECKING:
    from aar.runtime.parts import Runtime
    from aar.safety.files import WorkspaceFiles


class AgentTree:
    """One work tree with a wall around it; implements `aar.orchestration.merge_back.WorkTree`.

    Args:
        runtime: Whose settings hold in it.
        source: The project, or the work tree of the agent that started this one.
    """

    def __init__(self, runtime: Runtime, source: Path) -> None:
        self._runtime, self._source = runtime, source
        self._trees = WorkTrees(runtime, "agent")
        self._folder = self._trees.folder / "tree" / source.name
        self._made: tuple[Places, Place] | None = None
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
                places = await self._trees.open(self._source)
                self._made = places, await places.make("tree", "")
            except BaseException:
                await self.remove()
                raise
        for rule in self._runtime.spawner.egress.domains.rules:
            self.spawner.allow_domain(str(rule))

    async def changes(self) -> Changes:
        """Return what differs from the project as it was; see `Places.changes`."""
        if self._made is None:
            return Changes()
        places, place = self._made
        return await places.changes(place)

    async def fitted(self, changes: Changes) -> tuple[Changes, tuple[str, ...]]:
        """Return them as changes of the project as it is now; see `fit`."""
        if self._made is None:
            return changes, ()
        places, place = self._made
        return await fit(places.git, place.base, changes.tree)

    async def rest(self) -> None:
        """End all processes in it. It stays until it is removed, whatever becomes of aar."""
        for process in self.background.values():
            if process.running:
                await process.kill()
        self.background.clear()
        self.spawner.close()
        await self._trees.let_go()

    async def remove(self) -> None:
        """Remove it with all that is in it."""
        await self.rest()
        self._made = None
        await self._trees.close()
