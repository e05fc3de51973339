"""Projects, spawners and doers for batches."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aar.orchestration.batch_results import Begun, TaskResult
from aar.orchestration.batch_tasks import BatchTask
from aar.safety.spawn import ProcessSpawner


def git(folder: Path, *words: str) -> str:
    named = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(named, cwd=folder, check=True, capture_output=True, text=True).stdout


def repository(folder: Path) -> Path:
    """A repository with a committed, a changed, a new and an ignored file."""
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "a.txt").write_text("one\n")
    (folder / ".gitignore").write_text("ignored.txt\n")
    (folder / "pkg").mkdir()
    (folder / "pkg" / "b.txt").write_text("b\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    (folder / "a.txt").write_text("one\nchanged\n")
    (folder / "new.txt").write_text("new\n")
    (folder / "ignored.txt").write_text("ignored\n")
    return folder


@contextmanager
def spawner(folder: Path) -> Iterator[ProcessSpawner]:
    made = ProcessSpawner(folder)
    try:
        yield made
    finally:
        made.close()


@dataclass
class ToldDoer:
    """Does tasks by saying so.

    Attributes:
        results: By id, what is said; default: done for a dollar.
        seen: By id, what an attempt that nobody saw end is found to be.
        gates: By id, what a task waits for.
    """

    results: dict[str, TaskResult] = field(default_factory=dict)
    seen: dict[str, tuple[TaskResult | None, float]] = field(default_factory=dict)
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    did: list[tuple[str, int, float | None]] = field(default_factory=list)
    running: int = 0
    most: int = 0

    def place_of(self, task: BatchTask, attempt: int) -> str:
        return f"/nowhere/{task.id}-{attempt}"

    async def do(self, task: BatchTask, attempt: int, max_cost: float | None) -> TaskResult:
        self.did.append((task.id, attempt, max_cost))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if task.id in self.gates:
                await self.gates[task.id].wait()
            await asyncio.sleep(0)
        finally:
            self.running -= 1
        return self.results.get(task.id, done(task.id, 1.0 if max_cost is None else min(1.0, max_cost)))

    async def recover(self, task: BatchTask, begun: Begun) -> tuple[TaskResult | None, float]:
        return self.seen.get(task.id, (None, 0.0))


def done(name: str, cost: float | None = 1.0) -> TaskResult:
    return TaskResult(id=name, status="done", exit_code=0, stop_reason="end_turn", text="Yes.", cost_usd=cost)
