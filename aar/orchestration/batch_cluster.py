"""Tasks of a batch on a Dask cluster: the project goes there, sessions and patches come back."""

from __future__ import annotations

import asyncio
import hashlib
import io
import logging
import tarfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aar.config.files import write_atomic
from aar.config.paths import ensure, project_key
from aar.orchestration.batch_child import ChildOptions
from aar.orchestration.batch_results import Begun, Journal, TaskResult
from aar.orchestration.batch_tasks import BatchTask
from aar.orchestration.work_places import Places
from aar.protocol.errors import ConfigurationError, ErrorKind, ProviderError, UsageError
from aar.protocol.ids import new_id

if TYPE_CHECKING:
    from aar.orchestration.batch_worker import ProjectPlugin

_CONNECT_S: Final = 15
_GONE: Final = "The Dask scheduler went away. Start the same line again when it is back."
_MAX_ARCHIVE: Final = 500_000_000


class ClusterDoer:
    """Hands tasks to a cluster. What a lost worker had is given to another one by the scheduler.

    Args:
        client: Client of the cluster (``distributed.Client``, asynchronous).
        project: Name of the project there.
        journal: Keeps patches.
        options: What all runs have in common.
        sessions: Folder that gets the sessions.
        trusted: Whether the project's own settings act.
    """

    def __init__(
        self,
        client: Any,
        project: str,
        journal: Journal,
        options: ChildOptions,
        sessions: Path,
        *,
        trusted: bool,
    ) -> None:
        self._client, self._project, self._journal = client, project, journal
        self._sessions, self._trusted = sessions, trusted
        # Folder and environment are the worker's own.
        self._options = {
            name: value for name, value in asdict(options).items() if name not in ("cwd", "environ")
        }

    def place_of(self, task: BatchTask, attempt: int) -> str:
        """Return nothing: places are the workers' own."""
        return ""

    async def recover(self, task: BatchTask, begun: Begun) -> tuple[TaskResult | None, float]:
        """Return nothing: what was not handed back is called off by the scheduler."""
        return None, 0.0

    async def do(self, task: BatchTask, attempt: int, max_cost: float | None) -> TaskResult:
        """Let a worker do a task."""
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError

        from aar.orchestration.batch_worker import do_task

        key = f"aar-{task.id}-{attempt}-{new_id()[-8:].lower()}"
        payload = {
            "task": task.model_dump(mode="json", by_alias=True),
            "options": self._options,
            "project": self._project,
            "attempt": attempt,
            "max_cost": max_cost,
            "trusted": self._trusted,
            "key": key,
        }
        future = self._client.submit(do_task, payload, key=key, pure=False)
        try:
            back = await future
        except KilledWorker as error:
            count = error.allowed_failures + 1
            return TaskResult(id=task.id, error=f"Every worker that did it was lost ({count} of them).")
        except FutureCancelledError as error:
            raise ProviderError(ErrorKind.NETWORK, _GONE) from error
        except asyncio.CancelledError:
            await _quietly(self._client.cancel([future], force=True))
            raise
        finally:
            future.release()
        return await asyncio.to_thread(self._keep, task, back)

    def _keep(self, task: BatchTask, back: dict[str, Any]) -> TaskResult:
        result = TaskResult.model_validate(back["result"])
        patch = self._journal.keep_patch(task.id, back["patch"])
        if result.session_id and back["session"]:
            ensure(self._sessions)
            file = self._sessions / f"{Path(result.session_id).name}.jsonl"
            if not file.exists():
                if back["kept"]:
                    with tarfile.open(fileobj=io.BytesIO(back["kept"]), mode="r:gz") as archive:
                        archive.extractall(self._sessions, filter="data")
                write_atomic(file, back["session"])
        return result.model_copy(update={"patch": patch})


@asynccontextmanager
async def open_cluster(
    address: str,
    places: Places,
    journal: Journal,
    options: ChildOptions,
    data: Path,
    workspace: Path,
    *,
    trusted: bool,
) -> AsyncGenerator[tuple[ClusterDoer, int]]:
    """Connect to a cluster and bring the project there.

    Yields:
        Who does tasks, and how many at a time the workers do.

    Raises:
        ConfigurationError: The extra is missing.
        UsageError: Nobody answers at the address, or the project is too large.
    """
    try:
        from distributed import Client
    except ImportError:
        raise ConfigurationError("--scheduler needs Dask: pip install 'aar[cluster]'.") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    try:
        client: Any = await Client(address, asynchronous=True, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise UsageError(f"No Dask scheduler answers at {address}: {str(error)[:200]}.") from error
    plugin: ProjectPlugin | None = None
    try:
        plugin = await _plugin(places)
        await client.register_plugin(plugin)
        threads = sum((await client.nthreads()).values())
        sessions = data / "sessions" / project_key(workspace)
        yield (
            ClusterDoer(client, plugin.name, journal, options, sessions, trusted=trusted),
            max(1, threads),
        )
    finally:
        if plugin is not None:
            await _quietly(client.unregister_worker_plugin(plugin.name))
        await _quietly(client.close())


async def _quietly(closing: Any) -> None:
    try:
        async with asyncio.timeout(_CONNECT_S):
            await closing
    except Exception as error:
        # The work is done, or its own error is on the way: a cluster that is gone is no reason to fail.
        logging.getLogger("aar").info("closing the cluster: %s", error)


async def _plugin(places: Places) -> ProjectPlugin:
    """Pack the project as a place would have it."""
    from aar.orchestration.batch_worker import ProjectPlugin

    place = await places.make("cluster", "")
    try:
        data = await asyncio.to_thread(_packed, place.folder)
    finally:
        await places.remove(place)
    if len(data) > _MAX_ARCHIVE:
        raise UsageError(f"The project is too large to send: {len(data) >> 20} MB packed.")
    project = places.project
    name = f"aar-{hashlib.sha256(data).hexdigest()[:12]}-{new_id()[-6:].lower()}"
    return ProjectPlugin(name, project.root.name, project.prefix, project.kind, data)


def _packed(folder: Path) -> bytes:
    def wanted(item: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if item.isfile() and Path(item.name).name == ".git" else item

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=3) as archive:
        archive.add(folder, folder.name, filter=wanted)
    return packed.getvalue()
