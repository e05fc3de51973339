"""The steps of a session one by one, with their times, and hints at what goes badly in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final

from aar.protocol.events import (
    Approval,
    ApprovalRequest,
    AssistantMessage,
    Event,
    ProviderMeta,
    Reasoning,
    ToolCall,
    ToolResult,
)
from aar.protocol.usage import Usage

SLOW_STEP_S: Final = 30.0
"""Seconds of one step from which it is worth a hint."""
MOST_FAILURES: Final = 0.2
"""Share of failed calls from which it is worth a hint."""
_WORTH_NAMING_MS: Final = 500
_FEW_CALLS: Final = 5
_EXAMPLES: Final = 3


@dataclass(slots=True)
class Call:
    """One tool call. ``category`` says how it failed; ``None``: it did not."""

    name: str
    duration_ms: float = 0.0
    category: str | None = None

    @property
    def words(self) -> str:
        """The call in a few words."""
        return f"{self.name} ({self.category})" if self.category else self.name


@dataclass(slots=True)
class Step:
    """One request to the model with its tool calls. Times in milliseconds.

    Attributes:
        number: In the session, from 1; requests of other agents do not count.
        run_id: The run it belongs to.
        step: Its number in the run.
        first_seq: First event of the answer: what stands before it was sent.
        last_seq: Last event of the answer.
        ts: When the answer was there.
        model: Who answered.
        usage: Tokens.
        cost_usd: ``None``: the price is not known.
        model_ms: From request to the end of the answer.
        first_token_ms: From request to the first piece.
        attempts: Requests that were sent, failed ones included.
        calls: The tool calls.
        waited_ms: For answers of the user.
    """

    number: int
    run_id: str | None
    step: int | None
    first_seq: int
    last_seq: int
    ts: str
    model: str
    usage: Usage
    cost_usd: float | None
    model_ms: float
    first_token_ms: float | None
    attempts: int
    calls: dict[str, Call] = field(default_factory=dict[str, Call])
    waited_ms: float = 0.0

    @property
    def tool_ms(self) -> float:
        """Time in tools, calls side by side counted each."""
        return sum(call.duration_ms for call in self.calls.values())

    @property
    def total_ms(self) -> float:
        """Time of the whole step, but for waiting for the user."""
        return self.model_ms + self.tool_ms

    def cells(self) -> tuple[str, ...]:
        """Return the step as a row below `HEADINGS`."""
        calls = [call.words for call in self.calls.values()]
        cost = "?" if self.cost_usd is None else f"${self.cost_usd:.4f}"
        return (
            str(self.number),
            self.ts[11:19],
            _seconds(self.model_ms),
            _seconds(self.tool_ms) if self.calls else "",
            f"{self.usage.prompt:,}",
            f"{self.usage.output:,}",
            cost,
            ", ".join(calls),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        calls = [{"call_id": name, **asdict(call)} for name, call in self.calls.items()]
        plain = {name: getattr(self, name) for name in _PLAIN}
        return {**plain, "usage": self.usage.model_dump(), "calls": calls, "total_ms": self.total_ms}


HEADINGS: Final = ("STEP", "AT", "MODEL", "TOOLS", "IN", "OUT", "COST", "CALLS")
_PLAIN: Final = ("number", "run_id", "step", "first_seq", "last_seq", "ts", "model", "cost_usd", "model_ms",
                 "first_token_ms", "attempts", "waited_ms")  # fmt: skip


class Timeline:
    """Folds events to steps.

    Args:
        agent_id: Whose.
    """

    def __init__(self, agent_id: str = "main") -> None:
        self._agent_id = agent_id
        self.steps: list[Step] = []
        self._answer: list[Event] = []
        self._asked: dict[str, str] = {}

    def apply(self, event: Event) -> None:
        """Take the next event."""
        if event.agent_id != self._agent_id:
            return
        match event:
            case ProviderMeta():
                self._add(event)
            case Reasoning() | AssistantMessage() | ToolCall():
                self._collect(event)
            case ToolResult() if self.steps and event.call_id in self.steps[-1].calls:
                call = self.steps[-1].calls[event.call_id]
                call.duration_ms = event.duration_ms or 0.0
                # A command that ended with another code than 0 did what it should: tests fail that way.
                told = event.category or ("exception" if event.exit_code is None else None)
                call.category = str(told) if event.is_error and told else None
            case ApprovalRequest():
                self._asked[event.request_id] = event.ts
            case Approval() if self.steps and event.request_id in self._asked:
                self.steps[-1].waited_ms += _between(self._asked.pop(event.request_id), event.ts)
            case _:
                pass

    def _collect(self, event: Event) -> None:
        # What a cancel or an error left of an answer has no facts after it and is no step.
        if self._answer and _place(self._answer[-1]) != _place(event):
            self._answer.clear()
        self._answer.append(event)

    def _add(self, event: ProviderMeta) -> None:
        own = [item for item in self._answer if _place(item) == _place(event)]
        self._answer.clear()
        calls = {item.call_id: Call(item.tool_name) for item in own if isinstance(item, ToolCall)}
        last = event.seq or 0
        self.steps.append(
            Step(
                len(self.steps) + 1,
                event.run_id,
                event.step,
                (own[0].seq if own else event.seq) or 0,
                last,
                event.ts,
                event.full_model,
                event.usage,
                event.cost_usd,
                event.duration_ms or 0.0,
                event.first_token_ms,
                event.attempts,
                calls,
            )
        )


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.1f} s"


def timeline(events: Iterable[Event], agent_id: str = "main") -> list[Step]:
    """Return the steps of one agent."""
    found = Timeline(agent_id)
    for event in events:
        found.apply(event)
    return found.steps


def hints(steps: Sequence[Step]) -> list[str]:
    """Return a sentence for each thing that goes badly: many failed calls, slow steps."""
    told: list[str] = []
    calls = [call for step in steps for call in step.calls.values()]
    failed = [call for call in calls if call.category is not None]
    if len(calls) >= _FEW_CALLS and len(failed) > MOST_FAILURES * len(calls):
        kinds = Counter(f"{call.name}: {call.category}" for call in failed).most_common(_EXAMPLES)
        shown = ", ".join(f"{kind} {count}×" if count > 1 else kind for kind, count in kinds)
        told.append(f"{len(failed)} of {len(calls)} tool calls failed ({shown}).")
    slow = [step for step in steps if step.total_ms > SLOW_STEP_S * 1000]
    if slow:
        told.append(_slow(slow, len(steps)))
    return told


def _slow(slow: Sequence[Step], count: int) -> str:
    worst = max(slow, key=lambda step: step.total_ms)
    where = f"{worst.model_ms / 1000:.0f} s in the model"
    if worst.tool_ms >= _WORTH_NAMING_MS and worst.calls:
        longest = max(worst.calls.values(), key=lambda call: call.duration_ms)
        where += f", {worst.tool_ms / 1000:.0f} s in tools (longest: {longest.name})"
    seconds = f"{worst.total_ms / 1000:.0f} s: {where}."
    if count == 1:
        return f"The step took {seconds}"
    return f"{len(slow)} of {count} steps took more than {SLOW_STEP_S:.0f} s; the longest {seconds}"


def _place(event: Event) -> tuple[str | None, int | None]:
    return event.run_id, event.step


def _between(begin: str, end: str) -> float:
    try:
        seconds = (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()
    except (ValueError, TypeError):
        return 0.0
    return max(0.0, seconds * 1000)
