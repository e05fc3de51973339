"""Many tasks, each an ``aar run`` in a place of its own, some at a time; nothing is done twice."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from aar.config.paths import Paths, ensure
from aar.config.trust import TrustStore, fingerprint
from aar.orchestration.batch_child import (
    ChildOptions,
    let_go,
    result_of_session,
    run_child,
    run_words,
    session_of,
)
from aar.orchestration.batch_results import Begun, Journal, TaskResult, now
from aar.orchestration.batch_tasks import BatchTask
from aar.orchestration.work_places import (
    Git,
    Place,
    Places,
    Project,
    find_project,
    snapshot,
)
from aar.protocol.errors import UsageError
from aar.protocol.ports import Spawner

_LEAST_SHARE = 0.02
"""Part of the whole budget below which no further task is begun."""


class Doer(Protocol):
    """Does tasks, here or elsewhere."""

    def place_of(self, task: BatchTask, attempt: int) -> str:
        """Return where an attempt will work, for the journal."""
        ...

    async def do(self, task: BatchTask, attempt: int, max_cost: float | None) -> TaskResult:
        """Do a task from the beginning; its patch is kept by the doer."""
        ...

    async def recover(self, task: BatchTask, begun: Begun) -> tuple[TaskResult | None, float]:
        """Return the result of an attempt that ended unseen, or ``None``; and what the attempt cost."""
        ...


class Keeper(Protocol):
    """Keeps what tasks came to before their places are removed."""

    def keep_patch(self, name: str, data: bytes) -> str | None:
        """Keep the changes of a task; return the name of the file, ``None`` when there are none."""
        ...

    def keep_result(self, task: BatchTask, result: TaskResult) -> None:
        """Keep what an attempt came to."""
        ...

    def kept_result(self, task: BatchTask) -> TaskResult | None:
        """Return what the last attempt came to, if it was kept by a batch that was killed then."""
        ...


class LocalDoer:
    """Does tasks on this machine.

    Args:
        spawner: Starts git and the children.
        places: Where they work.
        keeper: Keeps patches and results.
        options: What all runs have in common.
        own: aar's own folders.
        trusted: The project, when its own settings act; they then act in the places too.
        name: Of the place; by default the task's with the number of the attempt.
    """

    def __init__(
        self,
        spawner: Spawner,
        places: Places,
        keeper: Keeper,
        options: ChildOptions,
        own: Paths,
        trusted: Path | None = None,
        *,
        name: str | None = None,
    ) -> None:
        self._spawner, self._places, self._keeper, self._options = spawner, places, keeper, options
        self._name = name
        self._sessions, self._trust, self._trusted = own.sessions, TrustStore(own), trusted

    def place_of(self, task: BatchTask, attempt: int) -> str:
        """Return the folder of an attempt."""
        return str(self._places.outer(self._name or f"{task.id}-{attempt}"))

    async def do(self, task: BatchTask, attempt: int, max_cost: float | None) -> TaskResult:
        """Do a task in a new place, and remove that."""
        place = await self._places.make(Path(self.place_of(task, attempt)).name, task.cwd)
        try:
            await asyncio.to_thread(self._lend_trust, place)
            words = run_words(task, self._options, place.cwd, max_cost)
            seconds = task.timeout or self._options.timeout
            result = await run_child(self._spawner, words, task.prompt, self._options, seconds)
            return await self._with_changes(task, result, place)
        finally:
            await self._clear(place)

    def _lend_trust(self, place: Place) -> None:
        if self._trusted is None:
            return
        folder = place.folder / self._trusted.relative_to(self._places.project.root)
        found = fingerprint(folder)
        if found.items and found.sha256 == fingerprint(self._trusted).sha256:
            self._trust.record(folder, found)

    async def _with_changes(self, task: BatchTask, result: TaskResult, place: Place) -> TaskResult:
        changes = await self._places.changes(place)
        patch = await asyncio.to_thread(self._keeper.keep_patch, task.id, changes.patch)
        more = {"patch": patch, "files": changes.files, "added": changes.added, "removed": changes.removed}
        told = result.model_copy(update=more)
        await asyncio.to_thread(self._keeper.keep_result, task, told)
        return told

    async def _clear(self, place: Place) -> None:
        if self._trusted is not None:
            folder = place.folder / self._trusted.relative_to(self._places.project.root)
            await asyncio.to_thread(self._trust.forget, folder)
        await self._places.remove(place)

    async def recover(self, task: BatchTask, begun: Begun) -> tuple[TaskResult | None, float]:
        """Look at the session of an attempt: one whose run ended counts, if its place is still there."""
        if begun.place != self.place_of(task, begun.attempt):
            # It was begun on a cluster, or the journal is of another folder: what it names is not removed.
            return None, 0.0
        place = self._places.find(Path(begun.place), task.cwd)
        kept = self._keeper.kept_result(task)
        if kept is not None:
            await self._clear(place)
            return kept, kept.cost_usd or 0.0
        file = await asyncio.to_thread(session_of, self._sessions, place.cwd)
        if file is not None:
            await let_go(file)
        found, ended = (None, False) if file is None else await asyncio.to_thread(result_of_session, file)
        cost = (found.cost_usd or 0.0) if found is not None else 0.0
        try:
            if found is None or not ended or not place.folder.is_dir():
                return None, cost
            return await self._with_changes(task, found, place), cost
        finally:
            await self._clear(place)


@dataclass
class Batch:
    """The work on the tasks of one file.

    Attributes:
        tasks: All of them, in order.
        journal: What became of them.
        doer: Who does them.
        jobs: How many at a time.
        budget: US dollars for all together; ``None``: no limit.
        again: Whether tasks that failed are done again.
        told: Called with each result as it comes.
    """

    tasks: Sequence[BatchTask]
    journal: Journal
    doer: Doer
    jobs: int = 2
    budget: float | None = None
    again: bool = False
    told: Callable[[TaskResult], None] = lambda _result: None
    out_of_money: bool = False
    _spent: float = 0.0
    _reserved: dict[str, float] = field(default_factory=dict[str, float])

    async def run(self) -> list[TaskResult]:
        """Do what is still to be done; return all results, in the order of the tasks.

        Raises:
            AarError: A place cannot be made, or a result not be kept. What runs then is ended.
        """
        self._spent = sum(result.cost_usd or 0.0 for result in self.journal.ended.values())
        left = deque(self.journal.open_tasks(self.tasks, again=self.again))
        workers = [asyncio.create_task(self._work(left)) for _ in range(min(self.jobs, len(left)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        return self.journal.results(self.tasks)

    async def _work(self, left: deque[BatchTask]) -> None:
        while left:
            task = left.popleft()
            result = await self._recovered(task) or await self._done(task)
            if result is None:
                return
            self.journal.end(result)
            self.told(result)

    async def _recovered(self, task: BatchTask) -> TaskResult | None:
        """Return the result of an attempt that ended while nobody looked."""
        begun = self.journal.begun.get((task.id, task.digest))
        if begun is None:
            return None
        result, cost = await self.doer.recover(task, begun)
        self._spent += begun.cost_usd + cost
        if result is None or result.status == "not_run":
            begun.cost_usd += cost
            return None
        return self._stamped(task, result, begun.attempt, begun.cost_usd)

    async def _done(self, task: BatchTask) -> TaskResult | None:
        """Do a task; ``None``: there is no money left for it."""
        share = self._share(task)
        if share is not None and share <= 0:
            self.out_of_money = True
            return None
        before = self.journal.begun.get((task.id, task.digest))
        last = self.journal.ended.get((task.id, task.digest))
        attempt = max(before.attempt if before else 0, last.attempts if last else 0) + 1
        spent = before.cost_usd if before else (last.cost_usd or 0.0) if last else 0.0
        self.journal.begin(
            Begun(
                id=task.id,
                digest=task.digest,
                attempt=attempt,
                place=self.doer.place_of(task, attempt),
                cost_usd=spent,
            )
        )
        self._reserved[task.id] = share or 0.0
        try:
            result = await self.doer.do(task, attempt, share)
        finally:
            del self._reserved[task.id]
        self._spent += result.cost_usd or 0.0
        return self._stamped(task, result, attempt, spent)

    def _stamped(self, task: BatchTask, result: TaskResult, attempt: int, before: float) -> TaskResult:
        cost = None if result.cost_usd is None else result.cost_usd + before
        told = {"id": task.id, "digest": task.digest, "title": task.name, "ended": now()}
        return result.model_copy(update={**told, "attempts": attempt, "cost_usd": cost})

    def _share(self, task: BatchTask) -> float | None:
        """Return what a task may cost, so that all together stay within the budget."""
        if self.budget is None:
            return None
        free = self.budget - self._spent - sum(self._reserved.values())
        if free < self.budget * _LEAST_SHARE:
            return 0.0
        share = free / max(1, self.jobs - len(self._reserved))
        return min(share, task.max_cost) if task.max_cost is not None else share


def work_folder(out: Path) -> Path:
    """Return the folder for places of a batch; the same when it goes on.

    Not below aar's own folders, which no tool may read, nor in the project.

    Raises:
        StorageError: It cannot be made, or somebody else made it.
    """
    name = f"aar-batch-{os.getuid()}-{hashlib.sha256(os.fsencode(out.resolve())).hexdigest()[:12]}"
    return ensure(Path(tempfile.gettempdir()) / name)


async def open_project(spawner: Spawner, journal: Journal, cwd: Path, work: Path, *, copy: bool) -> Project:
    """Return what places are made from: the state that the batch began with, when it goes on.

    Raises:
        UsageError: The folder of results belongs to a batch over another project.
    """
    root, prefix, kind = await find_project(spawner, cwd, copy=copy)
    known = journal.base
    if known and (known.get("root"), known.get("prefix")) != (str(root), prefix):
        raise UsageError(
            f"{journal.folder} has results of {known.get('root')}; give --out, or start aar there."
        )
    if kind == "copy":
        project = Project(root, prefix, kind)
    else:
        git, base = Git(spawner, root), str(known.get("base", ""))
        if not base or await git.run("cat-file", "-e", f"{base}^{{commit}}", failing=False) is None:
            base = await snapshot(git, work, f"refs/aar/{work.name}")
        project = Project(root, prefix, kind, base)
    if not known or known.get("base") != project.base:
        journal.set_base(root=str(root), prefix=prefix, kind=kind, base=project.base)
    return project


async def finish_project(spawner: Spawner, project: Project, work: Path) -> None:
    """Remove what a batch that is through no longer needs."""
    if project.kind == "worktree":
        git = Git(spawner, project.root)
        await git.run("update-ref", "-d", f"refs/aar/{work.name}", failing=False)
        await git.run("worktree", "prune", failing=False)  # of places that a batch that was killed removed
    await asyncio.to_thread(work.rmdir)
