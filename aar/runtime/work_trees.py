"""Work trees of the project as it is now, a runtime in one, and what was changed there as a patch."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
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
    written_tree,
)
from aar.protocol.errors import StorageError, UsageError
from aar.runtime.opening import open_runtime
from aar.safety.git_calls import run_git

if TYPE_CHECKING:
    from aar.runtime.parts import Runtime

_MOST_BYTES: Final = 200_000_000
_MERGE_S: Final = 300.0
_LOCK: Final = "aar.lock"
_NAME: Final = re.compile(r"aar-(?:alternatives|plan)-[a-z0-9_]{8}")


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
    name = base.config.model.name or runtime.active.name
    # The settings of the command line hold in there too: rules that deny, limits, the wall.
    sets = [one for one in base.given.get("sets", ()) if not one.lstrip().startswith("permissions.mode")]
    given: dict[str, Any] = {
        **base.given,
        "sets": sets,
        "cwd": folder,
        "model": name,
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


@asynccontextmanager
async def places_of(runtime: Runtime, purpose: str) -> AsyncGenerator[Places]:
    """Yield what makes work trees that hold the project as it is now, what is not committed included.

    Args:
        runtime: Of the project.
        purpose: A word for what they are for.

    Raises:
        UsageError: The project cannot be put into work trees.
        StorageError: git failed.
    """
    root = await repository_of(runtime)
    git = Git(runtime.spawner, root)
    await check_amount(git)
    await _tidy(git)
    # Not below aar's own folders, which no tool may read.
    work = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix=f"aar-{purpose}-"))
    ref = f"refs/aar/{work.name}"
    held = await asyncio.to_thread(_hold, work)
    try:
        base = await snapshot(git, work, ref)
        yield Places(runtime.spawner, Project(root, "", "worktree", base), work)
    finally:
        await asyncio.to_thread(shutil.rmtree, work, ignore_errors=True)
        if held is not None:
            os.close(held)
        await git.run("worktree", "prune", failing=False)
        await git.run("update-ref", "-d", ref, failing=False)


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
            await asyncio.to_thread(shutil.rmtree, work, ignore_errors=True)
            os.close(held)
        if held is not None or not work.exists():
            await git.run("worktree", "prune", failing=False)
            await git.run("update-ref", "-d", ref, failing=False)


async def repository_of(runtime: Runtime) -> Path:
    """Return the repository that the project is.

    Raises:
        UsageError: It is none, or a folder of one, or no wall holds there.
    """
    if not runtime.spawner.status().enforced:
        raise UsageError("Agents in work trees ask nobody, so they need a sandbox; see `aar sandbox status`.")
    root, prefix, kind = await find_project(runtime.spawner, runtime.workspace, copy=False)
    if kind != "worktree":
        raise UsageError("Work trees need a git repository; `git init` makes one.")
    if prefix:
        raise UsageError("Work trees need aar to be started in the root of the repository.")
    return root


@dataclass(frozen=True, slots=True)
class Merged:
    """What has to be changed in the project so that it holds the work of an agent too.

    Attributes:
        patch: A unified diff; empty: nothing.
        conflicts: Files in which both changed the same lines; then there is no patch.
    """

    patch: str = ""
    conflicts: tuple[str, ...] = ()


async def merged(runtime: Runtime, base: str, theirs: str) -> Merged:
    """Merge a commit that was made on ``base`` with the project as it is now, without touching that.

    Raises:
        StorageError: git failed.
    """
    git = Git(runtime.spawner, runtime.workspace)
    work = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="aar-merge-"))
    try:
        tree = await written_tree(git, work)
    finally:
        await asyncio.to_thread(shutil.rmtree, work, ignore_errors=True)
    ours = await git.text("commit-tree", tree, "-p", base, "-m", "State of the project for agents")
    words = ("merge-tree", "--write-tree", "--no-messages", "--name-only", "-z", ours, theirs)
    ended = await run_git(runtime.spawner, git.root, words, timeout_s=_MERGE_S, max_output=_MOST_BYTES)
    told = os.fsdecode(ended.output).split("\0")
    if ended.exit_code == 1:
        return Merged(conflicts=tuple(name for name in told[1:] if name) or ("unknown files",))
    if ended.exit_code != 0:
        why = " ".join(ended.stderr.decode("utf-8", "replace").split())[:200]
        raise StorageError(f"git cannot merge (2.38 or newer is needed): {why or 'it took too long'}")
    patch = await git.run("diff", "--binary", "--no-renames", ours, told[0])
    return Merged((patch or b"").decode("utf-8", "replace"))
