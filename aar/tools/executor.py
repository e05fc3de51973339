"""The one door for effects: validate, policy, approval, checkpoint, sandbox, result (DESIGN 1.3).

Every call that goes in comes out with exactly one `ToolResult`, also when it is denied, fails, runs out
of time or is cancelled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aar.protocol.errors import AarError, ToolCategory, ToolFailure, tool_error_text
from aar.protocol.events import Approval, ApprovalRequest, ToolCall, ToolProgress, ToolResult
from aar.protocol.ids import new_id
from aar.protocol.ports import Approver, Checkpointer, Emit, ToolContext
from aar.protocol.tool import SideEffect, ToolOutcome, ToolSpec
from aar.safety.policy import Decision, SafetyPolicy
from aar.tools.registry import ToolRegistry
from aar.tools.schema import validate_arguments

_PARTIAL_CHARS = 4000
_WRITES = frozenset({SideEffect.WRITE, SideEffect.EXECUTE})

MakeContext = Callable[[ToolCall, Emit], ToolContext]
Sync = Callable[[], Awaitable[None]]
LogFailure = Callable[[str, BaseException], None]


@dataclass(frozen=True, slots=True)
class StepResults:
    """What came of one step's calls: results in the order of the calls.

    ``ends_run`` is set when a call was denied without a word about what to do instead.
    """

    results: tuple[ToolResult, ...]
    ends_run: bool = False

    @property
    def changed_files(self) -> bool:
        """Whether any call changed a file."""
        return any(result.file_changes for result in self.results)


@dataclass(slots=True)
class _Prepared:
    """A call on its way through the pipeline."""

    call: ToolCall
    spec: ToolSpec | None = None
    arguments: Any = None
    raw: dict[str, Any] = field(default_factory=dict[str, Any])
    decision: Decision | None = None
    approval: asyncio.Task[Approval] | None = None
    request: ApprovalRequest | None = None
    refusal: ToolOutcome | None = None
    shown: str = ""
    ends_run: bool = False

    @property
    def parallel(self) -> bool:
        return self.spec is not None and self.spec.read_only and self.spec.concurrency == "parallel"


def failure(category: ToolCategory, message: str, **fields: Any) -> ToolOutcome:
    """Return the outcome of a call that failed with ``category``."""
    return ToolOutcome(output=tool_error_text(category, message), is_error=True, category=category, **fields)


class ToolExecutor:
    """Runs the tool calls of a step through the whole pipeline.

    Args:
        registry: The tools that exist.
        policy: Decides what may run.
        approver: Answers what policy leaves open; ``None`` means no.
        make_context: Builds the `ToolContext` of one call.
        sync: Makes the session durable; awaited before the first effect of a step.
        checkpointer: Keeps files before they change.
        enabled: Names of the tools that may be called; ``None``: all.
        parallel: Read-only calls that run side by side.
        max_calls: Calls of one step that are run.
        max_output_chars: Characters of one result that the model sees.
        log: Gets exceptions of handlers, for the diagnostics log.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        policy: SafetyPolicy,
        approver: Approver | None,
        make_context: MakeContext,
        *,
        sync: Sync | None = None,
        checkpointer: Checkpointer | None = None,
        enabled: frozenset[str] | None = None,
        parallel: int = 8,
        max_calls: int = 50,
        max_output_chars: int = 50_000,
        log: LogFailure | None = None,
    ) -> None:
        self.registry = registry
        self.policy = policy
        self.approver = approver
        self._make_context = make_context
        self._sync = sync
        self._checkpointer = checkpointer
        self._enabled = enabled
        self._slots = asyncio.Semaphore(parallel)
        self._max_calls = max_calls
        self._max_output_chars = max_output_chars
        self._log = log

    async def execute(self, calls: Sequence[ToolCall], emit: Emit) -> StepResults:
        """Run ``calls``; read-only ones side by side, the others one after the other.

        Results are appended in the order of the calls. When this is cancelled, calls without a result
        get one of category ``cancelled`` before the cancellation goes on.
        """
        prepared = [self._prepare(call, emit, place) for place, call in enumerate(calls)]
        results: list[ToolResult] = []
        try:
            for batch in _batches(prepared):
                tasks = [asyncio.ensure_future(self._run(item, emit)) for item in batch]
                try:
                    for item, task in zip(batch, tasks, strict=True):
                        results.append(self._record(item, await task, emit))
                finally:
                    await _cancel(tasks)
        except asyncio.CancelledError:
            for item in prepared[len(results) :]:
                self._record(item, (_cancelled(item), 0.0), emit)
            raise
        finally:
            await _cancel([item.approval for item in prepared if item.approval is not None])
        return StepResults(tuple(results), ends_run=any(item.ends_run for item in prepared))

    # --- before the effect ---------------------------------------------------------------------------

    def _prepare(self, call: ToolCall, emit: Emit, place: int) -> _Prepared:
        """Validate and judge one call; a question to a person is asked at once, not waited for."""
        item = _Prepared(call)
        try:
            if place >= self._max_calls:
                raise ToolFailure(
                    ToolCategory.BLOCKED,
                    f"Only {self._max_calls} tool calls of one answer are run. Ask for the rest again.",
                )
            item.spec = self._find(call.tool_name)
            item.arguments = _validated(item.spec, call)
            item.raw = _as_dict(item.arguments)
            item.decision = self.policy.decide(item.spec, item.raw)
        except ToolFailure as error:
            item.refusal = failure(error.category, error.message)
            return item
        except AarError as error:
            item.refusal = failure(ToolCategory.BLOCKED, str(error))
            return item
        self._judge(item, emit)
        return item

    def _find(self, name: str) -> ToolSpec:
        spec = self.registry.get(name)
        if spec is not None and (self._enabled is None or spec.name in self._enabled):
            return spec
        names = [near for near in self.registry.nearest(name) if self._usable(near)]
        hint = f"Did you mean {' or '.join(names)}?" if names else "Use one of the tools you were given."
        raise ToolFailure(ToolCategory.UNKNOWN_TOOL, f"There is no tool named {name!r}. {hint}")

    def _usable(self, name: str) -> bool:
        return self._enabled is None or name in self._enabled

    def _judge(self, item: _Prepared, emit: Emit) -> None:
        decision, spec = item.decision, item.spec
        if decision is None or spec is None:
            return
        if decision.decision == "allow":
            if not spec.read_only:
                emit.append(self._approval(item, "allow"))
        elif decision.decision == "deny":
            emit.append(self._approval(item, "reject"))
            item.refusal = failure(ToolCategory.BLOCKED, _why_not(decision))
        else:
            self._ask(item, decision, emit)

    def _approval(self, item: _Prepared, decision: Any) -> Approval:
        verdict = item.decision
        rule = verdict.rule.text if verdict is not None and verdict.rule is not None else None
        by = "policy" if rule is not None or verdict is None else verdict.by
        return Approval(
            call_id=item.call.call_id, decision=decision, by=by, rule=rule, parent_id=item.call.id or None
        )

    def _ask(self, item: _Prepared, decision: Decision, emit: Emit) -> None:
        rule = {"text": decision.rule.text, "layer": decision.rule.layer} if decision.rule else None
        request = ApprovalRequest(
            request_id=new_id(),
            call_id=item.call.call_id,
            tool_name=item.call.tool_name,
            arguments=item.raw,
            wall=self.policy.wall,
            why={"rule": rule, "reasons": list(decision.reasons)},
            proposed_rule=decision.proposed_rule,
            scopes=("once", "session") if decision.proposed_rule else ("once",),
            parent_id=item.call.id or None,
        )
        if self.approver is None:
            emit.append(self._approval(item, "reject"))
            item.refusal = failure(ToolCategory.DENIED, f"{_why_not(decision)} Nobody is there to allow it.")
            item.ends_run = True
            return
        emit.append(request)
        item.request = request
        item.approval = asyncio.ensure_future(self.approver.decide(request))

    async def _approved(self, item: _Prepared, emit: Emit) -> ToolOutcome | None:
        """Wait for the answer to a question; return the refusal if it was no."""
        if item.approval is None or item.request is None or item.spec is None:
            return None
        answer = await item.approval
        stamp = {"call_id": item.call.call_id, "request_id": item.request.request_id}
        emit.append(answer.model_copy(update=stamp))
        if answer.decision == "cancelled":
            return failure(ToolCategory.CANCELLED, "The question was cancelled, the call did not run.")
        if answer.decision == "reject":
            item.ends_run = not answer.feedback
            said = f" They said: {answer.feedback}" if answer.feedback else ""
            return failure(ToolCategory.DENIED, f"The user did not allow this call.{said}")
        if answer.edited_arguments is not None:
            return self._edited(item, answer.edited_arguments)
        return None

    def _edited(self, item: _Prepared, arguments: dict[str, Any]) -> ToolOutcome | None:
        """Take arguments that a person changed; they are validated, and hard denials still hold."""
        if item.spec is None:
            return None
        try:
            item.arguments = validate_arguments(item.spec, arguments)
        except ToolFailure as error:
            return failure(error.category, error.message)
        item.raw = _as_dict(item.arguments)
        decision = self.policy.decide(item.spec, item.raw)
        if decision.decision == "deny":
            return failure(ToolCategory.BLOCKED, _why_not(decision))
        return None

    # --- the effect ----------------------------------------------------------------------------------

    async def _run(self, item: _Prepared, emit: Emit) -> tuple[ToolOutcome, float]:
        """Return the outcome and how many seconds the handler took."""
        refusal = item.refusal or await self._approved(item, emit)
        spec = item.spec
        if refusal is not None or spec is None:
            return refusal or failure(ToolCategory.UNKNOWN_TOOL, "There is no such tool."), 0.0
        if spec.handler is None:
            return failure(ToolCategory.NO_HANDLER, f"{spec.name} cannot run here."), 0.0
        if spec.read_only:
            async with self._slots:
                return await self._timed(item, spec, emit)
        await self._before_effect(item, spec, emit)
        return await self._timed(item, spec, emit)

    async def _before_effect(self, item: _Prepared, spec: ToolSpec, emit: Emit) -> None:
        if self._sync is not None:
            await self._sync()
        if self._checkpointer is not None and spec.side_effects & _WRITES:
            checkpoint = await self._checkpointer.before(item.call.call_id, None)
            if checkpoint is not None:
                emit.append(checkpoint)

    async def _timed(self, item: _Prepared, spec: ToolSpec, emit: Emit) -> tuple[ToolOutcome, float]:
        start = time.monotonic()
        outcome = await self._handle(item, spec, emit)
        return outcome, time.monotonic() - start

    async def _handle(self, item: _Prepared, spec: ToolSpec, emit: Emit) -> ToolOutcome:
        context = self._make_context(item.call, emit)

        def progress(text: str) -> None:
            item.shown = (item.shown + text)[-_PARTIAL_CHARS:]
            emit.publish(ToolProgress(call_id=item.call.call_id, text=text))

        context.progress = progress
        handler = spec.handler
        if handler is None:
            return failure(ToolCategory.NO_HANDLER, f"{spec.name} cannot run here.")
        try:
            async with asyncio.timeout(spec.timeout_s):
                outcome = await handler(item.arguments, context)
        except ToolFailure as error:
            return failure(error.category, error.message)
        except TimeoutError:
            message = f"{spec.name} took longer than {spec.timeout_s:g} s and was stopped."
            return failure(ToolCategory.TIMEOUT, message + _partial(item))
        except AarError as error:
            return failure(ToolCategory.SANDBOX, str(error))
        except Exception as error:  # a handler's defect must not end the run
            if self._log is not None:
                self._log(f"tool {spec.name} failed", error)
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            return failure(ToolCategory.EXCEPTION, f"{spec.name} failed: {text}")
        return self._bounded(outcome, context)

    def _bounded(self, outcome: ToolOutcome, context: ToolContext) -> ToolOutcome:
        """Cut an output that is longer than the model may see; the whole is kept on disk."""
        limit = self._max_output_chars
        if len(outcome.output) <= limit:
            return outcome
        try:
            reference = outcome.output_ref or context.outputs.keep(context.call_id, outcome.output)
        except OSError:
            reference = None
        return replace(
            outcome, output=cut_middle(outcome.output, limit, reference), truncated=True, output_ref=reference
        )

    # --- after the effect ----------------------------------------------------------------------------

    def _record(self, item: _Prepared, done: tuple[ToolOutcome, float], emit: Emit) -> ToolResult:
        outcome, seconds = done
        result = ToolResult(
            call_id=item.call.call_id,
            tool_name=item.spec.name if item.spec is not None else item.call.tool_name,
            output=outcome.output,
            content=outcome.images,
            is_error=outcome.is_error,
            category=outcome.category,
            duration_ms=round(seconds * 1000, 3),
            exit_code=outcome.exit_code,
            truncated=outcome.truncated,
            output_ref=outcome.output_ref,
            file_changes=outcome.file_changes,
            diff=outcome.diff,
            sandbox=outcome.sandbox,
            parent_id=item.call.id or None,
        )
        stored = emit.append(result)[0]
        return stored if isinstance(stored, ToolResult) else result


