"""Checkpoints of a session: taken before its effects and, when it pauses, after them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aar.config.paths import project_key
from aar.memory.checkpoint_git import user_ignore_file
from aar.memory.checkpoints import CheckpointStore, Limits
from aar.protocol.errors import StorageError
from aar.protocol.events import (
    Approval,
    CheckpointEvent,
    Event,
    Notice,
    StateEvent,
    ToolCall,
    ToolResult,
    UserMessage,
)
from aar.protocol.state import AgentState
from aar.runtime.base import Base, log_failure

if TYPE_CHECKING:
    from aar.core.session import Session
    from aar.safety.spawn import ProcessSpawner

_QUIET_S: Final = 0.15
"""Nobody edits a file in so short a pause, so the next step's checkpoint tells how this one ended."""
_ENDED: Final = frozenset(
    {
        AgentState.COMPLETED,
        AgentState.CANCELLED,
        AgentState.ERROR,
        AgentState.MAX_STEPS,
        AgentState.TIMED_OUT,
        AgentState.BUDGET_EXCEEDED,
        AgentState.WAITING_FOR_INPUT,
    }
)
_Step = tuple[str, str | None, int | None]


def make_store(base: Base, spawner: ProcessSpawner) -> CheckpointStore:
    """Return the store of the workspace's checkpoints; nothing is kept or started yet.

    Where sessions are not stored, it lies in the private folder of ``spawner`` and goes with it.
    """
    settings = base.config.checkpoints
    kept = base.paths.data if base.config.session.store else spawner.temp_folder.parent
    return CheckpointStore(
        kept / "checkpoints" / project_key(base.workspace),
        base.workspace,
        spawner,
        Limits(settings.max_file_mb * 1_000_000, settings.max_files),
        (user_ignore_file(os.environ),),
    )


