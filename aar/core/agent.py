"""The Agent: takes a prompt and a session, runs the loop, and tells how it ended.

Every door (command line, screen, editor) uses this one class. Down go prompts; up come events; back
down come only `Agent.answer`, `Agent.cancel`, `Agent.stop`, `Agent.steer` and queued prompts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from aar.config.schema import BudgetConfig, Config, ContextConfig, GuardrailsConfig, LimitsConfig, ModelConfig
from aar.core.approvals import PermissionManager
from aar.core.compaction import Compactor
from aar.core.guardrails import LoopGuardrails
from aar.core.hook_points import PromptBlockedError, hook_context
from aar.core.limits import RunLimits
from aar.core.loop import run_loop
from aar.core.mentions import expand_mentions
from aar.core.prompt_queue import PromptQueue, as_prompt
from aar.core.provider_runner import ProviderRunner, error_event
from aar.core.run import Run, check_context
from aar.core.run_record import RunRecord
from aar.core.session import Session
from aar.core.timeline import hints
from aar.core.verify import Verifier, describe_failure
from aar.core.view import SessionView
from aar.core.way_on import CODE as WAY_ON
from aar.protocol.errors import AarError, ErrorKind, ProviderError, UsageError, error_kind
from aar.protocol.events import Compaction, ErrorEvent, Event, Notice, UserMessage
from aar.protocol.ids import new_id
from aar.protocol.messages import ContentBlock, ResourceBlock, TextBlock
from aar.protocol.ports import FileAccess, Hooks
from aar.protocol.state import AgentState, ExitCode, StopReason, end_state, exit_code
from aar.protocol.tool import FileChange
from aar.protocol.usage import Usage
from aar.tools.executor import ToolExecutor

if TYPE_CHECKING:
    from aar.core.active_model import ActiveModel
    from aar.core.budget import Budget
    from aar.core.files_coach import FilesCoach

_GIVE_UP_S = 10.0
"""Seconds for a cancelled run to put its things in order before its caller goes on without it."""
_STAGES: dict[ErrorKind, Literal["planning", "tool", "storage"]] = {
    ErrorKind.STORAGE: "storage",
    ErrorKind.SANDBOX: "tool",
    ErrorKind.TOOL: "tool",
    ErrorKind.MCP: "tool",
}


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """What an agent is told about its runs.

    Attributes:
        limits: Of each run.
        guardrails: Help for a stuck model.
        budget: When warnings are shown.
        max_prompt_chars: Longest prompt that is taken.
        max_attachment_bytes: Largest file that a prompt may attach with ``@``.
        context: When the conversation is compacted.
        model: How the model is asked that sums it up.
    """

    limits: LimitsConfig = field(default_factory=LimitsConfig)
    guardrails: GuardrailsConfig = field(default_factory=GuardrailsConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    max_prompt_chars: int = 2_000_000
    max_attachment_bytes: int = 10_000_000
    context: ContextConfig = field(default_factory=ContextConfig)
    model: ModelConfig = field(default_factory=ModelConfig)

    @classmethod
    def from_config(cls, config: Config) -> AgentConfig:
        """Take what concerns the agent from the whole configuration."""
        return cls(
            limits=config.limits,
            guardrails=config.guardrails,
            budget=config.budget,
            max_prompt_chars=config.context.max_prompt_chars,
            max_attachment_bytes=config.context.max_attachment_bytes,
            context=config.context,
            model=config.model,
        )


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended: the fields of ``aar run --output json`` (DESIGN 9)."""

    session_id: str
    run_id: str
    stop_reason: StopReason
    exit_code: ExitCode
    text: str
    usage: Usage
    cost_usd: float | None
    steps: int
    duration_ms: float
    file_changes: tuple[FileChange, ...]
    diffs: tuple[str, ...]
    error: dict[str, Any] | None
    way_on: str | None = None
    """How the work goes on, where a limit ended it."""


