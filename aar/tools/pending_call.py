"""A tool call on its way through the executor, and what comes out of a step."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from aar.protocol.errors import ToolCategory, tool_error_text
from aar.protocol.events import Approval, ApprovalRequest, ToolCall, ToolResult
from aar.protocol.tool import ToolOutcome, ToolSpec
from aar.safety.policy import Decision


@dataclass(frozen=True, slots=True)
class StepResults:
    """What came of one step's calls: results in the order of the calls.

    ``ends_run`` is set when a call was denied without a word about what to do instead; ``acted`` when a
    call that may change the world succeeded, whether or not it told which files it changed.
    """

    results: tuple[ToolResult, ...]
    ends_run: bool = False
    acted: bool = False

    @classmethod
    def of(cls, calls: Sequence[PendingCall], results: Sequence[ToolResult]) -> StepResults:
        """Return what came of ``calls``, which have these results in the same order."""
        return cls(
            tuple(results),
            ends_run=any(call.ends_run for call in calls),
            acted=any(
                not call.read_only and not result.is_error
                for call, result in zip(calls, results, strict=True)
            ),
        )


@dataclass(slots=True, eq=False)
class PendingCall:
    """A call between its request and its result.

    Attributes:
        call: As the model made it.
        spec: The tool; ``None`` when there is no such tool.
        arguments: Validated, as the handler takes them.
        raw: The same as a JSON object, as policy and people see them.
        decision: What policy said last.
        refusal: Why the call cannot run, if that is known from the start.
        after_effects: Whether an earlier call of the step may have changed what policy looked at.
        request: The last question about it.
        question: Waits for the answer; ``None`` while there is no question.
        task: Runs it.
        start: When its handler began (monotonic seconds).
        shown: End of the output that was shown while it ran.
        ends_run: Whether the run ends with this step because of it.
        hook_allows: Whether a hook of the user answers a question about it with yes.
        context: What hooks tell the model about it, and whether that is trusted.
        unlocked: Protected paths that it may write because a person allowed it.
    """

    call: ToolCall
    spec: ToolSpec | None = None
    arguments: Any = None
    raw: dict[str, Any] = field(default_factory=dict[str, Any])
    decision: Decision | None = None
    refusal: ToolOutcome | None = None
    after_effects: bool = False
    request: ApprovalRequest | None = None
    question: asyncio.Task[Approval] | None = None
    task: asyncio.Task[tuple[ToolOutcome, float]] | None = None
    start: float | None = None
    shown: str = ""
    ends_run: bool = False
    hook_allows: bool = False
    context: list[tuple[str, bool]] = field(default_factory=list[tuple[str, bool]])
    unlocked: tuple[Path, ...] = ()

    @property
    def tool_name(self) -> str:
        """Name of the tool; as the model wrote it when there is no such tool."""
        return self.spec.name if self.spec is not None else self.call.tool_name

    @property
    def read_only(self) -> bool:
        """Whether it can change nothing: it only reads, or will not run at all."""
        return self.spec is None or self.refusal is not None or self.spec.read_only

    @property
    def parallel(self) -> bool:
        """Whether it may run beside others of its kind."""
        return self.spec is not None and self.spec.read_only and self.spec.concurrency == "parallel"

    def set_arguments(self, arguments: Any) -> None:
        """Take validated arguments."""
        self.arguments = arguments
        self.raw = _as_dict(arguments)

    def with_partial(self, message: str) -> str:
        """Return ``message`` with the output that was shown until now."""
        return f"{message} Output until then:\n{self.shown}" if self.shown else message

    def left_over(self) -> tuple[ToolOutcome, float]:
        """Return what is to be told of a call when its run ends: its own outcome if it still got one."""
        task = self.task
        if task is not None and task.done() and not task.cancelled() and task.exception() is None:
            return task.result()
        message = "The run ended before this call was made."
        if self.start is not None:
            message = self.with_partial(
                "The run ended while this call was under way; it may have taken effect in part."
            )
        return failure(ToolCategory.CANCELLED, message), 0.0


def failure(category: ToolCategory, message: str, **fields: Any) -> ToolOutcome:
    """Return the outcome of a call that failed with ``category``."""
    return ToolOutcome(output=tool_error_text(category, message), is_error=True, category=category, **fields)


def batches(items: Sequence[PendingCall]) -> list[list[PendingCall]]:
    """Group neighbours that may run side by side; every other call is a batch of its own."""
    grouped: list[list[PendingCall]] = []
    for item in items:
        if grouped and item.parallel and grouped[-1][-1].parallel:
            grouped[-1].append(item)
        else:
            grouped.append([item])
    return grouped


def _as_dict(arguments: Any) -> dict[str, Any]:
    if isinstance(arguments, Mapping):
        return dict(cast("Mapping[str, Any]", arguments))
    dumped: dict[str, Any] = arguments.model_dump(mode="json", exclude_none=True)
    return dumped
