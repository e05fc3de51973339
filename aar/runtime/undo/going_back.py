"""Takes back what a session did, whole or by parts of a file, and brings it back."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from aar.core.file_diffs import FileDiff, file_diff, without_hunks
from aar.core.rewind import History, Irreversible, Scope, irreversible
from aar.memory.checkpoint_state import FILE, LINK, PROGRAM, Entry
from aar.memory.checkpoints import Checkpoint, CheckpointStore, Delta
from aar.protocol.errors import NotThereError, StorageError
from aar.protocol.events import CheckpointEvent, ContextEvent, Rewind
from aar.protocol.messages import TextBlock
from aar.runtime.undo.plan import make_plan
from aar.runtime.undo.report import Conflict, OnConflict, UndoReport
from aar.runtime.undo.targets import Target, after_undo, before_steps, target_of, to_checkpoint

if TYPE_CHECKING:
    from aar.core.session import Session


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
            NotThereError: There is nothing to undo.
            StorageError: The checkpoint is gone or cannot be made.
        """
        if checkpoint is not None:
            target = await to_checkpoint(self.store, self.history(), checkpoint, scope)
        elif prompts is not None:
            places = self.history().prompts
            if not 1 <= prompts <= len(places):
                raise NotThereError(f"The session has {len(places)} prompts to go back over, not {prompts}.")
            return await self.rewind_to(places[-prompts].seq, scope, on_conflict=on_conflict, preview=preview)
        else:
            target = await before_steps(self.store, self.history(), steps, scope)
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
            NotThereError: No prompt that counts has this number.
            StorageError: The checkpoint is gone or cannot be made.
        """
        history = self.history()
        if prompt_seq not in {place.seq for place in history.prompts}:
            raise NotThereError(f"Event {prompt_seq} is no prompt of the conversation as it stands.")
        marks = [mark for mark in history.marks if mark.seq > prompt_seq]
        target = Target(prompt_seq - 1, None)
        if marks and scope != "conversation":
            target = await target_of(self.store, marks, prompt_seq - 1)
        return await self._go("undo", target, scope, on_conflict, preview)

    async def redo(self, *, on_conflict: OnConflict = "refuse", preview: bool = False) -> UndoReport:
        """Take the last undo or rewind back.

        Raises:
            NotThereError: Nothing was undone, or work went on since.
            StorageError: The checkpoint is gone or cannot be made.
        """
        undone = self.history().undone
        if not undone:
            raise NotThereError("There is nothing to redo: nothing was undone, or work went on since.")
        last = undone[-1]
        target = Target(last.to_seq, None)
        if last.before_id:
            target = await after_undo(self.store, last.before_id, last.to_seq)
        return await self._go("redo", target, last.scope, on_conflict, preview)

    # --- doing it ----------------------------------------------------------------------------------------

    async def _go(
        self,
        kind: Literal["undo", "redo"],
        target: Target,
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
            plan, saved = await make_plan(self.store, target, await self.store.peek()), None
        else:
            saved = await self.store.capture(kind, session_id=session_id)
            plan = await make_plan(self.store, target, saved.state)
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

    def _irreversible(self, target: Target) -> tuple[Irreversible, ...]:
        if self._session is None:
            return ()
        counts = set(self.history().calls)
        found = irreversible(self._session.events(target.to_seq + 1), self.store.workspace)
        return tuple(effect for effect in found if effect.seq in counts)

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
            NotThereError: There is no such difference.
            StorageError: The file changed since ``shown``, or cannot be written.
        """
        diff, entry = await self._difference(path, checkpoint)
        if shown is not None and (shown.old, shown.new) != (diff.old, diff.new):
            raise StorageError(f"{path} has changed since it was shown; look at it again.")
        if unknown := sorted(set(hunks) - {hunk.index for hunk in diff.hunks}) if diff.hunks else []:
            raise NotThereError(f"{path} has no change number {unknown[0]}.")
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
            raise NotThereError("The session has changed nothing yet.")
        start = self.store.get(checkpoint or marks[0].checkpoint_id)
        deltas = await self.store.compare(start.state, await self.store.peek())
        found = [delta for delta in deltas if delta.path == path]
        if not found:
            raise NotThereError(f"{path} does not differ from that checkpoint.")
        return (await self._diffs(found))[0], found[0]


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
