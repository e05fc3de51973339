"""Undo, redo and rewind of a session, as every door offers them.

Only what the session wrote goes back. A file that the user changed since is a conflict: nothing is done until
the caller says what to do with it. The state before is always kept first, so nothing is ever lost.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal

from aar.core.file_diffs import FileDiff, file_diff, without_hunks
from aar.core.rewind import History, Irreversible, Mark, Scope, irreversible
from aar.memory.checkpoint_state import FILE, LINK, PROGRAM, Entry
from aar.memory.checkpoints import Checkpoint, CheckpointStore, Delta
from aar.protocol.errors import StorageError, UsageError
from aar.protocol.events import CheckpointEvent, ContextEvent, Rewind
from aar.protocol.messages import TextBlock

if TYPE_CHECKING:
    from aar.core.session import Session

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


@dataclass(frozen=True, slots=True)
class _Target:
    """Where to go: a state of the files (``None``: they stay), and who changed what since."""

    to_seq: int
    state: str | None
    touched: frozenset[str] = frozenset()
    changed_by_user: frozenset[str] = frozenset()
    since: float = 0.0


@dataclass(slots=True)
class _Plan:
    """What is to be written."""

    now: str
    restore: list[Delta] = field(default_factory=list[Delta])
    conflicts: list[Delta] = field(default_factory=list[Delta])
    left_alone: list[str] = field(default_factory=list[str])
    not_kept: dict[str, str] = field(default_factory=dict[str, str])
    made: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


class Undo:
    """Takes back what a session did, and brings it back.

    One at a time, and never while a run is under way: the door sees to that.

    Args:
        store: Checkpoints of the workspace.
        session: The open session; ``None``: checkpoints are restored without one.
    """

    def __init__(self, store: CheckpointStore, session: Session | None) -> None:
        self.store = store
        self._session = session

    # --- looking -----------------------------------------------------------------------------------------

    def history(self) -> History:
        """Return what undo and redo can lead to; reads the session's events."""
        return History(self._session.events() if self._session is not None else ())

    def list(self) -> list[Checkpoint]:
        """Return the checkpoints of the session (of the workspace without one), the oldest first."""
        mine = self.store.list(self._session.session_id if self._session is not None else None)
        return [item for item in mine if item.kind != "after"]

    async def create(self, label: str = "") -> Checkpoint:
        """Keep the present state because the user asked.

        Raises:
            StorageError: It cannot be kept.
        """
        session_id = self._session.session_id if self._session is not None else ""
        checkpoint = await self.store.capture("manual", session_id=session_id, label=label)
        if self._session is not None:
            self._session.append(CheckpointEvent(checkpoint_id=checkpoint.id, kind="manual"))
        return checkpoint

    async def changes_since(self, checkpoint: str | None = None) -> list[FileDiff]:
        """Return how files differ from a checkpoint; without one, from the session's first.

        Raises:
            StorageError: There is no such checkpoint, or its contents are gone.
        """
        if checkpoint is None:
            marks = self.history().marks
            if not marks:
                return []
            checkpoint = marks[0].checkpoint_id
        start = self.store.get(checkpoint)
        return await self._diffs(await self.store.compare(start.state, await self.store.peek()))

    async def _diffs(self, deltas: Sequence[Delta]) -> list[FileDiff]:
        entries = [entry for delta in deltas for entry in (delta.old, delta.new) if entry is not None]
        contents = await self.store.read(entry.blob for entry in entries)

        def work() -> list[FileDiff]:
            return [
                file_diff(
                    delta.path,
                    None if delta.old is None else contents[delta.old.blob],
                    None if delta.new is None else contents[delta.new.blob],
                    _mode_change(delta),
                )
                for delta in deltas
            ]

        return await asyncio.to_thread(work)

    # --- going back --------------------------------------------------------------------------------------

    async def undo(
        self,
        steps: int = 1,
        scope: Scope = "both",
        *,
        prompts: int | None = None,
        checkpoint: str | None = None,
        on_conflict: OnConflict = "refuse",
        preview: bool = False,
    ) -> UndoReport:
        """Go back to before the last ``steps`` steps that changed files (or ``prompts``, or a checkpoint).

        Args:
            steps: Steps that changed files; with scope ``conversation`` any steps.
            scope: What goes back.
            prompts: Go back to before the last N prompts instead.
            checkpoint: Go back to this checkpoint instead (its id, which may be shortened).
            on_conflict: What to do with files that the user changed too.
            preview: Tell only what would be done.

        Raises:
            UsageError: There is nothing to undo.
            StorageError: The checkpoint is gone or cannot be made.
        """
        if checkpoint is not None:
            target = await self._to_checkpoint(checkpoint, scope)
        elif prompts is not None:
            places = self.history().prompts
            if not 1 <= prompts <= len(places):
                raise UsageError(f"The session has {len(places)} prompts to go back over, not {prompts}.")
            return await self.rewind_to(places[-prompts].seq, scope, on_conflict=on_conflict, preview=preview)
        else:
            target = await self._before_steps(steps, scope)
        if self._session is None or (checkpoint is not None and target.to_seq == 0):
            scope = "files"
        return await self._go("undo", target, scope, on_conflict, preview)

    async def rewind_to(
        self,
        prompt_seq: int,
        scope: Scope = "both",
        *,
        on_conflict: OnConflict = "refuse",
        preview: bool = False,
    ) -> UndoReport:
        """Go back to right before the prompt whose event is ``prompt_seq``.

        Raises:
            UsageError: No prompt that counts has this number.
            StorageError: The checkpoint is gone or cannot be made.
        """
        history = self.history()
        if prompt_seq not in {place.seq for place in history.prompts}:
            raise UsageError(f"Event {prompt_seq} is no prompt of the conversation as it stands.")
        marks = [mark for mark in history.marks if mark.seq > prompt_seq]
        target = _Target(prompt_seq - 1, None)
        if marks and scope != "conversation":
            target = await self._target(marks, prompt_seq - 1)
        return await self._go("undo", target, scope, on_conflict, preview)

    async def redo(self, *, on_conflict: OnConflict = "refuse", preview: bool = False) -> UndoReport:
        """Take the last undo or rewind back.

        Raises:
            UsageError: Nothing was undone, or work went on since.
            StorageError: The checkpoint is gone or cannot be made.
        """
        undone = self.history().undone
        if not undone:
            raise UsageError("There is nothing to redo: nothing was undone, or work went on since.")
        last = undone[-1]
        target = _Target(last.to_seq, None)
        if last.before_id:
            before = self.store.get(last.before_id)
            after = self.store.after(before.id) or before
            now = await self.store.peek()
            touched = await self._paths(after.state, before.state)
            by_user = await self._paths(after.state, now)
            target = _Target(last.to_seq, before.state, touched, by_user, before.ts)
        return await self._go("redo", target, last.scope, on_conflict, preview)

    # --- where to ----------------------------------------------------------------------------------------

    async def _before_steps(self, steps: int, scope: Scope) -> _Target:
        history = self.history()
        if scope == "conversation":
            places = history.steps
            if not 1 <= steps <= len(places):
                raise UsageError(f"The conversation has {len(places)} steps to go back over, not {steps}.")
            return _Target(places[-steps].seq - 1, None)
        marks = history.marks
        following: Checkpoint | None = None
        left = steps
        for place in range(len(marks) - 1, -1, -1):
            before = self._known(marks[place])
            if before is None:
                break
            after = self.store.after(before.id) or following
            left -= (after.state if after is not None else await self.store.peek()) != before.state
            if left == 0:
                to_seq = marks[place].seq - 1
                return await self._target(
                    marks[place:], to_seq if scope == "files" else history.place_before(marks[place].seq)
                )
            following = before
        done = steps - left
        what = f"changed files in only {done} of {steps} steps" if done else "changed no files"
        raise UsageError(
            f"There is nothing to undo: as it stands, this session {what}. "
            "`--prompts N` or `--scope conversation` goes back in the conversation alone."
        )

    def _known(self, mark: Mark) -> Checkpoint | None:
        try:
            return self.store.get(mark.checkpoint_id)
        except StorageError:
            return None

    async def _to_checkpoint(self, prefix: str, scope: Scope) -> _Target:
        wanted = self.store.get(prefix)
        history = self.history()
        for place, mark in enumerate(history.marks):
            if mark.checkpoint_id == wanted.id:
                to_seq = mark.seq - 1 if scope == "files" else history.place_before(mark.seq)
                return await self._target(history.marks[place:], to_seq)
        # Not of this conversation: all that differed when aar last looked counts as written by sessions.
        last = self.store.list()[-1]
        touched = await self._paths(wanted.state, last.state)
        by_user = await self._paths(last.state, await self.store.peek())
        return _Target(0, wanted.state, touched, by_user, wanted.ts)

    async def _target(self, marks: Sequence[Mark], to_seq: int) -> _Target:
        """Tell who changed which files since the first of ``marks``."""
        now = await self.store.peek()
        touched: set[str] = set()
        by_user: set[str] = set()
        known = [(mark, item) for mark in marks if (item := self._known(mark)) is not None]
        if not known or known[0][0] is not marks[0]:
            raise StorageError("The checkpoint of that moment was thrown away to save room.")
        for place, (mark, before) in enumerate(known):
            end = known[place + 1][1].state if place + 1 < len(known) else now
            after = self.store.after(before.id)
            left = after.state if after is not None else end
            deltas = await self.store.compare(before.state, left)
            touched |= {delta.path for delta in deltas}
            by_user |= await self._paths(left, end)
            if after is None and end is now:
                # aar ended in this step: what the tools said they left tells who wrote last.
                found = {delta.path: delta.new.blob if delta.new else None for delta in deltas}
                by_user |= {p for p, blob in mark.written.items() if p in found and found[p] != blob}
        first = known[0][1]
        return _Target(to_seq, first.state, frozenset(touched), frozenset(by_user), first.ts)

    async def _paths(self, old: str, new: str) -> frozenset[str]:
        return frozenset(delta.path for delta in await self.store.compare(old, new))

    # --- doing it ----------------------------------------------------------------------------------------

    async def _go(
        self,
        kind: Literal["undo", "redo"],
        target: _Target,
        scope: Scope,
        on_conflict: OnConflict,
        preview: bool,
    ) -> UndoReport:
        stays = self._irreversible(target) if kind == "undo" and scope != "conversation" else ()
        if scope == "conversation" or target.state is None:
            if not preview:
                self._record(kind, "", (), target.to_seq, scope)
            return UndoReport(not preview, kind, scope, target.to_seq, irreversible=stays)
        session_id = self._session.session_id if self._session is not None else ""
        if preview:
            plan, saved = await self._plan(target, await self.store.peek()), None
        else:
            saved = await self.store.capture(kind, session_id=session_id)
            plan = await self._plan(target, saved.state)
        conflicts = tuple(
            Conflict(diff.path, diff) for diff in await self._diffs([_turned(d) for d in plan.conflicts])
        )
        if saved is None or (conflicts and on_conflict == "refuse"):
            restored = tuple(delta.path for delta in plan.restore)
            return UndoReport(
                False, kind, scope, target.to_seq, saved.id if saved else "", restored, conflicts,
                left_alone=tuple(plan.left_alone), not_kept=plan.not_kept, irreversible=stays,
            )  # fmt: skip
        beside = [d for d in plan.conflicts if d.old is not None] if on_conflict == "keep_both" else []
        restored, problems, copies = await self.store.restore(
            [*plan.restore, *plan.conflicts], made=plan.made, gone=plan.gone, beside=beside
        )
        await self.store.capture("after", session_id=session_id, of=saved.id)
        self._record(kind, saved.id, restored, target.to_seq, scope)
        return UndoReport(
            True, kind, scope, target.to_seq, saved.id, tuple(restored), conflicts, copies,
            tuple(plan.left_alone), plan.not_kept, problems, stays,
        )  # fmt: skip

    def _irreversible(self, target: _Target) -> tuple[Irreversible, ...]:
        if self._session is None:
            return ()
        counts = set(self.history().calls)
        found = irreversible(self._session.events(target.to_seq + 1), self.store.workspace)
        return tuple(effect for effect in found if effect.seq in counts)

    async def _plan(self, target: _Target, now: str) -> _Plan:
        assert target.state is not None
        plan = _Plan(now)
        wanted, present = await self.store.state(target.state), await self.store.state(now)
        deltas = await self.store.compare(now, target.state)
        rules_changed = any(PurePosixPath(delta.path).name == ".gitignore" for delta in deltas)
        for delta in deltas:
            path = delta.path
            reason = _left_out(path, wanted.skipped) or _left_out(path, present.skipped)
            if reason is not None:
                plan.not_kept[path] = reason
            elif path not in target.touched:
                plan.left_alone.append(path)
            elif delta.new is None and rules_changed and self._is_older(path, target.since):
                plan.not_kept[path] = "it was ignored then, and may be older than the checkpoint"
            elif path in target.changed_by_user:
                plan.conflicts.append(delta)
            else:
                plan.restore.append(delta)
        plan.made = tuple(set(wanted.empty) - set(present.empty))
        plan.gone = tuple(set(present.empty) - set(wanted.empty))
        return plan

    def _is_older(self, path: str, moment: float) -> bool:
        try:
            return os.lstat(self.store.workspace / path).st_mtime < moment
        except OSError:
            return False

    def _record(
        self, kind: Literal["undo", "redo"], saved: str, paths: Iterable[str], to_seq: int, scope: Scope
    ) -> None:
        """Write what was done into the session; a model whose words stay is told about its files."""
        if self._session is None:
            return
        names = tuple(paths)
        self._session.append(
            CheckpointEvent(checkpoint_id=saved, kind=kind, paths=names), Rewind(to_seq=to_seq, scope=scope)
        )
        if scope == "files" and names:
            verb = "took back" if kind == "undo" else "brought back"
            self._tell_model(f"The user {verb} changes of these files", names)

    def _tell_model(self, what: str, names: Sequence[str]) -> None:
        if self._session is None:
            return
        listed = ", ".join(names[:30]) + (f" and {len(names) - 30} more" if len(names) > 30 else "")
        text = f"{what}; read them again before you rely on them: {listed}"
        self._session.append(
            ContextEvent(source="file_change", label="undo", content=(TextBlock(text=text),))
        )

    # --- parts of a file ---------------------------------------------------------------------------------

    async def revert_hunks(
        self,
        path: str,
        hunks: Collection[int],
        checkpoint: str | None = None,
        *,
        shown: FileDiff | None = None,
    ) -> FileDiff | None:
        """Take back single hunks of what `changes_since` told; return what still differs (``None``: nothing).

        Args:
            path: The file.
            hunks: Indexes of its hunks. For a file without hunks (binary, removed) any: it goes back whole.
            checkpoint: As for `changes_since`.
            shown: The difference that the user saw; when the file changed since, nothing is done.

        Raises:
            UsageError: There is no such difference.
            StorageError: The file changed since ``shown``, or cannot be written.
        """
        diff, entry = await self._difference(path, checkpoint)
        if shown is not None and (shown.old, shown.new) != (diff.old, diff.new):
            raise StorageError(f"{path} has changed since it was shown; look at it again.")
        if unknown := sorted(set(hunks) - {hunk.index for hunk in diff.hunks}) if diff.hunks else []:
            raise UsageError(f"{path} has no change number {unknown[0]}.")
        whole = not diff.hunks or set(hunks) == {hunk.index for hunk in diff.hunks}
        if whole and diff.old is None:
            wanted: bytes | None = None
        elif whole:
            wanted = diff.old
        else:
            wanted = without_hunks(diff.old or b"", diff.new or b"", hunks)
        session_id = self._session.session_id if self._session is not None else ""
        await self.store.capture("manual", session_id=session_id, label=f"before taking back parts of {path}")
        blob = None if wanted is None else self.store.put(wanted)
        if wanted is not None and blob is None:
            raise StorageError(f"{path} cannot be kept, so it is left as it is.")
        delta = Delta(path, entry.new, None if blob is None else Entry(_mode(entry, whole), blob))
        _, problems, _ = await self.store.restore([delta])
        if problems:
            raise StorageError(f"{path} could not be changed: {problems[path]}.")
        self._tell_model("The user took back changes of this file", [path])
        left = [item for item in await self.changes_since(checkpoint) if item.path == path]
        return left[0] if left else None

    async def _difference(self, path: str, checkpoint: str | None) -> tuple[FileDiff, Delta]:
        marks = self.history().marks
        if checkpoint is None and not marks:
            raise UsageError("The session has changed nothing yet.")
        start = self.store.get(checkpoint or marks[0].checkpoint_id)
        deltas = await self.store.compare(start.state, await self.store.peek())
        found = [delta for delta in deltas if delta.path == path]
        if not found:
            raise UsageError(f"{path} does not differ from that checkpoint.")
        return (await self._diffs(found))[0], found[0]


def _left_out(path: str, skipped: Mapping[str, str]) -> str | None:
    """Return why ``path`` (or a folder above) was left out; ``None``: it was not."""
    if not skipped:
        return None
    places = (path, *(str(parent) for parent in PurePosixPath(path).parents))
    return next((skipped[place] for place in places if place in skipped), None)


def _turned(delta: Delta) -> Delta:
    return Delta(delta.path, delta.new, delta.old)


def _mode(delta: Delta, whole: bool) -> int:
    """Return the mode of a file that is partly or wholly taken back."""
    first, second = (delta.old, delta.new) if whole else (delta.new, delta.old)
    entry = first or second
    return FILE if entry is None else entry.mode


def _mode_change(delta: Delta) -> str:
    if delta.old is None or delta.new is None or delta.old.mode == delta.new.mode:
        return ""
    return {PROGRAM: "executable", FILE: "not executable", LINK: "link"}.get(delta.new.mode, "")
