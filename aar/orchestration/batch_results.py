"""What became of the tasks of a batch: a journal that survives ``kill -9``, and the tables made from it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aar.config.files import write_atomic
from aar.memory.append import append_line
from aar.memory.file_lock import try_lock
from aar.orchestration.batch_tasks import BatchTask
from aar.protocol.errors import StorageError, UsageError
from aar.protocol.usage import Usage

Status = Literal["done", "failed", "not_run"]
NOT_RUN_CODES: Final = frozenset({2, 3, 130, 143})
"""Exit codes of a run that sent no request, or was ended from outside: it is done again."""


class TaskResult(BaseModel):
    """What became of one task; a line of ``results.jsonl``.

    Attributes:
        id: The task's.
        title: A few words of the task.
        status: ``done``; ``failed``; ``not_run``: nothing was asked, so the next start does it again.
        exit_code: Of its ``aar run``.
        stop_reason: Why the run ended.
        text: The answer.
        error: What went wrong, in a sentence.
        session_id: Its session.
        cost_usd: US dollars of all attempts; ``None``: not known.
        usage: Tokens of the last attempt.
        steps: Model requests of the last attempt.
        duration_s: Wall-clock seconds of the last attempt.
        attempts: How often it was begun.
        patch: File with its changes, relative to the folder of results; ``None``: it changed nothing.
        files: Paths that it changed.
        added: Lines.
        removed: Lines.
        worker: Who did it, on a cluster.
        ended: When, in UTC.
        digest: Hash of what the task said.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    title: str = ""
    status: Status = "failed"
    exit_code: int = 7
    stop_reason: str = "error"
    text: str = ""
    error: str | None = None
    session_id: str | None = None
    cost_usd: float | None = None
    usage: Usage = Field(default_factory=Usage)
    steps: int = 0
    duration_s: float = 0.0
    attempts: int = 1
    patch: str | None = None
    files: tuple[str, ...] = ()
    added: int = 0
    removed: int = 0
    worker: str | None = None
    ended: str = ""
    digest: str = ""


def status_of(exit_code: int) -> Status:
    """Return what an exit code of ``aar run`` says about a task."""
    if exit_code == 0:
        return "done"
    return "not_run" if exit_code in NOT_RUN_CODES else "failed"


class Begun(BaseModel):
    """An attempt of which no end is known: aar was killed meanwhile.

    Attributes:
        id: The task's.
        digest: Hash of what the task said.
        attempt: From 1.
        place: Folder of the attempt; empty: on a cluster.
        cost_usd: What is known to be spent on attempts before.
    """

    id: str
    digest: str
    attempt: int = 1
    place: str = ""
    cost_usd: float = 0.0


