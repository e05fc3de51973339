"""Work trees of the project as it is now, and a runtime in one."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aar.config.trust import TrustStore, fingerprint
from aar.memory.file_lock import try_lock
from aar.orchestration.work_places import (
    Git,
    Places,
    Project,
    check_amount,
    find_project,
    snapshot,
)
from aar.protocol.errors import UsageError
from aar.protocol.ports import Spawner
from aar.runtime.opening import open_runtime

if TYPE_CHECKING:
    from aar.runtime.parts import Runtime

_LOCK: Final = "aar.lock"
_NAME: Final = re.compile(r"aar-(?:agent|alternatives|plan)-[a-z0-9_]{8}")


@asynccontextmanager
async def runtime_in(runtime: Runtime, folder: Path) -> AsyncGenerator[Runtime]:
    """Open a runtime in a work tree, with the same model; trusted where the project is.

    The trust holds only if what is there is the same as in the project.
    """
    base = runtime.base
    now = fingerprint(base.workspace)
    # The project may have changed since it was opened.
    holds = base.trusted and TrustStore(base.paths).is_trusted(base.workspace, now)
    same = holds and fingerprint(folder).sha256 == now.sha256
    active = runtime.active
    name, address = base.config.model.name or active.name, runtime.base_url
    if active.base_url is not None:
        name, address = active.name, active.base_url
    # The settings of the command line hold in there too: rules that deny, limits, the wall.
    sets = [one for one in base.given.get("sets", ()) if not one.lstrip().startswith("permissions.mode")]
    given: dict[str, Any] = {
        **base.given,
        "sets": sets,
        "cwd": folder,
        "model": name,
        "base_url": address,
        "mode": "auto",
        "trust": same,
    }
    inner = await asyncio.to_thread(lambda: open_runtime(**given))
    own = inner.active
    inner.active, inner.reasoning, inner.profile = runtime.active, runtime.reasoning, runtime.profile
    try:
        yield inner
    finally:
        # The shared provider is not the inner runtime's to close.
        inner.active = own
        await inner.aclose()
        TrustStore(base.paths).forget(folder)


class WorkTrees:
    """A folder for work trees that hold the project as it is when they are opened.

    Args:
        runtime: Whose project it is.
        purpose: A word for what they are for.
    """

    def __init__(self, runtime: Runtime, purpose: str) -> None:
        self._spawner, self._one = runtime.spawner, runtime.extras.tree_lock
        # Not below aar's own folders, which no tool may read.
        self.folder = Path(tempfile.mkdtemp(prefix=f"aar-{purpose}-")).resolve()
        self._ref = f"refs/aar/{self.folder.name}"
        # Names and work trees are the repository's; the source may itself be a work tree, gone by then.
        self._git = Git(runtime.spawner, runtime.workspace)
        self._opened = False
        self._held: int | None = None

    async def open(self, source: Path) -> Places:
        """Return what makes work trees of ``source`` as it is now, what is not committed included.

        Raises:
            UsageError: It cannot be put into work trees.
            StorageError: git failed.
        """
        git = Git(self._spawner, await repository_at(self._spawner, source))
        await check_amount(git)
        async with self._one:
            await _tidy(self._git)
        self._opened = True
        self._held = await asyncio.to_thread(_hold, self.folder)
        base = await snapshot(git, self.folder, self._ref)
        return Places(self._spawner, Project(git.root, "", "worktree", base), self.folder, one=self._one)

    async def let_go(self) -> None:
        """Leave the work trees to the user: no aar tidies them up."""
        held, self._held = self._held, None
        if held is not None:
            await asyncio.to_thread((self.folder / _LOCK).unlink, missing_ok=True)
            os.close(held)
            # A work tree's own HEAD keeps the commit.
            await self._git.run("update-ref", "-d", self._ref, failing=False)

    async def close(self) -> None:
        """Remove them with all that is in them."""
        held, self._held = self._held, None
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)
        if held is not None:
            os.close(held)
        if self._opened:
            async with self._one:
                await _forget(self._git, self._ref)


@asynccontextmanager
async def places_of(runtime: Runtime, purpose: str) -> AsyncGenerator[Places]:
    """Yield what makes work trees of the project as it is now, for agents that ask nobody.

    Args:
        runtime: Of the project.
        purpose: A word for what they are for.

    Raises:
        UsageError: The project cannot be put into work trees.
        StorageError: git failed.
    """
    root = await repository_of(runtime)
    trees = await asyncio.to_thread(WorkTrees, runtime, purpose)
    try:
        yield await trees.open(root)
    finally:
        await trees.close()


def _hold(work: Path, flags: int = os.O_CREAT) -> int | None:
    """Return the open lock of a folder; ``None``: there is no such folder, or another aar holds it."""
    try:
        lock = os.open(work / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
    except OSError:
        return None
    if try_lock(lock):
        return lock
    os.close(lock)
    return None


def kept_trees(workspace: Path) -> list[Path]:
    """Return the work trees of agents whose work is not in the project, and that no aar holds any more.

    Args:
        workspace: Root of the repository.
    """
    found: list[Path] = []
    # Of each work tree git keeps the place of its `.git`; see gitrepository-layout(5).
    for file in sorted((workspace / ".git" / "worktrees").glob("*/gitdir")):
        try:
            tree = Path(file.read_text(encoding="utf-8", errors="surrogateescape").rstrip("\n")).parent
        except OSError:
            continue
        work = tree.parent.parent
        if work.name.startswith("aar-agent-") and _NAME.fullmatch(work.name) and tree.is_dir():
            held = _hold(work, 0)
            if held is not None:
                os.close(held)
            if held is not None or not (work / _LOCK).exists():
                found.append(tree)
    return found


async def _tidy(git: Git) -> None:
    """Remove what a killed aar left: work trees that nobody holds, and the names of their states."""
    listed = await git.text("for-each-ref", "--format=%(refname)", "refs/aar/")
    for ref in listed.splitlines():
        name = ref.removeprefix("refs/aar/")
        if not _NAME.fullmatch(name):
            continue
        work = Path(tempfile.gettempdir()) / name
        held = await asyncio.to_thread(_hold, work, 0)
        # Without the lock's file it is none of ours, or gone.
        if held is not None:
            if name.startswith("aar-agent-") and await _changed(git, work):
                # What its agent did is nowhere else.
                (work / _LOCK).unlink(missing_ok=True)
            else:
                await asyncio.to_thread(shutil.rmtree, work, ignore_errors=True)
            os.close(held)
        if held is not None or not work.exists():
            await _forget(git, ref)


async def _changed(git: Git, work: Path) -> bool:
    """Tell whether a work tree holds what is not in its commit, or cannot be read."""
    for tree in await asyncio.to_thread(lambda: list(work.glob("tree/*"))):
        if await git.run("status", "--porcelain", cwd=tree, failing=False) != b"":
            return True
    return False


async def _forget(git: Git, ref: str) -> None:
    await git.run("worktree", "prune", failing=False)
    await git.run("update-ref", "-d", ref, failing=False)


async def repository_of(runtime: Runtime) -> Path:
    """Return the repository that the project is, where agents that ask nobody may work in it.

    Raises:
        UsageError: It is none, or a folder of one, or no wall holds there.
    """
    if not runtime.spawner.status().enforced:
        raise UsageError("Agents in work trees ask nobody, so they need a sandbox; see `aar sandbox status`.")
    return await repository_at(runtime.spawner, runtime.workspace)


async def repository_at(spawner: Spawner, folder: Path) -> Path:
    """Return the repository that a folder is.

    Raises:
        UsageError: It is none, or a folder of one.
    """
    root, prefix, kind = await find_project(spawner, folder, copy=False)
    if kind != "worktree":
        raise UsageError("Work trees need a git repository; `git init` makes one.")
    if prefix:
        raise UsageError("Start aar in the root of the repository to let agents work in work trees.")
    return root
