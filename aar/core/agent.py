"""The Agent: takes a prompt and a session, runs the loop, and tells how it ended.

Every door (command line, screen, editor) uses this one class. Down go prompts; up come events; back
down come only `Agent.answer`, `Agent.cancel`, `Agent.stop`, `Agent.steer` and queued prompts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from aar.config.schema import GuardrailsConfig
from aar.core.agent_types import (
    AgentConfig,
    Counsel,
    MakeVerifier,
    MakeView,
    Prepare,
    Reviewer,
    RunResult,
    Survey,
    Turn,
    Work,
    result_of,
)
from aar.core.approvals import PermissionManager
from aar.core.compaction.compactor import Compactor
from aar.core.guardrails import LoopGuardrails
from aar.core.hook_points import PromptBlockedError
from aar.core.limits import RunLimits
from aar.core.loop import run_loop
from aar.core.mentions import expand_mentions
from aar.core.prompt_queue import PromptQueue, as_prompt
from aar.core.provider_runner import ProviderRunner, error_event
from aar.core.run import Run
from aar.core.run_opening import ask_hooks, checked_prompt, show_project, why_not_attached, words_of
from aar.core.run_record import RunRecord
from aar.core.session import Session
from aar.core.timeline import hints
from aar.core.view import SessionView
from aar.core.way_on import CODE as WAY_ON
from aar.protocol.errors import AarError, ErrorKind, ProviderError, UsageError, error_kind
from aar.protocol.events import Compaction, ErrorEvent, Notice, UserMessage
from aar.protocol.ids import new_id
from aar.protocol.messages import ContentBlock
from aar.protocol.ports import FileAccess, Hooks
from aar.protocol.state import AgentState, ExitCode, StopReason, end_state
from aar.tools.executor import ToolExecutor

if TYPE_CHECKING:
    from aar.core.active_model import ActiveModel
    from aar.core.budget import Budget

__all__ = ["Agent", "AgentConfig", "Counsel", "Reviewer", "RunResult", "Turn", "Work"]

_GIVE_UP_S = 10.0
"""Seconds for a cancelled run to put its things in order before its caller goes on without it."""
_STAGES: dict[ErrorKind, Literal["planning", "tool", "storage"]] = {
    ErrorKind.STORAGE: "storage",
    ErrorKind.SANDBOX: "tool",
    ErrorKind.TOOL: "tool",
    ErrorKind.MCP: "tool",
}


class Agent:
    """A model with tools, ready to run prompts over a session, one run at a time.

    Args:
        config: Limits and guardrails.
        runner: Asks the model.
        executor: Runs tool calls.
        make_view: Builds the model's view of a session.
        files: For ``@file`` in prompts.
        approvals: Open questions; the executor's approver where a person answers.
        make_verifier: Builds the checks that end a run.
        survey: Lists the project's files (dialect ``files``).
        log: Gets defects, for the diagnostics log.
        agent_id: ``main``, or a sub-agent's.
        parent_limits: Returns the limits of the run that asked for this agent's runs, if one did.
        keep_output: Keeps a whole output (call id, text) and returns its reference for ``read_output``.
        notes_model: Returns the model that sums up the conversation for one that answers.
        budget: Money over runs, shared by the agents of a session; ``None``: only each run has limits.
        prepare: Gets ready what a run needs from outside, before its first request.
    """

    def __init__(
        self,
        config: AgentConfig,
        runner: ProviderRunner,
        executor: ToolExecutor,
        make_view: MakeView,
        files: FileAccess,
        *,
        approvals: PermissionManager | None = None,
        make_verifier: MakeVerifier = lambda: None,
        survey: Survey | None = None,
        log: Callable[[str, BaseException], None] | None = None,
        agent_id: str = "main",
        parent_limits: Callable[[], RunLimits | None] = lambda: None,
        keep_output: Callable[[str, str], str] | None = None,
        notes_model: Callable[[ActiveModel], ActiveModel] = lambda active: active,
        budget: Budget | None = None,
        prepare: Prepare | None = None,
    ) -> None:
        self._prepare = prepare
        self.config = config
        self.budget = budget
        self.limits: RunLimits | None = None
        self.hooks: Hooks | None = None
        self.before_end: Callable[[StopReason], Awaitable[None]] | None = None
        self.make_guardrails: Callable[[GuardrailsConfig], LoopGuardrails] | None = None
        self.counsel: list[Counsel] = []
        self.reviewers: list[Reviewer] = []
        self.way_on: Callable[[StopReason, RunLimits], str | None] = lambda reason, limits: None
        self.parent_limits = parent_limits
        self._record: RunRecord | None = None
        self._keep_output = keep_output
        self._notes_model = notes_model
        self._view: SessionView | None = None
        self.executor = executor
        self.runner = runner
        self.queue = PromptQueue()
        self.approvals = approvals or PermissionManager()
        self._make_view = make_view
        self.adjust_view: Callable[[SessionView], SessionView] = lambda view: view
        self._make_verifier = make_verifier
        self._survey = survey
        self._files = files
        self._log = log
        self._agent_id = agent_id
        self._task: asyncio.Task[Any] | None = None
        self._run: Run | None = None
        self._cancelled = False
        self._stop_asked = False
        self._syncing: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> bool:
        """Whether a run is under way."""
        return self._task is not None

    @property
    def files(self) -> FileAccess:
        """The files as its tools reach them."""
        return self._files

    @property
    def stop_asked(self) -> bool:
        """Whether the present run is to end after this step."""
        return self._stop_asked

    @property
    def record(self) -> RunRecord | None:
        """What came of the present run so far; ``None``: none is under way."""
        return self._record

    def cancel(self) -> None:
        """End the present run at once, wherever it is. What was shown is kept. More calls add nothing."""
        if self._task is not None and not self._cancelled:
            self._cancelled = True
            self._task.cancel()

    def stop(self) -> None:
        """End the present run after this step, with one last answer."""
        if self._task is not None:
            self._stop_asked = True
        if self._run is not None:
            self._run.stop()

    def steer(self, prompt: str | Sequence[ContentBlock]) -> None:
        """Say something to the present run; it is heard before the next request."""
        self.queue.steer(prompt)

    def include(self, result: RunResult) -> None:
        """Count what another agent did for the present run as this run's own."""
        if self._record is not None:
            self._record.include(result.usage, result.cost_usd, result.file_changes, result.diffs)

    def answer(
        self, request_id: str, decision: Literal["allow", "reject", "cancelled"], **details: Any
    ) -> None:
        """Answer an approval request; ``details`` as for `PermissionManager.answer`."""
        self.approvals.answer(request_id, decision, **details)

    async def run(
        self,
        prompt: str | Sequence[ContentBlock],
        session: Session,
        *,
        source: str = "prompt",
        work: Work | None = None,
    ) -> RunResult:
        """Run ``prompt`` to its end and tell how it went.

        Failures of the model, the tools and the outside end in the result, not in an exception.

        Args:
            prompt: What the user says.
            session: Where it is said.
            source: Who brought it.
            work: Done in place of the loop, inside the same limits.

        Raises:
            RuntimeError: A run is under way already.
            UsageError: The prompt is empty or too long.
            StorageError: The session cannot take events (it is closed, or of a newer aar).
            asyncio.CancelledError: The calling task was cancelled (`cancel` gives a result instead).
        """
        if self._task is not None:
            raise RuntimeError("This agent runs already; queue the prompt instead.")
        content = checked_prompt(prompt, self.config.max_prompt_chars)
        start = time.monotonic()
        record = RunRecord(session, new_id(), self._agent_id)
        limits = RunLimits(
            self.config.limits,
            self.config.guardrails,
            warn_at=self.config.budget.warn_at,
            budget=self.budget,
            parent=self.parent_limits(),
        )
        self.limits, self._record = limits, record
        session.set_state(AgentState.RUNNING, emit=record)
        self._cancelled = self._stop_asked = False
        self._task = asyncio.ensure_future(self._drive(content, source, session, record, limits, work))
        caller = asyncio.current_task()
        before = caller.cancelling() if caller is not None else 0
        try:
            await asyncio.wait({self._task})
            reason = StopReason.CANCELLED if self._task.cancelled() else self._task.result()
        except asyncio.CancelledError:
            reason = StopReason.CANCELLED
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_GIVE_UP_S)
        finally:
            self._task, self._run = None, None
            if not record.prompted:
                record.append(UserMessage(content=content, source=source))
        await self._finish(reason, session, record, limits)
        self._record = None
        if caller is not None and caller.cancelling() > before:
            raise asyncio.CancelledError
        return result_of(reason, session, record, limits, time.monotonic() - start)

    def _look(self, session: Session) -> SessionView:
        """Return how the model that answers now sees ``session``."""
        self._view = self.adjust_view(self._make_view(session))
        return self._view

    def view_of(self, session: Session) -> SessionView:
        """Return how the model that answers now sees ``session``, for `context_breakdown` and the like."""
        view = self._view
        return view if view is not None and view.session is session else self._look(session)

    def _keeper(self, session: Session, record: RunRecord, limits: RunLimits) -> Compactor:
        """Return what keeps ``session`` inside the window of the model."""
        return Compactor(
            lambda: self._view or self._look(session),
            self.config.context,
            self.config.model,
            record,
            keep=self._keep_output,
            writer=self._notes_model,
            set_state=lambda state: session.set_state(state, emit=record),
            spent=limits.count,
            remaining_s=lambda: limits.remaining_seconds,
            on_new_prefix=self.runner.expect_new_prefix,
        )

    async def compact(self, session: Session, focus: str = "") -> Compaction | None:
        """Sum up the oldest turns of ``session`` now; for ``/compact``.

        Args:
            session: Of which the model is to be sent less. What is stored stays.
            focus: What is to be kept above all.

        Returns:
            The stored event; ``None`` when there is nothing that could be left out, or on `cancel`.

        Raises:
            UsageError: A run is under way.
        """
        if self._task is not None:
            raise UsageError("A run is under way; interrupt it or wait for its end, then compact.")
        record = RunRecord(session, new_id(), self._agent_id)
        limits = RunLimits(self.config.limits, self.config.guardrails, budget=self.budget)
        self._look(session)
        if session.totals.state(self._agent_id) is not AgentState.IDLE:
            session.set_state(AgentState.IDLE, emit=record)
        keeper = self._keeper(session, record, limits)
        keeper.idle_state = AgentState.IDLE
        self._cancelled = False
        task = asyncio.ensure_future(keeper.compact("manual", focus))
        self._task = task
        try:
            await asyncio.wait({task})
            return None if task.cancelled() else task.result()
        finally:
            task.cancel()
            self._task = None
            await session.sync()

    async def run_queued(self, session: Session) -> RunResult | None:
        """Run the next waiting prompt; ``None`` when none waits."""
        prompt = self.queue.next_prompt()
        return None if prompt is None else await self.run(prompt, session, source="queue")

    async def _drive(
        self,
        content: tuple[ContentBlock, ...],
        source: str,
        session: Session,
        record: RunRecord,
        limits: RunLimits,
        work: Work | None,
    ) -> StopReason:
        """Run the loop, or ``work``, inside the deadline; turn failures into events."""
        deadline = asyncio.timeout(limits.remaining_seconds)
        try:
            async with deadline:
                if work is not None:
                    record.append(UserMessage(content=content, source=source))
                    return await work(record, lambda text: self._turn(text, session, record, limits))
                run = await self._begin(content, source, session, record, limits)
                return await run_loop(run)
        except PromptBlockedError as blocked:
            message = f"A hook did not let this prompt through: {blocked}"
            record.append(Notice(level="warning", message=message, code="hook"))
            return StopReason.DENIED
        except AarError as error:
            event = error_event(error) if isinstance(error, ProviderError) else _error_event(error)
            record.append(event)
            record.exit_code = error.exit_code
        except Exception as error:
            if isinstance(error, TimeoutError) and deadline.expired():
                return StopReason.TIMEOUT
            if self._log is not None:
                self._log("the run failed", error)
            message = f"aar failed inside ({type(error).__name__}: {error}). `aar logs` has the details."
            record.append(ErrorEvent(kind=ErrorKind.INTERNAL, severity="fatal", message=message))
            record.exit_code = ExitCode.INTERNAL
        return StopReason.ERROR

    async def _turn(self, text: str, session: Session, record: RunRecord, limits: RunLimits) -> StopReason:
        """Let the model work on ``text`` inside the present run."""
        run = await self._begin(as_prompt(text), "plan", session, record, limits, checked=False)
        return await run_loop(run)

    async def _begin(
        self,
        prompt: tuple[ContentBlock, ...],
        source: str,
        session: Session,
        record: RunRecord,
        limits: RunLimits,
        *,
        checked: bool = True,
    ) -> Run:
        """Put the prompt, and what belongs to it, before the model; return the run."""
        self.runner.begin_run(record)
        if self._prepare is not None:
            prompt, told = await self._prepare(prompt)
            record.append(*(Notice(level="warning", message=text, code="mcp") for text in told))
        view = self._look(session)
        if self._agent_id != "main" or session.prompt_sha256 != view.prompt.sha256:
            record.append(view.prompt.event())
        run = self._run = Run(
            record,
            view,
            self.runner,
            self.executor,
            (self.make_guardrails or LoopGuardrails)(self.config.guardrails),
            limits,
            self.queue,
            verifier=self._make_verifier() if checked else None,
            remake_view=lambda: self._another_view(content, session, record),
            sync=lambda: self._sync_soon(session),
            set_state=lambda state: session.set_state(state, emit=record),
            keeper=self._keeper(session, record, limits),
        )
        run.hooks, run.agent_id = self.hooks, self._agent_id
        run.reviewers = [partial(reviewer, record) for reviewer in self.reviewers]
        if self._stop_asked:
            run.stop()
        said = await ask_hooks(self.hooks if self._agent_id == "main" else None, prompt, record)
        content, problems = await asyncio.to_thread(
            expand_mentions,
            prompt,
            self._files,
            partial(why_not_attached, self.executor),
            self.config.max_attachment_bytes,
        )
        record.append(*(Notice(level="warning", message=text, code="mention") for text in problems))
        if view.coach is not None:
            await show_project(content, view.coach, self._survey, run, record)
        record.append(UserMessage(content=content, source=source))
        record.append(*said)
        words = words_of(prompt)
        for counsel in self.counsel:
            record.append(*await counsel(words))
        if view.coach is not None:
            record.append(view.coach.reminder())
        return run

    async def _another_view(
        self, content: tuple[ContentBlock, ...], session: Session, record: RunRecord
    ) -> SessionView:
        """Return the view for the model that goes on in the middle of a run."""
        view = self._look(session)
        if self._agent_id != "main" or session.prompt_sha256 != view.prompt.sha256:
            record.append(view.prompt.event())
        if view.coach is not None and self._run is not None:
            await show_project(content, view.coach, self._survey, self._run, record)
            record.append(view.coach.reminder())
        return view

    def _sync_soon(self, session: Session) -> None:
        """Make the session durable in the background; the next effect waits for it."""
        task = asyncio.ensure_future(session.sync())
        self._syncing.add(task)
        task.add_done_callback(self._syncing.discard)

    async def _finish(
        self, reason: StopReason, session: Session, record: RunRecord, limits: RunLimits
    ) -> None:
        self.approvals.cancel_all()
        if self.before_end is not None:
            await self.before_end(reason)
        session.close_open_calls(record)
        record.step = None
        if self._agent_id == "main":
            record.append(*(Notice(message=hint, code="hint") for hint in hints(record.timeline.steps)))
        if offer := self.way_on(reason, limits):
            record.append(Notice(level="warning", message=offer, code=WAY_ON))
        detail = record.error.message if reason is StopReason.ERROR and record.error else None
        session.set_state(end_state(reason), stop_reason=reason, detail=detail, emit=record)
        await session.sync()
        if self._syncing:
            await asyncio.wait(set(self._syncing))


def _error_event(error: AarError) -> ErrorEvent:
    kind = error_kind(error)
    return ErrorEvent(kind=kind, stage=_STAGES.get(kind, "planning"), message=str(error))
