"""The Agent: takes a prompt and a session, runs the loop, and tells how it ended.

Every door (command line, screen, editor) uses this one class. Down go prompts; up come events; back
down come only `Agent.answer`, `Agent.cancel`, `Agent.stop`, `Agent.steer` and queued prompts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from aar.config.schema import BudgetConfig, Config, GuardrailsConfig, LimitsConfig
from aar.core.approvals import PermissionManager
from aar.core.guardrails import LoopGuardrails
from aar.core.limits import RunLimits
from aar.core.loop import run_loop
from aar.core.mentions import expand_mentions
from aar.core.prompt_queue import PromptQueue, as_prompt
from aar.core.provider_runner import ProviderRunner, error_event
from aar.core.run import Run, check_context
from aar.core.session import Session
from aar.core.verify import Verifier
from aar.core.view import SessionView
from aar.protocol.errors import AarError, ErrorKind, ProviderError, error_kind
from aar.protocol.events import (
    AssistantMessage,
    ContextEvent,
    ErrorEvent,
    Event,
    Notice,
    ProviderMeta,
    ToolResult,
    UserMessage,
)
from aar.protocol.ids import new_id
from aar.protocol.messages import ContentBlock, TextBlock
from aar.protocol.ports import FileAccess
from aar.protocol.state import AgentState, ExitCode, StopReason, end_state, exit_code
from aar.protocol.tool import FileChange
from aar.protocol.usage import Usage
from aar.tools.executor import ToolExecutor

_CONFIGURATION_KINDS = frozenset({ErrorKind.CONFIGURATION})
_INTERNAL_KINDS = frozenset({ErrorKind.INTERNAL, ErrorKind.STORAGE})


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """What an agent is told about its runs.

    Attributes:
        limits: Of each run.
        guardrails: Help for a stuck model.
        budget: When warnings are shown.
        files_budget_tokens: Tokens of file content for a model of the ``files`` dialect.
        max_prompt_chars: Longest prompt that is taken.
    """

    limits: LimitsConfig = field(default_factory=LimitsConfig)
    guardrails: GuardrailsConfig = field(default_factory=GuardrailsConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    files_budget_tokens: int = 3000
    max_prompt_chars: int = 1_000_000

    @classmethod
    def from_config(cls, config: Config) -> AgentConfig:
        """Take what concerns the agent from the whole configuration."""
        return cls(
            limits=config.limits,
            guardrails=config.guardrails,
            budget=config.budget,
            files_budget_tokens=config.context.files_budget_tokens,
            max_prompt_chars=config.context.max_prompt_chars,
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


@dataclass
class _Recorder:
    """Passes events on, and folds this run's into what `RunResult` needs."""

    session: Session
    run_id: str
    agent_id: str
    step: int | None = None
    text: str = ""
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    changes: dict[str, FileChange] = field(default_factory=dict[str, FileChange])
    diffs: list[str] = field(default_factory=list[str])
    error: ErrorEvent | None = None
    _text_step: int | None = None

    def append(self, *events: Event) -> tuple[Event, ...]:
        stamp = {"run_id": self.run_id, "agent_id": self.agent_id, "step": self.step}
        stored = self.session.append(*(event.model_copy(update=stamp) for event in events))
        for event in stored:
            self._fold(event)
        return stored

    def publish(self, event: Event) -> None:
        stamp = {"run_id": self.run_id, "agent_id": self.agent_id, "step": self.step}
        self.session.publish(event.model_copy(update=stamp))

    def _fold(self, event: Event) -> None:
        match event:
            case AssistantMessage():
                same = self._text_step == event.step
                self.text = self.text + event.content if same else event.content
                self._text_step = event.step
            case ProviderMeta():
                self.usage += event.usage
                known = self.cost_usd is not None and event.cost_usd is not None
                self.cost_usd = (self.cost_usd or 0) + (event.cost_usd or 0) if known else None
            case ToolResult():
                self.diffs += [event.diff] if event.diff else []
                for change in event.file_changes:
                    self._change(change)
            case ErrorEvent():
                self.error = event
            case _:
                pass

    def _change(self, change: FileChange) -> None:
        """Join the changes of one file: created then modified is created."""
        earlier = self.changes.get(change.path)
        if earlier is not None:
            change = change.model_copy(
                update={
                    "action": "create" if earlier.action == "create" else change.action,
                    "added": earlier.added + change.added,
                    "removed": earlier.removed + change.removed,
                    "before": earlier.before,
                }
            )
        self.changes[change.path] = change