class Journal:
    """The folder of results of one batch, held by one process at a time.

    ``journal.jsonl`` is the truth: a line for each begin and end, on disk before the next thing happens.

    Args:
        folder: Where results go.

    Raises:
        UsageError: Another ``aar batch`` works there.
        StorageError: It cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.base: dict[str, Any] = {}
        self.ended: dict[tuple[str, str], TaskResult] = {}
        self.begun: dict[tuple[str, str], Begun] = {}
        self._seen: dict[tuple[str, str], TaskResult] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "patches").mkdir(exist_ok=True)
            ignore = folder / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n", encoding="utf-8")
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._lock = os.open(folder / ".lock", flags, 0o600)
            if not try_lock(self._lock):
                os.close(self._lock)
                raise UsageError(f"Another aar batch works in {folder}; wait for it, or give --out.")
            self._file = folder / "journal.jsonl"
            lines = self._file.read_bytes().splitlines() if self._file.exists() else []
        except OSError as error:
            raise StorageError(f"{folder} cannot be used: {error.strerror}.") from error
        for line in lines:
            self._take(line)

    def close(self) -> None:
        """Let others work there."""
        os.close(self._lock)

    def _take(self, line: bytes) -> None:
        try:
            record: Any = json.loads(line)
            match record.pop("type"):
                case "batch":
                    self.base = record
                case "begin":
                    begun = Begun.model_validate(record)
                    self.begun[begun.id, begun.digest] = begun
                    self._seen.pop((begun.id, begun.digest), None)
                case "result":
                    result = TaskResult.model_validate(record)
                    self._seen[result.id, result.digest] = result
                case "end":
                    result = TaskResult.model_validate(record)
                    self.ended[result.id, result.digest] = result
                    self.begun.pop((result.id, result.digest), None)
                case _:
                    pass
        except (ValueError, KeyError, AttributeError, ValidationError):
            return  # torn by a crash: what it told had not happened

    def _write(self, kind: str, fields: dict[str, Any]) -> None:
        line = json.dumps({"type": kind, **fields}, ensure_ascii=False).encode("utf-8", "backslashreplace")
        try:
            append_line(self._file, line + b"\n")
            descriptor = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StorageError(f"{self._file} cannot be written: {error.strerror}.") from error

    def set_base(self, **fields: Any) -> None:
        """Keep what all tasks start from."""
        self.base = fields
        self._write("batch", fields)

    def begin(self, begun: Begun) -> None:
        """Tell that an attempt begins now."""
        self.begun[begun.id, begun.digest] = begun
        self._write("begin", begun.model_dump())

    def keep_result(self, task: BatchTask, result: TaskResult) -> None:
        """Keep what an attempt came to while its place is still there."""
        kept = result.model_copy(update={"id": task.id, "digest": task.digest})
        self._write("result", kept.model_dump(mode="json"))

    def kept_result(self, task: BatchTask) -> TaskResult | None:
        """Return what the last attempt came to, if aar was killed before it noted the end."""
        return self._seen.get((task.id, task.digest))

    def end(self, result: TaskResult) -> None:
        """Keep what became of a task."""
        self._write("end", result.model_dump(mode="json"))
        self.ended[result.id, result.digest] = result
        self.begun.pop((result.id, result.digest), None)

    def open_tasks(self, tasks: Sequence[BatchTask], *, again: bool) -> list[BatchTask]:
        """Return the tasks that are still to be done; ``again``: those that failed too."""
        return [task for task in tasks if not self._settled(task, again=again)]

    def _settled(self, task: BatchTask, *, again: bool) -> bool:
        result = self.ended.get((task.id, task.digest))
        return result is not None and (result.status == "done" or (result.status == "failed" and not again))

    def results(self, tasks: Sequence[BatchTask]) -> list[TaskResult]:
        """Return what is known, in the order of the tasks."""
        found = (self.ended.get((task.id, task.digest)) for task in tasks)
        return [result for result in found if result is not None]

    def keep_patch(self, name: str, data: bytes) -> str | None:
        """Write the changes of a task; return the file's name in the folder."""
        path = self.folder / "patches" / f"{name}.patch"
        if not data:
            path.unlink(missing_ok=True)
            return None
        write_atomic(path, data, 0o644)
        return f"patches/{name}.patch"

    def write_tables(self, tasks: Sequence[BatchTask], source: str) -> None:
        """Write ``results.jsonl`` and ``results.md``.

        Raises:
            StorageError: They cannot be written.
        """
        results = self.results(tasks)
        lines = "".join(f"{result.model_dump_json()}\n" for result in results)
        try:
            write_atomic(self.folder / "results.jsonl", lines.encode("utf-8", "backslashreplace"), 0o644)
            page = markdown(results, len(tasks), source)
            write_atomic(self.folder / "results.md", page.encode("utf-8", "backslashreplace"), 0o644)
        except OSError as error:
            raise StorageError(f"{self.folder} cannot be written: {error.strerror}.") from error


def now() -> str:
    """Return the time as RFC 3339, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def summary(results: Sequence[TaskResult], total: int) -> str:
    """Return how a batch stands, in a sentence."""
    counts = {status: sum(item.status == status for item in results) for status in ("done", "failed")}
    parts = [f"{counts['done']} done"]
    if counts["failed"]:
        parts.append(f"{counts['failed']} failed")
    if left := total - counts["done"] - counts["failed"]:
        parts.append(f"{left} not done")
    return f"{', '.join(parts)} of {total}, {money(_total(results))}."


def _total(results: Sequence[TaskResult]) -> float | None:
    known = [item.cost_usd for item in results if item.cost_usd is not None]
    return sum(known) if known or not results else None


def money(usd: float | None) -> str:
    """Return an amount as people write it."""
    return "cost not known" if usd is None else f"${usd:.4f}" if 0 < usd < 0.01 else f"${usd:.2f}"


def markdown(results: Sequence[TaskResult], total: int, source: str) -> str:
    """Return the table of results as a page."""
    head = [
        f"# {_cell(source)}",
        "",
        summary(results, total),
        "",
        "| task | about | result | changes | steps | time | cost | attempts | answer |",
        "|---|---|---|---|--:|--:|--:|--:|---|",
    ]
    return "\n".join([*head, *(_row(item) for item in results)]) + "\n"


def _row(item: TaskResult) -> str:
    state = item.status.replace("_", " ")
    if item.status != "done":
        state += f" ({item.stop_reason}, {item.exit_code})"
    changes = "none"
    if item.patch:
        changes = f"[{len(item.files)} files, +{item.added} -{item.removed}]({item.patch})"
    said = item.error if item.status != "done" and item.error else item.text
    cells = (
        item.id,
        item.title,
        state,
        changes,
        str(item.steps),
        f"{item.duration_s:.1f} s",
        money(item.cost_usd) if item.cost_usd is not None else "?",
        str(item.attempts),
        said[:160],
    )
    return "| " + " | ".join(cell if cell is changes else _cell(cell) for cell in cells) + " |"


def _cell(text: str) -> str:
    """Return text that stays in its cell, and is neither a link nor HTML."""
    flat = " ".join(text.split())
    for mark in "\\`*_[]<>|":
        flat = flat.replace(mark, f"\\{mark}")
    return flat
