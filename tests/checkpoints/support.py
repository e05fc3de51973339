"""Workspaces with checkpoints, and runs in them."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from aar.memory.checkpoints import CheckpointStore
from aar.runtime.checkpoints import SessionCheckpoints
from aar.runtime.undo import Undo
from aar.safety.spawn import ProcessSpawner
from tests.support.fakes import Turn, World, call


def git(folder: Path, *words: str) -> str:
    """Run git as a user would, with a name."""
    identity = ["-c", "user.name=U", "-c", "user.email=u@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def tree(root: Path, *, without: Sequence[str] = (".git",)) -> dict[str, tuple[str, Any]]:
    """All files, links and empty folders below ``root``: kind and content, exec bit included."""
    found: dict[str, tuple[str, Any]] = {}
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in without]
        for name in [*files, *(n for n in folders if Path(folder, n).is_symlink())]:
            path = Path(folder, name)
            if name in without:
                continue
            key = str(path.relative_to(root))
            if path.is_symlink():
                found[key] = ("link", os.readlink(path))
            elif path.is_file():
                executable = bool(path.stat().st_mode & stat.S_IXUSR)
                found[key] = ("program" if executable else "file", path.read_bytes())
        if not folders and not files and folder != str(root):
            found[str(Path(folder).relative_to(root))] = ("empty", None)
    return found


@contextmanager
def spawner_for(root: Path) -> Iterator[ProcessSpawner]:
    spawner = ProcessSpawner(root)
    try:
        yield spawner
    finally:
        spawner.close()


@contextmanager
def store_for(root: Path, folder: Path, engine: str = "plain", **options: Any) -> Iterator[CheckpointStore]:
    """A store that reads by itself (``plain``), or by git (``git``), however small the workspace is."""
    with spawner_for(root) as spawner:
        yield CheckpointStore(
            folder, root.resolve(), spawner, use_git=engine == "git", **{"small": 0, **options}
        )


@asynccontextmanager
async def world_of(
    root: Path, turns: Sequence[Turn | str], engine: str = "plain"
) -> AsyncIterator[tuple[World, Undo, SessionCheckpoints]]:
    """An agent in mode ``unsafe`` whose effects are kept, and what takes them back."""
    with store_for(root, root.parent / "kept", engine) as store:
        spawner = store.spawner
        assert isinstance(spawner, ProcessSpawner)
        world = World(root, turns, mode="unsafe", spawner=spawner)
        checkpoints = SessionCheckpoints(store, world.session)
        world.executor._checkpointer = checkpoints
        yield world, Undo(store, world.session), checkpoints
        await checkpoints.aclose()


def write(path: str, content: str) -> Turn:
    return Turn(calls=[call("write_file", path=path, content=content)])


def bash(command: str) -> Turn:
    return Turn(calls=[call("bash", command=command)])
