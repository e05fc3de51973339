"""What was spent on which day, over all sessions and processes: a small file a day in ``<data>/spending``.

Each line is one amount. Lines are added under a lock, and a process that asks for the total reads only what
came since it last asked.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

from aar.memory.append import FLAGS, write_line
from aar.memory.file_lock import try_lock, unlock

_TRIES = 20
_PAUSE_S = 0.001


class SpendingLedger:
    """The amounts of each day, in the user's own time zone.

    Args:
        folder: Where the files lie; made with the first amount, for the owner only.
        today: Returns the date.
    """

    def __init__(self, folder: Path, today: Callable[[], date] = date.today) -> None:
        self._folder = folder
        self._today = today
        self._day: date | None = None
        self._read = 0
        self._total = 0.0
        self._unwritten = 0.0

    def add(self, usd: float) -> None:
        """Count an amount in US dollars. A disk that refuses does not stop the work: it counts in memory."""
        if not usd > 0:
            return
        line = json.dumps({"usd": round(usd, 9), "pid": os.getpid(), "at": round(time.time(), 3)}) + "\n"
        try:
            self._append(line.encode())
        except OSError:
            self._follow_day()
            self._unwritten += usd

    def today(self) -> float:
        """Return US dollars of today; what other processes spent is in it. Costs what is new in the file."""
        self._follow_day()
        assert self._day is not None
        try:
            with self._path(self._day).open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._read:
                    self._read, self._total = 0, 0.0
                file.seek(self._read)
                data = file.read()
        except OSError:
            data = b""
        whole = data.rfind(b"\n") + 1
        self._read += whole
        self._total += sum(map(_amount, data[:whole].splitlines()))
        return self._total + self._unwritten

    def of(self, day: date) -> float:
        """Return US dollars of any day."""
        try:
            return sum(map(_amount, self._path(day).read_bytes().splitlines()))
        except OSError:
            return 0.0

    def _follow_day(self) -> None:
        day = self._today()
        if day != self._day:
            self._day, self._read, self._total, self._unwritten = day, 0, 0.0, 0.0

    def _path(self, day: date) -> Path:
        return self._folder / f"{day.isoformat()}.jsonl"

    def _append(self, line: bytes) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._path(self._today()), FLAGS, 0o600)
        try:
            locked = _lock(descriptor)
            try:
                write_line(descriptor, line)
            finally:
                if locked:
                    unlock(descriptor)
        finally:
            os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Wait a moment for the lock; without it the append is still one write, which the kernel keeps whole."""
    for _ in range(_TRIES):
        if try_lock(descriptor):
            return True
        time.sleep(_PAUSE_S)
    return False


def _amount(line: bytes) -> float:
    """Return the dollars of one line; a line that cannot be read counts as 0."""
    try:
        usd = json.loads(line)["usd"]
        return float(usd) if usd > 0 else 0.0
    except (ValueError, KeyError, TypeError):
        return 0.0
