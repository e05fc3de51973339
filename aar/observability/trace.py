"""The operations of a session as a tree: session, run, step, request, call, sub-agent; folded from events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from aar.protocol.events import (
    Compaction,
    ErrorEvent,
    Event,
    ProviderMeta,
    Retry,
    SessionEvent,
    StateEvent,
    Subagent,
    ToolCall,
    ToolResult,
    UserMessage,
)
from aar.protocol.messages import TextBlock
from aar.protocol.usage import Usage

Kind = Literal["session", "run", "step", "model", "tool", "agent"]

_LABEL_CHARS = 80


@dataclass(slots=True)
class Operation:
    """One node of the tree.

    Attributes:
        kind: ``model`` is a request, ``agent`` a sub-agent.
        name: Of the model, tool or agent; of a run the prompt.
        id: Unique in the session.
        start: RFC 3339 in UTC; empty when it is not known.
        end: Likewise; of an operation that never ended, its last sign of life.
        status: ``ok``, ``error``, or a stop reason.
        usage: Tokens, sub-operations included.
        cost_usd: Known cost, sub-operations included.
        cost_known: Whether all of it is known.
        seq: First event.
        agent_id: Who.
        facts: What else is known: attempts, exit code, first token …
        children: In order.
    """

    kind: Kind
    name: str
    id: str
    start: str = ""
    end: str = ""
    status: str = "ok"
    usage: Usage = field(default_factory=Usage)
    cost_usd: float = 0.0
    cost_known: bool = True
    seq: int = 0
    agent_id: str = "main"
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    children: list[Operation] = field(default_factory=list["Operation"])

    @property
    def duration_ms(self) -> float:
        """Milliseconds from start to end; 0 when one is not known."""
        start, end = moment(self.start), moment(self.end)
        return max(0.0, (end - start).total_seconds() * 1000) if start and end else 0.0

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Operation]]:
        """Yield this operation and all below it with their depth, in order."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "kind": self.kind,
            "name": self.name,
            "id": self.id,
            "agent_id": self.agent_id,
            "seq": self.seq,
            "start": self.start,
            "end": self.end,
            "duration_ms": round(self.duration_ms, 3),
            "status": self.status,
            "usage": {**self.usage.model_dump(), "total": self.usage.total},
            "cost_usd": self.cost_usd if self.cost_known else None,
            "known_cost_usd": self.cost_usd,
            **({"facts": self.facts} if self.facts else {}),
            "children": [child.to_dict() for child in self.children],
        }


def moment(stamp: str) -> datetime | None:
    """Return the time of an RFC 3339 stamp; ``None`` when it is none."""
    try:
        return datetime.fromisoformat(stamp)
    except ValueError:
        return None


def trace_tree(events: Iterable[Event]) -> Operation:
    """Fold the events of one session to its tree, in one pass."""
    fold = _Fold()
    for event in events:
        fold.take(event)
    return fold.finish()


_StepKey = tuple[str, str | None, int | None]