MakeView = Callable[[Session], SessionView]
MakeVerifier = Callable[[], Verifier | None]
Survey = Callable[[], Awaitable[Sequence[str]]]


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
    ) -> None:
        self.config = config
        self.executor = executor
        self.runner = runner
        self.queue = PromptQueue()
        self.approvals = approvals or PermissionManager()
        self._make_view = make_view
        self._make_verifier = make_verifier
        self._survey = survey
        self._files = files
        self._log = log
        self._agent_id = agent_id
        self._task: asyncio.Task[StopReason] | None = None
        self._run: Run | None = None
        self._cancelled = False
        self._syncing: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> bool:
        """Whether a run is under way."""
        return self._task is not None

    def cancel(self) -> None:
        """End the present run at once, wherever it is. What was shown is kept."""
        if self._task is not None:
            self._cancelled = True
            self._task.cancel()

    def stop(self) -> None:
        """End the present run after this step, with one last answer."""
        if self._run is not None:
            self._run.stop()

    def steer(self, prompt: str | Sequence[ContentBlock]) -> None:
        """Say something to the present run; it is heard before the next request."""
        self.queue.steer(prompt)

    def answer(
        self, request_id: str, decision: Literal["allow", "reject", "cancelled"], **details: Any
    ) -> None:
        """Answer an approval request; ``details`` as for `PermissionManager.answer`."""
        self.approvals.answer(request_id, decision, **details)

    async def run(
        self, prompt: str | Sequence[ContentBlock], session: Session, *, source: str = "prompt"
    ) -> RunResult:
        """Run ``prompt`` to its end and tell how it went.

        Failures of the model, the tools and the outside end in the result, not in an exception.

        Raises:
            RuntimeError: A run is under way already.
            asyncio.CancelledError: The calling task was cancelled (`cancel` gives a result instead).
        """
        if self._task is not None:
            raise RuntimeError("This agent runs already; queue the prompt instead.")
        start = time.monotonic()
        record = _Recorder(session, new_id(), self._agent_id)
        limits = RunLimits(self.config.limits, self.config.guardrails, warn_at=self.config.budget.warn_at)
        self._cancelled = False
        self._task = asyncio.ensure_future(self._drive(as_prompt(prompt), source, session, record, limits))
        outer: asyncio.CancelledError | None = None
        try:
            reason = await self._task
        except asyncio.CancelledError as error:
            reason = StopReason.CANCELLED
            if not self._cancelled:
                outer = error
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)
        finally:
            self._task, self._run = None, None
        await self._finish(reason, session, record)
        if outer is not None:
            raise outer
        return _result(reason, session, record, limits, time.monotonic() - start)

    async def run_queued(self, session: Session) -> RunResult | None:
        """Run the next waiting prompt; ``None`` when none waits."""
        prompt = self.queue.next_prompt()
        return None if prompt is None else await self.run(prompt, session, source="queue")

    async def _drive(
        self,
        prompt: tuple[ContentBlock, ...],
        source: str,
        session: Session,
        record: _Recorder,
        limits: RunLimits,
    ) -> StopReason:
        """Run the loop inside the deadline; turn failures into events."""
        try:
            session.set_state(AgentState.RUNNING, emit=record)
            async with asyncio.timeout(limits.remaining_seconds):
                run = await self._begin(prompt, source, session, record, limits)
                return await run_loop(run)
        except TimeoutError:
            return StopReason.TIMEOUT
        except ProviderError as error:
            record.append(error_event(error))
        except AarError as error:
            record.append(ErrorEvent(kind=error_kind(error), stage="planning", message=str(error)))
        except Exception as error:
            if self._log is not None:
                self._log("the run failed", error)
            message = f"aar failed inside ({type(error).__name__}: {error}). `aar logs` has the details."
            record.append(ErrorEvent(kind=ErrorKind.INTERNAL, severity="fatal", message=message))
        return StopReason.ERROR

    async def _begin(
        self,
        prompt: tuple[ContentBlock, ...],
        source: str,
        session: Session,
        record: _Recorder,
        limits: RunLimits,
    ) -> Run:
        """Put the prompt, and what belongs to it, before the model; return the run."""
        view = self._make_view(session)
        if session.prompt_sha256 != view.prompt.sha256:
            session.append(view.prompt.event())
        run = self._run = Run(
            record,
            view,
            self.runner,
            self.executor,
            LoopGuardrails(self.config.guardrails),
            limits,
            self.queue,
            verifier=self._make_verifier(),
            sync=lambda: self._sync_soon(session),
            set_state=lambda state: session.set_state(state, emit=record),
        )
        content, problems = expand_mentions(prompt, self._files)
        record.append(*(Notice(level="warning", message=text) for text in problems))
        if view.files is not None:
            await self._show_project(content, view, run, record)
        record.append(UserMessage(content=content, source=source))
        return run

    async def _show_project(
        self, content: tuple[ContentBlock, ...], view: SessionView, run: Run, record: _Recorder
    ) -> None:
        """Give a model that cannot look around the files that matter and the failing check."""
        if view.files is None:
            return
        check = await run.first_check()
        failure = "" if check is None or check.passed else check.output
        if self._survey is not None:
            view.files.refresh(await self._survey())
        words = "\n".join(block.text for block in content if isinstance(block, TextBlock))
        text = await asyncio.to_thread(view.files.describe, words, failure, self.config.files_budget_tokens)
        record.append(ContextEvent(source="notes", label="project", content=(TextBlock(text=text),)))
        if check is not None and not check.passed:
            record.append(check_context(check))

    def _sync_soon(self, session: Session) -> None:
        """Make the session durable in the background; the next effect waits for it."""
        task = asyncio.ensure_future(session.sync())
        self._syncing.add(task)
        task.add_done_callback(self._syncing.discard)

    async def _finish(self, reason: StopReason, session: Session, record: _Recorder) -> None:
        self.approvals.cancel_all()
        session.close_open_calls(record)
        record.step = None
        detail = record.error.message if reason is StopReason.ERROR and record.error else None
        session.set_state(end_state(reason), stop_reason=reason, detail=detail, emit=record)
        await session.sync()


def _result(
    reason: StopReason, session: Session, record: _Recorder, limits: RunLimits, seconds: float
) -> RunResult:
    error = None
    if reason is StopReason.ERROR and record.error is not None:
        error = {"kind": str(record.error.kind), "message": record.error.message}
    return RunResult(
        session_id=session.session_id,
        run_id=record.run_id,
        stop_reason=reason,
        exit_code=_exit_code(reason, record.error),
        text=record.text,
        usage=record.usage,
        cost_usd=record.cost_usd,
        steps=limits.steps,
        duration_ms=round(seconds * 1000, 3),
        file_changes=tuple(record.changes.values()),
        diffs=tuple(record.diffs),
        error=error,
    )


def _exit_code(reason: StopReason, error: ErrorEvent | None) -> ExitCode:
    if reason is StopReason.ERROR and error is not None:
        if error.kind in _CONFIGURATION_KINDS:
            return ExitCode.CONFIGURATION
        if error.kind in _INTERNAL_KINDS:
            return ExitCode.INTERNAL
    return exit_code(reason)
