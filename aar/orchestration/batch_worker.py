"""What runs on the workers of a Dask cluster: the project is unpacked once, each task gets a place in it.

Only imported with the extra ``cluster``, there and where tasks are handed out.
"""

from __future__ import annotations

import asyncio
import io
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from distributed import WorkerPlugin, get_worker

from aar.config.paths import paths, project_root
from aar.orchestration.batch import LocalDoer
from aar.orchestration.batch_child import ChildOptions, session_of
from aar.orchestration.batch_results import TaskResult
from aar.orchestration.batch_tasks import BatchTask
from aar.orchestration.work_places import Git, Kind, Places, Project, snapshot
from aar.protocol.ids import new_id
from aar.safety.spawn import ProcessSpawner

_LOOK_S: Final = 1.0
"""Seconds between two looks whether the task is still wanted."""


class ProjectPlugin(WorkerPlugin):  # pyright: ignore[reportUntypedBaseClass] - distributed has no types
    """Brings a project to each worker, those that come later too.

    Args:
        name: Of the project on this cluster; tasks name it.
        root: Name of its folder.
        prefix: Folder in it where aar was started.
        kind: Work trees or copies.
        archive: The files, as a compressed tar.
    """

    idempotent = True

    def __init__(self, name: str, root: str, prefix: str, kind: Kind, archive: bytes) -> None:
        self.name, self.root, self.prefix, self.archive = name, root, prefix, archive
        self.kind: Kind = kind

    async def setup(self, worker: Any) -> None:
        """Unpack the project below the worker's own folder."""
        outer = Path(worker.local_directory) / self.name
        await asyncio.to_thread(self._unpack, outer)
        project = Project(outer / self.root, self.prefix, self.kind)
        if self.kind == "worktree":
            spawner = ProcessSpawner(project.root)
            try:
                git = Git(spawner, project.root)
                await git.run("init", "-q")
                project = replace(project, base=await snapshot(git, outer, "HEAD"))
            finally:
                spawner.close()
        projects(worker)[self.name] = project

    def _unpack(self, outer: Path) -> None:
        shutil.rmtree(outer, ignore_errors=True)
        outer.mkdir(parents=True)
        with tarfile.open(fileobj=io.BytesIO(self.archive), mode="r:gz") as archive:
            archive.extractall(outer, filter="tar")

    async def teardown(self, worker: Any) -> None:
        """Remove the project."""
        projects(worker).pop(self.name, None)
        await asyncio.to_thread(shutil.rmtree, Path(worker.local_directory) / self.name, ignore_errors=True)


def projects(worker: Any) -> dict[str, Project]:
    """Return the projects that a worker has."""
    found: dict[str, Project] = worker.__dict__.setdefault("aar_projects", {})
    return found


class _Patches:
    """Keeps the patch of one task for the way back; who handed it out keeps what it came to."""

    data = b""

    def keep_patch(self, name: str, data: bytes) -> str | None:
        self.data = data
        return name if data else None

    def keep_result(self, task: BatchTask, result: TaskResult) -> None:
        pass

    def kept_result(self, task: BatchTask) -> TaskResult | None:
        return None


def do_task(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Do one task in a thread of a worker.

    Args:
        payload: ``task``, ``options``, ``project``, ``attempt``, ``max_cost``, ``trusted``, ``key``.

    Returns:
        ``result``: fields of a `TaskResult`; ``patch``, ``session`` and ``kept``: bytes.
    """
    return asyncio.run(_do(payload))


async def _do(payload: Mapping[str, Any]) -> dict[str, Any]:
    worker = get_worker()
    # The same task may come back to a worker that was thought lost: each time it gets a new folder.
    name = f"{payload['task']['id']}-{payload['attempt']}-{new_id()[-8:].lower()}"
    project = projects(worker)[payload["project"]]
    task, patches, own = BatchTask.model_validate(payload["task"]), _Patches(), paths()
    options = ChildOptions(cwd=project.root, **payload["options"])
    spawner = ProcessSpawner(project.root)
    work = Path(worker.local_directory) / f"{payload['project']}-places"
    await asyncio.to_thread(work.mkdir, mode=0o700, exist_ok=True)
    places = Places(spawner, project, work)
    trusted = project_root(project.root / project.prefix) if payload["trusted"] else None
    doer = LocalDoer(spawner, places, patches, options, own, trusted, name=name)
    doing = asyncio.create_task(doer.do(task, payload["attempt"], payload["max_cost"]))
    watching = asyncio.create_task(_unwanted(worker, payload["key"]))
    try:
        await asyncio.wait([doing, watching], return_when=asyncio.FIRST_COMPLETED)
        doing.cancel()
        result = await doing
    finally:
        watching.cancel()
        spawner.close()
    cwd = places.find(places.outer(name), task.cwd).cwd
    session, kept = await asyncio.to_thread(_session, own.sessions, cwd)
    told = {**result.model_dump(mode="json"), "worker": str(worker.name)}
    return {"result": told, "patch": patches.data, "session": session, "kept": kept}


async def _unwanted(worker: Any, key: str) -> None:
    """Return once the task was called off, or who wanted it went away."""
    while True:
        await asyncio.sleep(_LOOK_S)
        known = worker.state.tasks.get(key)
        if known is None or known.state == "cancelled":
            return


def _session(sessions: Path, cwd: Path) -> tuple[bytes, bytes]:
    """Return the session file of a place, and what was kept beside it as a tar."""
    file = session_of(sessions, cwd)
    if file is None:
        return b"", b""
    beside = file.with_suffix(".d")
    packed = io.BytesIO()
    if beside.is_dir():
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            archive.add(beside, beside.name)
    return file.read_bytes(), packed.getvalue()
