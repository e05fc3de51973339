"""What an undo tells: what it did or would do, and what stands against it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from aar.core.file_diffs import FileDiff
    from aar.core.rewind import Irreversible, Scope

OnConflict = Literal["refuse", "keep_both", "force"]
"""What to do with files that the user changed too: nothing at all, save theirs beside, overwrite them."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """A file that both the session and the user changed.

    Attributes:
        path: Relative to the workspace.
        diff: From what would be brought back to what is there now (the user's version).
    """

    path: str
    diff: FileDiff


@dataclass(frozen=True, slots=True)
class UndoReport:
    """What an undo, redo or rewind did, or would do.

    Attributes:
        done: Whether anything was changed; false for a refusal and for a preview.
        kind: Which of the two.
        scope: What it was about.
        to_seq: Event to which the session went back.
        checkpoint_id: Checkpoint of the state right before; empty where files took no part.
        restored: Files that are as they were, by path (when not done: that would be).
        conflicts: Files that the user changed since; when not empty and not done, nothing was done.
        beside: Where the user's versions were saved, by path.
        left_alone: Files that only the user changed, which stay.
        not_kept: Files that no checkpoint holds (too large, unreadable), with the reason.
        problems: Files that could not be written, with the reason.
        irreversible: Effects that stay.
    """

    done: bool
    kind: Literal["undo", "redo"]
    scope: Scope
    to_seq: int
    checkpoint_id: str = ""
    restored: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    beside: dict[str, str] = field(default_factory=dict[str, str])
    left_alone: tuple[str, ...] = ()
    not_kept: dict[str, str] = field(default_factory=dict[str, str])
    problems: dict[str, str] = field(default_factory=dict[str, str])
    irreversible: tuple[Irreversible, ...] = ()
