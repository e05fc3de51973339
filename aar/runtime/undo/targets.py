"""Where an undo leads: a state of the files, and who changed what since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aar.protocol.errors import NotThereError, StorageError

if TYPE_CHECKING:
    from aar.core.rewind import History, Mark, Scope
    from aar.memory.checkpoints import Checkpoint, CheckpointStore


@dataclass(frozen=True, slots=True)
class Target:
    """Where to go: a state of the files (``None``: they stay), and who changed what since."""

    to_seq: int
    state: str | None
    touched: frozenset[str] = frozenset()
    changed_by_user: frozenset[str] = frozenset()
    since: float = 0.0


async def before_steps(store: CheckpointStore, history: History, steps: int, scope: Scope) -> Target:
    """Return the place before the last steps that changed files; any steps for scope ``conversation``.

    Raises:
        NotThereError: There are not so many.
    """
    if scope == "conversation":
        places = history.steps
        if not 1 <= steps <= len(places):
            raise NotThereError(f"The conversation has {len(places)} steps to go back over, not {steps}.")
        return Target(places[-steps].seq - 1, None)
    marks = history.marks
    following: Checkpoint | None = None
    left = steps
    for place in range(len(marks) - 1, -1, -1):
        before = _known(store, marks[place])
        if before is None:
            break
        after = store.after(before.id) or following
        left -= (after.state if after is not None else await store.peek()) != before.state
        if left == 0:
            to_seq = marks[place].seq - 1
            return await target_of(
                store, marks[place:], to_seq if scope == "files" else history.place_before(marks[place].seq)
            )
        following = before
    done = steps - left
    what = f"changed files in only {done} of {steps} steps" if done else "changed no files"
    raise NotThereError(
        f"There is nothing to undo: as it stands, this session {what}. "
        "`--prompts N` or `--scope conversation` goes back in the conversation alone."
    )


async def to_checkpoint(store: CheckpointStore, history: History, prefix: str, scope: Scope) -> Target:
    """Return the place that a checkpoint keeps; ``prefix`` is its id, which may be shortened.

    Raises:
        StorageError: There is no such checkpoint.
    """
    wanted = store.get(prefix)
    for place, mark in enumerate(history.marks):
        if mark.checkpoint_id == wanted.id:
            to_seq = mark.seq - 1 if scope == "files" else history.place_before(mark.seq)
            return await target_of(store, history.marks[place:], to_seq)
    # Not of this conversation: all that differed when aar last looked counts as written by sessions.
    last = store.list()[-1]
    touched = await _paths(store, wanted.state, last.state)
    by_user = await _paths(store, last.state, await store.peek())
    return Target(0, wanted.state, touched, by_user, wanted.ts)


async def target_of(store: CheckpointStore, marks: Sequence[Mark], to_seq: int) -> Target:
    """Return the place of the first of ``marks``, with who changed which files since.

    Raises:
        StorageError: Its checkpoint is gone.
    """
    now = await store.peek()
    touched: set[str] = set()
    by_user: set[str] = set()
    known = [(mark, item) for mark in marks if (item := _known(store, mark)) is not None]
    if not known or known[0][0] is not marks[0]:
        raise StorageError("The checkpoint of that moment was thrown away to save room.")
    for place, (mark, before) in enumerate(known):
        end = known[place + 1][1].state if place + 1 < len(known) else now
        after = store.after(before.id)
        left = after.state if after is not None else end
        deltas = await store.compare(before.state, left)
        touched |= {delta.path for delta in deltas}
        by_user |= await _paths(store, left, end)
        if after is None and end is now:
            # aar ended in this step: what the tools said they left tells who wrote last.
            found = {delta.path: delta.new.blob if delta.new else None for delta in deltas}
            by_user |= {p for p, blob in mark.written.items() if p in found and found[p] != blob}
    first = known[0][1]
    return Target(to_seq, first.state, frozenset(touched), frozenset(by_user), first.ts)


async def after_undo(store: CheckpointStore, before_id: str, to_seq: int) -> Target:
    """Return where a redo leads: the state before the undo whose checkpoint is ``before_id``."""
    before = store.get(before_id)
    after = store.after(before.id) or before
    touched = await _paths(store, after.state, before.state)
    by_user = await _paths(store, after.state, await store.peek())
    return Target(to_seq, before.state, touched, by_user, before.ts)


def _known(store: CheckpointStore, mark: Mark) -> Checkpoint | None:
    try:
        return store.get(mark.checkpoint_id)
    except StorageError:
        return None


async def _paths(store: CheckpointStore, old: str, new: str) -> frozenset[str]:
    return frozenset(delta.path for delta in await store.compare(old, new))
