"""What an undo is to write: files that go back, conflicts, and what stays with the reason."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from aar.memory.checkpoints import CheckpointStore, Delta

if TYPE_CHECKING:
    from aar.runtime.undo.targets import Target


@dataclass(slots=True)
class Plan:
    """What is to be written.

    Attributes:
        now: Present state.
        restore: Files that go back.
        conflicts: Files that the user changed too.
        left_alone: Files that only the user changed.
        not_kept: Files that no checkpoint holds, with the reason.
        made: Empty folders to make.
        gone: Empty folders to remove.
    """

    now: str
    restore: list[Delta] = field(default_factory=list[Delta])
    conflicts: list[Delta] = field(default_factory=list[Delta])
    left_alone: list[str] = field(default_factory=list[str])
    not_kept: dict[str, str] = field(default_factory=dict[str, str])
    made: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


async def make_plan(store: CheckpointStore, target: Target, now: str) -> Plan:
    """Return what leads from the state ``now`` to ``target``."""
    assert target.state is not None
    plan = Plan(now)
    wanted, present = await store.state(target.state), await store.state(now)
    deltas = await store.compare(now, target.state)
    rules_changed = any(PurePosixPath(delta.path).name == ".gitignore" for delta in deltas)
    for delta in deltas:
        path = delta.path
        reason = _left_out(path, wanted.skipped) or _left_out(path, present.skipped)
        if reason is not None:
            plan.not_kept[path] = reason
        elif path not in target.touched:
            plan.left_alone.append(path)
        elif delta.new is None and rules_changed and _is_older(store, path, target.since):
            plan.not_kept[path] = "it was ignored then, and may be older than the checkpoint"
        elif path in target.changed_by_user:
            plan.conflicts.append(delta)
        else:
            plan.restore.append(delta)
    plan.made = tuple(set(wanted.empty) - set(present.empty))
    plan.gone = tuple(set(present.empty) - set(wanted.empty))
    return plan


def _is_older(store: CheckpointStore, path: str, moment: float) -> bool:
    try:
        return os.lstat(store.workspace / path).st_mtime < moment
    except OSError:
        return False


def _left_out(path: str, skipped: Mapping[str, str]) -> str | None:
    """Return why ``path`` (or a folder above) was left out; ``None``: it was not."""
    if not skipped:
        return None
    places = (path, *(str(parent) for parent in PurePosixPath(path).parents))
    return next((skipped[place] for place in places if place in skipped), None)
