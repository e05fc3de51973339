"""Schedules: what is run when, what it came to, and what of that nobody has seen yet."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aar.config.files import UnusableFileError, read_regular, write_atomic
from aar.config.paths import ensure
from aar.memory.file_lock import try_lock
from aar.orchestration.batch_results import TaskResult, money
from aar.orchestration.batch_tasks import BatchTask
from aar.orchestration.schedule_cron import Cron, parse_cron
from aar.protocol.errors import NotThereError, StorageError

Keeper = Literal["systemd", "crontab", "launchd", "none"]
_MAX_BYTES: Final = 5_000_000
_MAX_REPORTS: Final = 50
"""Reports that are kept of a schedule."""
_SEEN: Final = "seen"


class Schedule(BaseModel):
    """One schedule.

    Attributes:
        name: Its name.
        cron: Five fields.
        zone: IANA name of the time zone they count in.
        task: What is done, within which limits.
        folder: Where.
        keeper: Who calls aar at these times.
        created: When it was made (UTC); times before that do not count.
        slot: The last time for which it was run (UTC).
    """

    model_config = ConfigDict(frozen=True)

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,47}$")
    cron: str
    zone: str
    task: BatchTask
    folder: Path
    keeper: Keeper = "none"
    created: datetime
    slot: datetime | None = None

    @property
    def times(self) -> Cron:
        """When it runs."""
        return parse_cron(self.cron, self.zone)

    def due(self, now: datetime) -> datetime | None:
        """Return the newest time that has come and was not run for; ``None``: there is none.

        Times that were missed while the machine was off come to one.
        """
        last = self.times.last(now)
        if last is None or last <= (self.slot or self.created):
            return None
        return last


class Schedules:
    """Schedules and their reports, as files.

    Args:
        data: aar's data folder.
    """

    def __init__(self, data: Path) -> None:
        self._folder, self._reports = data / "schedules", data / "reports"

    def all(self) -> list[Schedule]:
        """Return all schedules by name."""
        return [self._read(file) for file in sorted(self._folder.glob("*.json"))]

    def get(self, name: str) -> Schedule:
        """Return a schedule.

        Raises:
            UsageError: There is none of that name.
        """
        file = self._folder / f"{name}.json"
        if os.sep in name or not file.is_file():
            known = ", ".join(path.stem for path in sorted(self._folder.glob("*.json")))
            hint = f"There are: {known}." if known else "`aar schedule add` makes one."
            raise NotThereError(f"There is no schedule '{name}'. {hint}")
        return self._read(file)

    def _read(self, file: Path) -> Schedule:
        try:
            return Schedule.model_validate_json(read_regular(file, _MAX_BYTES) or b"")
        except (UnusableFileError, ValidationError) as error:
            raise StorageError(f"{file} cannot be read; remove it and add the schedule anew.") from error

    def exists(self, name: str) -> bool:
        """Tell whether there is one of this name."""
        return (self._folder / f"{name}.json").exists()

    def save(self, schedule: Schedule) -> None:
        """Keep a schedule.

        Raises:
            StorageError: It cannot be written.
        """
        self._write(
            ensure(self._folder) / f"{schedule.name}.json", schedule.model_dump_json(indent=2, by_alias=True)
        )

    def remove(self, name: str) -> None:
        """Forget a schedule; its reports stay."""
        (self._folder / f"{name}.json").unlink(missing_ok=True)
        (self._folder / f"{name}.lock").unlink(missing_ok=True)

    @contextlib.contextmanager
    def running(self, name: str) -> Generator[bool]:
        """Hold a schedule; yields ``False`` when another process runs it now."""
        lock = os.open(ensure(self._folder) / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield try_lock(lock)
        finally:
            os.close(lock)

    def _write(self, file: Path, text: str) -> None:
        try:
            write_atomic(file, text.encode("utf-8", "backslashreplace"))
        except OSError as error:
            raise StorageError(f"{file} cannot be written: {error.strerror}.") from error

    # --- reports -----------------------------------------------------------------------------------------

    def report(self, schedule: Schedule, result: TaskResult, now: datetime) -> Path:
        """Keep what a run came to; the oldest reports go."""
        folder = ensure(self._reports)
        stamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
        file = folder / f"{stamp}.{schedule.name}.md"
        self._write(file, report_text(schedule, result, now))
        for old in self.reports(schedule.name)[:-_MAX_REPORTS]:
            old.unlink(missing_ok=True)
        return file

    def reports(self, name: str | None = None) -> list[Path]:
        """Return the reports (of one schedule), the oldest first."""
        return sorted(self._reports.glob(f"*Z.{name or '*'}.md"))

    def unseen(self) -> list[str]:
        """Return a sentence for each report that was not told of yet; they count as told then."""
        mark = self._reports / _SEEN
        with contextlib.suppress(OSError):
            told = mark.read_text(encoding="utf-8") if mark.exists() else ""
            fresh = [file for file in self.reports() if file.name > told]
            if fresh:
                write_atomic(mark, fresh[-1].name.encode(), durable=False)
            return [_told(file) for file in fresh]
        return []


def _told(file: Path) -> str:
    """Return the first line of a report, and how to read the rest."""
    with file.open(encoding="utf-8", errors="replace") as lines:
        first = lines.readline().strip().removeprefix("# ")
    name = file.name.split(".", 1)[1].removesuffix(".md")
    return f"{first[:200]} `aar schedule show {name}` has the report."


def report_text(schedule: Schedule, result: TaskResult, now: datetime) -> str:
    """Return a report as Markdown; the first line tells how it went."""
    local = now.astimezone(schedule.times.zone)
    state = "done" if result.status == "done" else f"{result.status.replace('_', ' ')} ({result.stop_reason})"
    lines = [
        f"# Schedule {schedule.name}, {local:%Y-%m-%d %H:%M %Z}: {state}.",
        "",
        f"- task: {schedule.task.name}",
        f"- folder: {schedule.folder}",
        f"- exit code: {result.exit_code}",
        f"- session: {result.session_id or 'none'}",
        f"- {result.steps} steps, {result.duration_s:.1f} s, {money(result.cost_usd)}",
    ]
    if result.error:
        lines.append(f"- error: {' '.join(result.error.split())}")
    return "\n".join([*lines, "", result.text.strip(), ""])