class _Fold:
    def __init__(self) -> None:
        self.root = Operation("session", "", "")
        self._runs: dict[tuple[str, str | None], Operation] = {}
        self._steps: dict[_StepKey, Operation] = {}
        self._calls: dict[tuple[str, str], Operation] = {}
        self._retries: dict[_StepKey, int] = {}

    def take(self, event: Event) -> None:
        root = self.root
        root.id = event.session_id or root.id
        root.start = root.start or event.ts
        root.end = max(root.end, event.ts)
        if event.trace_id:
            root.facts["trace_id"] = event.trace_id
        if isinstance(event, SessionEvent):
            root.name = event.title or root.name
            return
        if event.run_id is None:
            return
        run = self._run(event)
        run.end = max(run.end, event.ts)
        self._inside(event, run)

    def _inside(self, event: Event, run: Operation) -> None:
        match event:
            case UserMessage():
                if not run.name:
                    run.name = _label(event)
                    self.root.name = self.root.name or run.name
            case Retry():
                key = (event.agent_id, event.run_id, event.step)
                self._retries[key] = self._retries.get(key, 0) + 1
            case ProviderMeta():
                self._request(event, run)
            case ToolCall():
                self._call(event, run)
            case ToolResult():
                self._result(event, run)
            case StateEvent() if event.stop_reason is not None:
                run.status = str(event.stop_reason)
                run.end = event.ts
            case ErrorEvent():
                self._step(event, run).status = "error"
            case Subagent() if event.action == "end":
                run.status = str(event.stop_reason or "ok")
            case Compaction():
                run.facts["compactions"] = run.facts.get("compactions", 0) + 1
            case _:
                pass

    def _run(self, event: Event) -> Operation:
        key = (event.agent_id, event.run_id)
        run = self._runs.get(key)
        if run is not None:
            return run
        run_id = event.run_id or ""
        if event.agent_id == "main":
            run = Operation("run", "", run_id, event.ts, seq=event.seq or 0)
            self.root.children.append(run)
        else:
            name = event.profile if isinstance(event, Subagent) else event.agent_id
            own = f"{run_id}/{event.agent_id}"
            run = Operation("agent", name, own, event.ts, seq=event.seq or 0, agent_id=event.agent_id)
            self._above(event).children.append(run)
        self._runs[key] = run
        return run

    def _above(self, event: Event) -> Operation:
        """Return where a sub-agent belongs: the call that is open in its parent's run, else that run."""
        waiting = [call for call in self._calls.values() if call.agent_id != event.agent_id]
        named = [call for call in waiting if event.parent_id and call.id == event.parent_id]
        if named or waiting:
            return (named or waiting)[-1]
        return self._runs.get(("main", event.run_id)) or (self.root.children or [self.root])[-1]

    def _step(self, event: Event, run: Operation) -> Operation:
        key = (event.agent_id, event.run_id, event.step)
        if event.step is None:
            return run
        step = self._steps.get(key)
        if step is None:
            own = f"{run.id}/{event.step}"
            step = Operation("step", f"step {event.step}", own, event.ts, event.ts, agent_id=event.agent_id)
            step.seq = event.seq or 0
            self._steps[key] = step
            run.children.append(step)
        step.end = max(step.end, event.ts)
        return step

    def _request(self, event: ProviderMeta, run: Operation) -> None:
        step = self._step(event, run)
        begin = _before(event.ts, event.duration_ms)
        request = Operation("model", event.full_model, event.id, begin, event.ts)
        request.seq, request.agent_id = event.seq or 0, event.agent_id
        request.usage, request.cost_usd = event.usage, event.cost_usd or 0.0
        request.cost_known = event.cost_usd is not None
        retries = self._retries.pop((event.agent_id, event.run_id, event.step), 0)
        facts = {
            "provider": event.provider,
            "model": event.model,
            "first_token_ms": event.first_token_ms,
            "attempts": max(event.attempts, retries + 1),
            "stop_reason": event.stop_reason_raw,
            "request_id": event.request_id,
        }
        request.facts = {name: value for name, value in facts.items() if value is not None}
        # Blocks of an answer are stored when it is complete, so the step began with the request.
        step.start = min(step.start, request.start) if step.start else request.start
        step.children.insert(sum(child.kind == "model" for child in step.children), request)

    def _call(self, event: ToolCall, run: Operation) -> None:
        call = Operation(
            "tool", event.tool_name, event.id or event.call_id, event.ts, event.ts, status="open"
        )
        call.seq, call.agent_id = event.seq or 0, event.agent_id
        call.facts = {"call_id": event.call_id}
        self._calls[event.agent_id, event.call_id] = call
        self._step(event, run).children.append(call)

    def _result(self, event: ToolResult, run: Operation) -> None:
        call = self._calls.pop((event.agent_id, event.call_id), None)
        if call is None:
            return
        self._step(event, run)
        # The call stood in line, or waited for an answer, before it ran.
        call.start, call.end = max(call.start, _before(event.ts, event.duration_ms)), event.ts
        call.status = "error" if event.is_error else "ok"
        if event.is_error:
            call.facts["category"] = str(event.category or "unknown")
        if event.exit_code is not None:
            call.facts["exit_code"] = event.exit_code

    def finish(self) -> Operation:
        _sum(self.root)
        return self.root


def _sum(operation: Operation) -> None:
    """Add up what is below."""
    for child in operation.children:
        _sum(child)
        operation.usage += child.usage
        operation.cost_usd += child.cost_usd
        operation.cost_known = operation.cost_known and child.cost_known
        if operation.kind in ("step", "run", "agent", "tool"):
            operation.end = max(operation.end, child.end)


def _label(event: UserMessage) -> str:
    text = " ".join(" ".join(b.text for b in event.content if isinstance(b, TextBlock)).split())
    return text if len(text) <= _LABEL_CHARS else text[: _LABEL_CHARS - 1] + "…"


def _before(stamp: str, milliseconds: float) -> str:
    at = moment(stamp)
    if at is None:
        return stamp
    try:
        earlier = at - timedelta(milliseconds=milliseconds)
    except (OverflowError, ValueError):
        return stamp
    return earlier.isoformat(timespec="milliseconds").replace("+00:00", "Z")
