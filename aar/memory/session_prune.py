"""Which sessions go when room is made: by age and size, never one that is open."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aar.memory.file_lock import try_lock
from aar.memory.session_scan import SessionInfo


@dataclass(frozen=True, slots=True)
class Prunable:
    """A session that goes.

    Attributes:
        session: The session.
        bytes: Of its file and of what lies beside it.
        why: ``age`` or ``size``.
    """

    session: SessionInfo
    bytes: int
    why: Literal["age", "size"]


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """What goes and what stays.

    Attributes:
        gone: Sessions that go, the oldest first.
        kept: How many stay.
        kept_bytes: Their size.
        open: Ids of sessions that would go, but are open in some process.
    """

    gone: tuple[Prunable, ...]
    kept: int
    kept_bytes: int
    open: tuple[str, ...]


def plan_prune(
    infos: Sequence[SessionInfo],
    *,
    now: float,
    older_than_s: float | None = None,
    max_bytes: int | None = None,
) -> PrunePlan:
    """Choose the sessions last written too long ago, then the oldest until the rest is small enough.

    Args:
        infos: All sessions that may go.
        now: Seconds since 1970.
        older_than_s: Age in seconds at which a session goes.
        max_bytes: Size that all together may have.
    """
    gone: list[Prunable] = []
    is_open: list[str] = []
    aged = sorted((_moment(info), info.id, info, session_bytes(info.path)) for info in infos if info.path)
    left = sum(size for *_, size in aged)
    kept = len(aged)
    for moment, name, info, size in aged:
        why: Literal["age", "size"] | None = None
        if older_than_s is not None and now - moment > older_than_s:
            why = "age"
        elif max_bytes is not None and left > max_bytes:
            why = "size"
        if why is None or info.path is None:
            continue
        if _is_open(info.path):
            is_open.append(name)
            continue
        gone.append(Prunable(info, size, why))
        left -= size
        kept -= 1
    return PrunePlan(tuple(gone), kept, left, tuple(is_open))


def _moment(info: SessionInfo) -> float:
    try:
        return info.path.stat().st_mtime if info.path is not None else 0.0
    except OSError:
        return 0.0


def session_bytes(path: Path | None) -> int:
    """Return the bytes of a session's file and of the folder beside it."""
    if path is None:
        return 0
    total = _size(path)
    for folder, _, names in os.walk(path.with_suffix(".d")):
        total += sum(_size(Path(folder, name)) for name in names)
    return total


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _is_open(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not try_lock(fd)
    finally:
        os.close(fd)
