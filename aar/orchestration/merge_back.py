"""What an agent changed in a work tree of its own is put into the project, by the way of every other edit."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from aar.core.agent import RunResult
from aar.core.session import Session
from aar.core.stamps import Scope
from aar.orchestration.work_places import Changes
from aar.protocol.errors import ToolCategory
from aar.protocol.events import FileChange, ToolCall, ToolResult
from aar.protocol.ids import new_id
from aar.protocol.late import late_pattern
from aar.tools.executor import ToolExecutor
from aar.tools.pending_call import StepResults

_MAX_PATCH: Final = 2_000_000
_SHOWN: Final = 20_000
"""Characters of a patch that did not fit which the caller is shown."""
_SPECIAL: Final = late_pattern(r"^(?:new file mode|new mode|index \S+) (120000|160000)$", re.MULTILINE)
_NO_TEXT: Final = late_pattern(r"^GIT binary patch$|[\udc80-\udcff]", re.MULTILINE)
_PARTS: Final = late_pattern(r"^diff --git ", re.MULTILINE)
_CONTENT: Final = late_pattern(r"^(?:@@ |new file mode |deleted file mode )", re.MULTILINE)
_EXECUTABLE: Final = late_pattern(r"^(?:new file mode|new mode) 100755$", re.MULTILINE)


class WorkTree(Protocol):
    """A copy of the project in which one agent works."""

    @property
    def folder(self) -> Path:
        """Where it lies."""
        ...

    async def open(self) -> None:
        """Make it, with the project as it is now, unless it is there from an earlier run.

        Raises:
            AarError: It cannot be made.
        """
        ...

    async def changes(self) -> Changes:
        """Return what differs from the project as it was.

        Raises:
            AarError: Git cannot tell.
        """
        ...

    async def fitted(self, changes: Changes) -> tuple[Changes, tuple[str, ...]]:
        """Return them as changes of the project as it is now, and files of which both changed the same lines.

        Raises:
            AarError: Git fails.
        """
        ...

    async def rest(self) -> None:
        """End all processes in it."""
        ...

    async def remove(self) -> None:
        """Remove it with all that is in it."""
        ...


@dataclass(frozen=True, slots=True)
class Merge:
    """What became of the changes of one run.

    Attributes:
        told: Sentences for the caller.
        kept: Whether the work tree holds work that is not in the project.
        result: Of the edit; ``None``: none was made.
    """

    told: str
    kept: bool = False
    result: ToolResult | None = None

    @property
    def file_changes(self) -> tuple[FileChange, ...]:
        """What changed in the project."""
        return () if self.result is None else self.result.file_changes

    @property
    def diffs(self) -> tuple[str, ...]:
        """The same as text."""
        return () if self.result is None or not self.result.diff else (self.result.diff,)


@dataclass(frozen=True, slots=True)
class Merger:
    """Puts changes into the place of the caller.

    Attributes:
        session: Where the edit is stored, as one of the agent that made the changes.
        executor: The caller's: its rules, its questions, its checkpoints.
        run_id: Of the caller's run.
        one: Held meanwhile: one change of the project at a time.
    """

    session: Session
    executor: ToolExecutor
    run_id: str | None
    one: asyncio.Lock

    async def merge(self, agent_id: str, tree: WorkTree, result: RunResult) -> Merge:
        """Put what an agent changed into the project, if it ended its work and the changes fit.

        Raises:
            AarError: Git cannot tell what changed.
        """
        changes = await tree.changes()
        if not changes.patch:
            return Merge("It changed no files.")
        names = listed(changes.files)
        kept = f"The work tree {tree.folder} is kept; resume {agent_id} to go on in it."
        patch = changes.text
        if result.exit_code != 0:
            return Merge(f"Its changes of {names} are not in the project. {kept}", kept=True)
        problem = problem_of(changes)
        if not self.executor.offers("apply_patch"):
            problem = "you may not use apply_patch, which would put them there"
        if problem:
            return Merge(f"Its changes of {names} are not in the project: {problem}. {kept}", kept=True)
        async with self.one:
            changes, conflicts = await tree.fitted(changes)
            if conflicts:
                return Merge(_conflict(conflicts, kept, patch), kept=True)
            if not changes.patch:
                return Merge(f"Its changes of {names} are in the project already.")
            scope = self.session.scope(self.run_id or new_id(), agent_id)
            edit = (await put_in(self.executor, scope, changes.text)).results[0]
        if edit.is_error:
            return Merge(f"{_why(edit, names)} {kept}", kept=True, result=edit)
        told = f"Its changes are in the project now: {names} (+{changes.added} -{changes.removed})."
        return Merge(f"{told} {left_out(changes.text)}".rstrip(), result=edit)


async def put_in(executor: ToolExecutor, scope: Scope, patch: str) -> StepResults:
    """Make the changes of a work tree in the project, as one edit with all that an edit goes through.

    Args:
        executor: Whose rules, questions and checkpoints hold.
        scope: The way into the session for whoever made the changes.
        patch: Of changes with which nothing is wrong; see `problem_of`.
    """
    call = ToolCall(call_id=f"merge-{new_id()}", tool_name="apply_patch", arguments={"patch": patch})
    stored = [event for event in scope.append(call) if isinstance(event, ToolCall)]
    return await executor.execute(stored, scope)


def left_out(patch: str) -> str:
    """Return a sentence on what `put_in` does not make; empty: it makes all of it."""
    names = _files_with(patch, _EXECUTABLE)
    return f"Not made executable here, as it was there: {listed(names)}; use chmod." if names else ""


def problem_of(changes: Changes) -> str:
    """Return why changes cannot be made as one edit, with the files that are in the way; empty: they can."""
    if len(changes.text) > _MAX_PATCH:
        return f"they have {len(changes.text):,} characters, too much for one edit"
    # What is no text stands out as surrogates.
    patch = changes.patch.decode("utf-8", "surrogateescape")
    if names := _files_with(patch, _NO_TEXT):
        return f"a patch cannot change what is no text: {listed(names)}"
    if names := _files_with(patch, _SPECIAL):
        return f"links and repositories inside are not taken over: {listed(names)}"
    if patch and not _CONTENT.search(patch):
        return f"they are of modes alone; use chmod: {listed(changes.files)}"
    return ""


def _files_with(patch: str, mark: re.Pattern[str]) -> list[str]:
    """Return the files in whose part of a patch something stands."""
    found: list[str] = []
    for part in _PARTS.split(patch)[1:]:
        if mark.search(part):
            head = part.partition("\n")[0]
            # "a/NAME b/NAME", or both in quotes.
            found.append(head[: len(head) // 2].strip('"').removeprefix("a/"))
    return found


def _why(edit: ToolResult, names: str) -> str:
    if edit.category in (ToolCategory.DENIED, ToolCategory.BLOCKED):
        return f"Its changes of {names} were not let into the project. {edit.output}"
    if edit.category is ToolCategory.CANCELLED:
        return f"Its changes of {names} are not in the project: the work was cancelled."
    return f"Its changes of {names} are not in the project. {edit.output}"


def _conflict(files: Sequence[str], kept: str, patch: str) -> str:
    """Say what does not fit, with the patch for whoever makes the changes by hand."""
    cut = patch if len(patch) <= _SHOWN else f"{patch[:_SHOWN]}\n[cut]"
    return (
        f"Its changes conflict with the project, which was changed meanwhile in the same lines of "
        f"{listed(files)}; nothing of it was put there. Make the changes yourself, or give the task again. "
        f"{kept} Its changes:\n{cut}"
    )


def listed(names: Sequence[str]) -> str:
    """Return some of the names, and how many more there are."""
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"{', '.join(names[:10])}{more}"