Turn = Callable[[str], Awaitable[StopReason]]
"""``await turn(prompt)``: lets the model work on ``prompt`` inside the present run, without its checks."""
Work = Callable[[RunRecord, Turn], Awaitable[StopReason]]
"""``await work(record, turn)``: what a run does in place of the loop; it stores by ``record``."""
MakeView = Callable[[Session], SessionView]
MakeVerifier = Callable[[], Verifier | None]
Survey = Callable[[], Awaitable[Sequence[str]]]
Prepare = Callable[[tuple[ContentBlock, ...]], Awaitable[tuple[tuple[ContentBlock, ...], Sequence[str]]]]
"""``await prepare(prompt)``: the prompt with what it names elsewhere, and sentences for the user."""
Counsel = Callable[[str], Awaitable[Sequence[Event]]]
"""``await counsel(prompt)``: what is put before the model beside a prompt, such as notes and advice."""
Reviewer = Callable[[RunRecord], Awaitable[Event | None]]
"""``await reviewer(record)``: what the model is to do better before its work counts as done, if anything."""


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
        self._parent_limits = parent_limits
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
        content = self._checked(prompt)
        start = time.monotonic()
        record = RunRecord(session, new_id(), self._agent_id)
        limits = RunLimits(
            self.config.limits,
            self.config.guardrails,
            warn_at=self.config.budget.warn_at,
            budget=self.budget,
            parent=self._parent_limits(),
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
        return _result(reason, session, record, limits, time.monotonic() - start)

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

    def _checked(self, prompt: str | Sequence[ContentBlock]) -> tuple[ContentBlock, ...]:
        content = as_prompt(prompt)
        length = sum(len(block.text) for block in content if isinstance(block, TextBlock | ResourceBlock))
        if length > self.config.max_prompt_chars:
            raise UsageError(
                f"The prompt is {length:,} characters long and [context] max_prompt_chars is "
                f"{self.config.max_prompt_chars:,}; put long material into a file and name that."
            )
        if not any(not isinstance(block, TextBlock) or block.text.strip() for block in content):
            raise UsageError("The prompt is empty; say what to do.")
        return content

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
        said = await self._ask_hooks(prompt, record)
        content, problems = await asyncio.to_thread(
            expand_mentions, prompt, self._files, self._may_not_read, self.config.max_attachment_bytes
        )
        record.append(*(Notice(level="warning", message=text, code="mention") for text in problems))
        if view.coach is not None:
            await self._show_project(content, view.coach, run, record)
        record.append(UserMessage(content=content, source=source))
        record.append(*said)
        words = "\n".join(block.text for block in prompt if isinstance(block, TextBlock))
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
            await self._show_project(content, view.coach, self._run, record)
            record.append(view.coach.reminder())
        return view

    async def _ask_hooks(self, prompt: tuple[ContentBlock, ...], record: RunRecord) -> list[Event]:
        """Tell hooks of the prompt; return what they add.

        Raises:
            PromptBlockedError: One objects; then the prompt is not stored either.
        """
        if self.hooks is None or self._agent_id != "main" or not self.hooks.wants("prompt_submit"):
            return []
        text = "\n".join(block.text for block in prompt if isinstance(block, TextBlock))
        said = await self.hooks.fire("prompt_submit", {"prompt": text})
        if said.refusal is not None:
            record.prompted = True
            raise PromptBlockedError(said.refusal)
        return hook_context(said, "prompt")

    def _may_not_read(self, path: str) -> str | None:
        """Return why policy does not let a prompt attach ``path``; ``None``: it does."""
        spec = self.executor.registry.get("read_file")
        if spec is None:
            return None
        decision = self.executor.policy.decide(spec, {"path": path})
        if decision.decision == "allow":
            return None
        reasons = "; ".join(decision.reasons) or "the rules do not allow it"
        return (
            f"{reasons}." if decision.decision == "deny" else f"{reasons}, so reading it must be asked for."
        )

    async def _show_project(
        self, content: tuple[ContentBlock, ...], coach: FilesCoach, run: Run, record: RunRecord
    ) -> None:
        """Give a model that cannot look around the files that matter and the failing check."""
        check = await run.first_check()
        failure = "" if check is None or check.passed else describe_failure(check)
        if self._survey is not None:
            coach.project.refresh(await self._survey())
        words = "\n".join(block.text for block in content if isinstance(block, TextBlock))
        record.append(await asyncio.to_thread(coach.opening, words, failure))
        if check is not None and not check.passed:
            record.append(check_context(check))

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


def _result(
    reason: StopReason, session: Session, record: RunRecord, limits: RunLimits, seconds: float
) -> RunResult:
    error = None
    if reason is StopReason.ERROR and record.error is not None:
        error = {"kind": str(record.error.kind), "message": record.error.message}
    return RunResult(
        session_id=session.session_id,
        run_id=record.run_id,
        stop_reason=reason,
        exit_code=exit_code(reason) if record.exit_code is None else record.exit_code,
        text=record.text,
        usage=record.usage,
        cost_usd=record.cost_usd,
        steps=limits.steps,
        duration_ms=round(seconds * 1000, 3),
        file_changes=tuple(record.changes.values()),
        diffs=tuple(record.diffs),
        error=error,
        way_on=record.way_on,
    )


def _error_event(error: AarError) -> ErrorEvent:
    kind = error_kind(error)
    return ErrorEvent(kind=kind, stage=_STAGES.get(kind, "planning"), message=str(error))
