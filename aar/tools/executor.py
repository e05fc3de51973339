"""The one door for effects: validate, policy, approval, checkpoint, sandbox, result (DESIGN 1.3).

Every call that goes in comes out with exactly one `ToolResult`, also when it is denied, fails, runs out
of time or is cancelled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

from aar.protocol.errors import AarError, SandboxError, ToolCategory, ToolFailure
from aar.protocol.events import ToolCall, ToolProgress, ToolResult
from aar.protocol.ports import Approver, Checkpointer, Emit, Hooks, ToolContext
from aar.protocol.tool import SideEffect, ToolOutcome, ToolSpec
from aar.safety.outside import OutsideText
from aar.safety.policy import SafetyPolicy
from aar.safety.redact import MARK
from aar.tools.call_hooks import after_tool, before_tool, tell_context
from aar.tools.dry_run import Foresight, foresee
from aar.tools.pending_call import PendingCall, StepResults, batches, failure
from aar.tools.permission import LogFailure, StepPermissions, Waiting
from aar.tools.registry import ToolRegistry
from aar.tools.schema import validate_arguments

__all__ = ["StepResults", "ToolExecutor", "cut_middle", "failure"]

MAX_ARGUMENT_CHARS = 1_000_000
"""Characters of one call's arguments; a file of more is not written by a model in one piece."""

_PARTIAL_CHARS = 4000
_WRITES = frozenset({SideEffect.WRITE, SideEffect.EXECUTE})
_GIVE_UP_S = 5.0
"""Seconds for what was cancelled to end; processes are killed within one."""

MakeContext = Callable[[ToolCall, Emit], ToolContext]
Around = Callable[[ToolCall, Mapping[str, Any], Callable[[], Awaitable[ToolOutcome]]], Awaitable[ToolOutcome]]
"""``await around(call, arguments, proceed)``: surrounds the handlers of tools, behind policy."""
Sync = Callable[[], Awaitable[None]]