def cut_middle(text: str, limit: int, reference: str | None) -> str:
    """Return head and tail of ``text`` in about ``limit`` characters, with a line that says what is missing."""
    head, tail = limit * 2 // 3, limit // 3
    left_out = len(text) - head - tail
    where = f"; read_output(ref={reference!r}) shows it" if reference else ""
    return f"{text[:head]}\n… {left_out:,} characters left out{where} …\n{text[-tail:]}"


def _batches(items: Sequence[_Prepared]) -> list[list[_Prepared]]:
    """Group neighbours that may run side by side; every other call is a batch of its own."""
    batches: list[list[_Prepared]] = []
    for item in items:
        if batches and item.parallel and batches[-1][-1].parallel:
            batches[-1].append(item)
        else:
            batches.append([item])
    return batches


def _validated(spec: ToolSpec, call: ToolCall) -> Any:
    if call.raw_arguments is not None:
        raise ToolFailure(
            ToolCategory.INVALID_ARGUMENTS,
            f"The arguments of {spec.name} were not a complete JSON object, so it did not run. "
            "Send the call again with valid JSON; if the answer was cut for length, do it in smaller pieces.",
        )
    return validate_arguments(spec, call.arguments)


def _as_dict(arguments: Any) -> dict[str, Any]:
    if isinstance(arguments, Mapping):
        return dict(arguments)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    dumped: dict[str, Any] = arguments.model_dump(mode="json", exclude_none=True)
    return dumped


def _why_not(decision: Decision) -> str:
    reasons = " ".join(reason.rstrip(".") + "." for reason in decision.reasons)
    return reasons or "The rules do not allow this call."


def _partial(item: _Prepared) -> str:
    return f" Output until then:\n{item.shown}" if item.shown else ""


def _cancelled(item: _Prepared) -> ToolOutcome:
    return failure(ToolCategory.CANCELLED, f"The run was cancelled before this ended.{_partial(item)}")


async def _cancel(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """End what still runs, so that nothing outlives its step."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.gather(*tasks, return_exceptions=True)
