"""Waiting for what another task, thread or process does, without guessing how long it takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
WAIT_S = 40.0
_FIRST_S, _LONGEST_S = 0.001, 0.03


def _pauses(seconds: float, told: Callable[[], object] | None) -> Iterator[float]:
    """Yield ever longer pauses: what is quick is seen at once, what is slow is not asked all the time."""
    end, pause = time.monotonic() + seconds, _FIRST_S
    while time.monotonic() < end:
        yield pause
        pause = min(2 * pause, _LONGEST_S)
    raise AssertionError(told() if told else f"it did not come true within {seconds:g} s")


def wait_until(true: Callable[[], T], seconds: float = WAIT_S, told: Callable[[], object] | None = None) -> T:
    """Block until ``true()`` is true and return what it gave; ``told()`` says what there was instead."""
    pauses = _pauses(seconds, told)
    while not (found := true()):
        time.sleep(next(pauses))
    return found


async def until(
    true: Callable[[], T], seconds: float = WAIT_S, told: Callable[[], object] | None = None
) -> T:
    """Let the loop run until ``true()`` is true and return what it gave."""
    pauses = _pauses(seconds, told)
    while not (found := true()):
        await asyncio.sleep(next(pauses))
    return found


def alive(pid: int) -> bool:
    """Tell whether a process is there and no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


async def gone(pids: Sequence[int], seconds: float = WAIT_S) -> bool:
    """Wait until none of these processes is alive."""
    return await until(
        lambda: not any(map(alive, pids)), seconds, lambda: f"still alive: {[*filter(alive, pids)]}"
    )