class SessionCheckpoints:
    """Takes the checkpoints of one session; implements `aar.protocol.ports.Checkpointer`.

    What goes wrong is told once, as a notice: a session goes on without checkpoints.

    Args:
        store: Of the workspace.
        session: Whose effects are kept.
        wait_s: Longest time that an effect waits for its checkpoint.
        keep_days: Age at which checkpoints are thrown away.
        quota_bytes: Size at which the oldest are; 0: none.
    """

    def __init__(
        self,
        store: CheckpointStore,
        session: Session,
        *,
        wait_s: float = 30,
        keep_days: float = 30,
        quota_bytes: int = 0,
    ) -> None:
        self.store = store
        self.session = session
        self._wait_s = wait_s
        self._keep = (keep_days, quota_bytes)
        self._steps: dict[str, _Step] = {}
        self._reading: set[str] = set()
        self._taken: dict[_Step, str] = {}
        self._open: str | None = None
        self._told: set[str] = set()
        self._after: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._warmed = False
        self._warming: asyncio.Task[None] | None = None
        self._unwatch: Callable[[], None] = session.on_event(self._watch)

    # --- before ------------------------------------------------------------------------------------------

    async def before(self, call_id: str, paths: Sequence[Path] | None) -> CheckpointEvent | None:
        """Keep the workspace as it is, once for each step; ``None`` when that was not needed or failed."""
        if call_id in self._reading:
            return None
        step = self._steps.get(call_id, (call_id, None, None))
        if step in self._taken:
            self._open = self._taken[step]
            return None
        self._cancel_after()
        # Shielded: what takes too long goes on, so that the next step finds the work done.
        task = self._start(self._take(step, call_id))
        try:
            async with asyncio.timeout(self._wait_s):
                await asyncio.shield(task)
        except TimeoutError:
            self._tell(
                f"No checkpoint was ready within {self._wait_s:g} s, so this step cannot be undone. "
                "[checkpoints] wait_seconds sets how long aar waits."
            )
            return None
        checkpoint_id = self._taken.get(step)
        return None if checkpoint_id is None else CheckpointEvent(checkpoint_id=checkpoint_id, kind="auto")

    async def _take(self, step: _Step, call_id: str) -> None:
        try:
            checkpoint = await self.store.capture("auto", session_id=self.session.session_id, call_id=call_id)
        except StorageError as error:
            self._tell(f"{error} This step cannot be undone.")
            return
        self._taken[step] = self._open = checkpoint.id
        while len(self._taken) > 64:
            del self._taken[next(iter(self._taken))]
        if skipped := (await self.store.state(checkpoint.state)).skipped:
            names = ", ".join(sorted(skipped)[:5]) + (" …" if len(skipped) > 5 else "")
            self._tell(f"Not kept in checkpoints: {names} ({next(iter(skipped.values()))}).")

    def blob(self, data: bytes) -> str | None:
        """Keep one content; see `aar.protocol.ports.Checkpointer.blob`."""
        return self.store.put(data)

    # --- after -------------------------------------------------------------------------------------------

    def _watch(self, event: Event) -> None:
        match event:
            case ToolCall():
                self._note_call(event)
            case Approval() if event.edited_arguments is not None:
                self._reading.discard(event.call_id)
            case UserMessage() if not self._warmed:
                self._warmed = True
                self._warming = self._start(self._warm())
            case ToolResult() if self._open and not self.session.totals.agents_with_open_calls():
                self._schedule_after(_QUIET_S)
            case StateEvent() if event.agent_id == "main" and event.state in _ENDED and self._open:
                self._schedule_after(0)
            case _:
                pass

    def _note_call(self, call: ToolCall) -> None:
        """Remember which step a call belongs to, and whether it can change nothing."""
        self._steps[call.call_id] = (call.agent_id, call.run_id, call.step)
        self._reading.discard(call.call_id)
        if call.tool_name == "bash" and _only_reads(call.arguments.get("command")):
            self._reading.add(call.call_id)
        while len(self._steps) > 256:
            oldest = next(iter(self._steps))
            del self._steps[oldest]
            self._reading.discard(oldest)

    def _schedule_after(self, delay_s: float) -> None:
        self._cancel_after()
        if self._open is not None:
            self._after = self._start(self._take_after(self._open, delay_s))

    def _cancel_after(self) -> None:
        """Stop a pause that has not ended; what has begun to be taken is let finish (see `_take_after`)."""
        if self._after is not None and not self._after.done():
            self._after.cancel()
        self._after = None

    async def _take_after(self, of: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        self._after = None  # from here on it is not cancelled
        self._open = None
        try:
            await self.store.capture("after", session_id=self.session.session_id, of=of)
        except StorageError as error:
            self._tell(str(error))

    async def _warm(self) -> None:
        """Read everything once beside the first answer, so that the first edit need not wait."""
        try:
            await self.store.peek()
            await self.gc()
        except StorageError as error:
            self._tell(f"{error} Work goes on, but cannot be undone.")

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log_failure("a checkpoint failed", error)

    def _tell(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            with contextlib.suppress(StorageError):  # the session may be closed by now
                self.session.append(Notice(level="warning", code="checkpoints", message=message))

    async def aclose(self) -> None:
        """Let what was begun finish, keep the state after the last step, and tidy up where that is due."""
        self._unwatch()
        if self._warming is not None:
            self._warming.cancel()  # nobody waits for it any more
        if self._after is not None:
            self._cancel_after()
            if self._open is not None:
                self._start(self._take_after(self._open, 0))
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=self._wait_s)
        for task in set(self._tasks):
            task.cancel()

    async def gc(self) -> None:
        """Tidy up, if it is due."""
        if await asyncio.to_thread(self.store.wants_gc):
            await self.store.gc(keep_days=self._keep[0], quota_bytes=self._keep[1])


def _only_reads(command: object) -> bool:
    """Tell whether every part of a command line says plainly that it only reads."""
    if not isinstance(command, str) or len(command) > 10_000:
        return False
    from aar.safety.shell_grammar import parse_command
    from aar.safety.shell_readonly import read_only

    parsed = parse_command(command)
    writes = any(item.writes and item.target != "/dev/null" for item in parsed.redirections)
    parts = list(parsed.walk())
    return parsed.plain and not writes and bool(parts) and all(read_only(part) for part in parts)