class ToolExecutor:
    """Runs the tool calls of a step through the whole pipeline.

    Args:
        registry: The tools that exist.
        policy: Decides what may run.
        approver: Answers what policy leaves open; ``None`` means no.
        make_context: Builds the `ToolContext` of one call.
        sync: Makes the session durable; awaited before each effect.
        checkpointer: Keeps files before they change.
        enabled: Names of the tools that may be called; ``None``: all.
        parallel: Read-only calls that run side by side.
        max_calls: Calls of one step that are run.
        max_output_chars: Characters of one result that the model sees.
        log: Gets exceptions of handlers, for the diagnostics log.
        redact: Takes secrets out of what a tool returns, before anybody sees or stores it.

    Attributes:
        outside: Whether text from outside came in.
        hooks: Heard before and after calls; ``None``: there are none.
        in_copy: Whether the tools work in a copy of the project, so that no file of the project changes.
        around: Surrounds handlers; ``None``: nothing does.
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
        enabled: Container[str] | None = None,
        parallel: int = 8,
        max_calls: int = 50,
        max_output_chars: int = 50_000,
        log: LogFailure | None = None,
        redact: Callable[[str], str] | None = None,
    ) -> None:
        self._redact = redact
        self._hid_secrets = False
        self.outside = OutsideText()
        self.hooks: Hooks | None = None
        self.in_copy = False
        self.around: Around | None = None
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

    async def execute(
        self,
        calls: Sequence[ToolCall],
        emit: Emit,
        *,
        cut: bool = False,
        waiting: Waiting | None = None,
    ) -> StepResults:
        """Run ``calls``; read-only ones side by side, the others one after the other.

        Results are appended in the order of the calls. When this is cancelled, calls without a result
        get one of category ``cancelled`` before the cancellation goes on.

        Args:
            calls: The calls of one step.
            emit: Into the session.
            cut: Whether the answer was cut at its end, so that the last call may not be whole.
            waiting: Told when somebody is asked, and when no question is open any more.
        """
        self.outside.begin(calls[0].run_id if calls else None)
        permissions = self._permissions(emit, waiting)
        pending = [PendingCall(call) for call in calls]
        results: list[ToolResult] = []
        try:
            await self._consider(pending, permissions, cut=cut)
            for batch in batches(pending):
                for item in batch:
                    item.task = asyncio.ensure_future(self._run(item, permissions, emit))
                for item in batch:
                    # One by one: a cancel must find those that are recorded.
                    results.append(_record(item, await _outcome(item), emit))  # noqa: PERF401 - as said above
        except asyncio.CancelledError:
            permissions.abandon(pending)
            await _end(pending)
            for item in pending[len(results) :]:
                _record(item, item.left_over(), emit)
            raise
        finally:
            await _end(pending)
        tell_context(pending, emit)
        return StepResults.of(pending, results)

    def _permissions(self, emit: Emit, waiting: Waiting | None) -> StepPermissions:
        return StepPermissions(
            self.policy,
            self.approver,
            emit,
            log=self._log,
            waiting=waiting,
            outside=lambda: self.outside.came,
            hooks=self.hooks,
            foresee=lambda item: self._foresee(item, emit),
        )

    async def _foresee(self, item: PendingCall, emit: Emit) -> Foresight:
        """Return what a call would come to, for whoever is asked about it.

        That it would fail is told only of a file that the model may read unasked: the reason quotes it.
        """
        if item.spec is None or not item.spec.dry_run:
            return Foresight()
        seen = await foresee(item.spec, item.arguments, self._make_context(item.call, emit))
        if seen.failure is not None:
            known = self._could_read(item)
            return Foresight(failure=self._received(item, item.spec, seen.failure) if known else None)
        diff = seen.diff if seen.diff is None or self._redact is None else self._redact(seen.diff)
        return Foresight(diff)

    def _could_read(self, item: PendingCall) -> bool:
        reader = self.registry.get("read_file")
        path = item.raw.get("path")
        if reader is None or not isinstance(path, str):
            return False
        return self.policy.decide(reader, {"path": path}, outside=self.outside.came).decision == "allow"

    async def _consider(
        self, pending: Sequence[PendingCall], permissions: StepPermissions, *, cut: bool
    ) -> None:
        """Validate and judge every call before the first one runs: all questions are asked at once."""
        after_effects = False
        for place, item in enumerate(pending):
            self._prepare(item, place, cut=cut and place == len(pending) - 1)
            item.after_effects = after_effects
            if item.refusal is None and self.hooks is not None:
                await before_tool(self.hooks, item, self.policy.workspace)
            if item.refusal is None:
                await permissions.consider(item)
            after_effects = after_effects or not item.read_only

    def offers(self, name: str) -> bool:
        """Tell whether a tool of this name may be called here."""
        return name in self.registry and self._usable(name)

    def refuse(self, calls: Sequence[ToolCall], emit: Emit, message: str) -> None:
        """Give each of ``calls`` a result that says why it was not run."""
        for call in calls:
            _record(PendingCall(call), (failure(ToolCategory.BLOCKED, message), 0.0), emit)

    # --- before the effect ---------------------------------------------------------------------------

    def _prepare(self, item: PendingCall, place: int, *, cut: bool) -> None:
        """Find the tool and validate the arguments."""
        try:
            if place >= self._max_calls:
                raise ToolFailure(
                    ToolCategory.BLOCKED,
                    f"Only {self._max_calls} tool calls of one answer are run. Ask for the rest again.",
                )
            item.spec = self._find(item.call.tool_name)
            item.set_arguments(_validated(item.spec, item.call, cut=cut))
            self._demand_no_mark(item.spec, item)
        except ToolFailure as error:
            item.refusal = failure(error.category, error.message)
        except Exception as error:  # arguments that break their own validation must not end the run
            self._tell(f"arguments of {item.call.tool_name} could not be read", error)
            message = f"The arguments could not be read ({type(error).__name__}). Send simpler ones."
            item.refusal = failure(ToolCategory.INVALID_ARGUMENTS, message)

    def _demand_no_mark(self, spec: ToolSpec, item: PendingCall) -> None:
        """Refuse to write the mark that stands for a secret over the secret itself."""
        texts = (value for value in item.raw.values() if isinstance(value, str))
        if (
            self._hid_secrets
            and SideEffect.WRITE in spec.side_effects
            and any(MARK in text for text in texts)
        ):
            raise ToolFailure(
                ToolCategory.INVALID_ARGUMENTS,
                f"{MARK} stands for a secret that you were not shown; writing it would destroy the secret. "
                "Change the lines around it with edit_file.",
            )

    def _find(self, name: str) -> ToolSpec:
        spec = self.registry.get(name)
        if spec is not None and (self._enabled is None or spec.name in self._enabled):
            return spec
        names = [near for near in self.registry.nearest(name) if self._usable(near)]
        hint = f"Did you mean {' or '.join(names)}?" if names else "Use one of the tools you were given."
        raise ToolFailure(ToolCategory.UNKNOWN_TOOL, f"There is no tool named {name!r}. {hint}")

    def _usable(self, name: str) -> bool:
        return self._enabled is None or name in self._enabled

    def _tell(self, what: str, error: BaseException) -> None:
        if self._log is not None:
            self._log(what, error)

    # --- the effect ----------------------------------------------------------------------------------

    async def _run(
        self, item: PendingCall, permissions: StepPermissions, emit: Emit
    ) -> tuple[ToolOutcome, float]:
        """Return the outcome and how many seconds the handler took."""
        refusal = item.refusal or await permissions.refusal(item)
        spec = item.spec
        if refusal is not None or spec is None:
            return refusal or failure(ToolCategory.UNKNOWN_TOOL, "There is no such tool."), 0.0
        if spec.handler is None:
            return failure(ToolCategory.NO_HANDLER, f"{spec.name} cannot run here."), 0.0
        if spec.read_only and not spec.waits:
            async with self._slots:
                outcome = await self._guarded(item, spec, emit)
        else:
            outcome = await self._guarded(item, spec, emit)
        seconds = time.monotonic() - item.start if item.start is not None else 0.0
        outcome = self._received(item, spec, outcome)
        if self.hooks is not None:
            outcome = await after_tool(self.hooks, item, outcome, self.policy.workspace)
        return outcome, seconds

    async def _guarded(self, item: PendingCall, spec: ToolSpec, emit: Emit) -> ToolOutcome:
        """Run the handler; whatever goes wrong becomes an outcome."""
        deadline = asyncio.timeout(spec.timeout_s)
        try:
            return await self._effect(item, spec, emit, deadline)
        except ToolFailure as error:
            return failure(error.category, error.message)
        except AarError as error:
            kind = ToolCategory.SANDBOX if isinstance(error, SandboxError) else ToolCategory.EXCEPTION
            return failure(kind, str(error))
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            # Something inside the tool was cancelled, not this call.
            return failure(
                ToolCategory.CANCELLED, item.with_partial(f"{spec.name} was cancelled from within.")
            )
        except Exception as error:  # a handler's defect must not end the run
            if isinstance(error, TimeoutError) and deadline.expired():
                message = f"{spec.name} took longer than {spec.timeout_s:g} s and was stopped."
                return failure(ToolCategory.TIMEOUT, item.with_partial(message))
            self._tell(f"tool {spec.name} failed", error)
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            return failure(ToolCategory.EXCEPTION, item.with_partial(f"{spec.name} failed: {text}"))

    async def _effect(
        self, item: PendingCall, spec: ToolSpec, emit: Emit, deadline: asyncio.Timeout
    ) -> ToolOutcome:
        if not spec.read_only:
            await self._before_effect(item, spec, emit)
        context = self._context(item, emit)
        item.start = time.monotonic()
        async with deadline:
            outcome = await self._handled(item, spec, context)
        return self._bounded(outcome, context)

    async def _handled(self, item: PendingCall, spec: ToolSpec, context: ToolContext) -> ToolOutcome:
        handler = spec.handler
        assert handler is not None
        if self.around is None:
            return await handler(item.arguments, context)
        return await self.around(item.call, item.raw, lambda: handler(item.arguments, context))

    def _received(self, item: PendingCall, spec: ToolSpec, outcome: ToolOutcome) -> ToolOutcome:
        """Take secrets out of what came back, and take note of where it came from."""
        if self.in_copy:
            outcome = replace(outcome, file_changes=())
        if self._redact is not None:
            output, diff = self._redact(outcome.output), outcome.diff and self._redact(outcome.diff)
            if (output, diff) != (outcome.output, outcome.diff):
                self._hid_secrets = True
                outcome = replace(outcome, output=output, diff=diff)
        return self.outside.receive(spec, item.raw, outcome, network=self.policy.network)

    async def _before_effect(self, item: PendingCall, spec: ToolSpec, emit: Emit) -> None:
        if self._sync is not None:
            await self._sync()
        if self._checkpointer is not None and spec.side_effects & _WRITES:
            checkpoint = await self._checkpointer.before(item.call.call_id, None)
            if checkpoint is not None:
                emit.append(checkpoint)

    def _context(self, item: PendingCall, emit: Emit) -> ToolContext:
        context = self._make_context(item.call, emit)
        context.writable = item.unlocked
        context.by_words = item.decision is not None and item.decision.by_words

        def progress(text: str) -> None:
            if self._redact is not None:
                text = self._redact(text)
            item.shown = (item.shown + text)[-_PARTIAL_CHARS:]
            emit.publish(ToolProgress(call_id=item.call.call_id, text=text))

        context.progress = progress
        return context

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


async def _outcome(item: PendingCall) -> tuple[ToolOutcome, float]:
    """Wait for a call. Cancelling ends the wait, also when the tool takes no notice of it."""
    assert item.task is not None
    await asyncio.wait({item.task})
    return item.task.result()


async def _end(pending: Sequence[PendingCall]) -> None:
    """End what still runs, so that nothing outlives its step."""
    left = [task for item in pending for task in (item.task, item.question) if task and not task.done()]
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=_GIVE_UP_S)


def _record(item: PendingCall, done: tuple[ToolOutcome, float], emit: Emit) -> ToolResult:
    outcome, seconds = done
    result = ToolResult(
        call_id=item.call.call_id,
        tool_name=item.tool_name,
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
        would_allow=outcome.would_allow,
        parent_id=item.call.id or None,
    )
    stored = emit.append(result)[0]
    return stored if isinstance(stored, ToolResult) else result


def cut_middle(text: str, limit: int, reference: str | None) -> str:
    """Return head and tail of ``text`` in about ``limit`` characters, with a line on what is missing."""
    head, tail = limit * 2 // 3, limit // 3
    left_out = len(text) - head - tail
    where = f"; read_output(ref={reference!r}) shows it" if reference else ""
    return f"{text[:head]}\n… {left_out:,} characters left out{where} …\n{text[len(text) - tail :]}"


def _validated(spec: ToolSpec, call: ToolCall, *, cut: bool) -> Any:
    size = sum(len(value) for value in call.arguments.values() if isinstance(value, str))
    if size > MAX_ARGUMENT_CHARS:
        raise ToolFailure(
            ToolCategory.INVALID_ARGUMENTS,
            f"The arguments of {spec.name} have {size:,} characters, more than the {MAX_ARGUMENT_CHARS:,} "
            "that are taken. Do the work in smaller pieces.",
        )
    if cut:
        raise ToolFailure(
            ToolCategory.INVALID_ARGUMENTS,
            "Your answer was cut for length in or right after this call, so it did not run.",
        )
    if call.raw_arguments is not None:
        raise ToolFailure(
            ToolCategory.INVALID_ARGUMENTS,
            f"The arguments of {spec.name} were not a complete JSON object, so it did not run. "
            "Send the call again with valid JSON; if the answer was cut for length, do it in smaller pieces.",
        )
    return validate_arguments(spec, call.arguments)
