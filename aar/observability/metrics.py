"""Numbers of a session, folded from its events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from aar.protocol.events import ErrorEvent, Event, ProviderMeta, Retry, ToolCall, ToolResult
from aar.protocol.usage import Usage


@dataclass(slots=True)
class StepMetrics:
    """One model request with its tool calls. Times in milliseconds.

    Attributes:
        run_id: The run it belongs to.
        step: Its number in the run, from 1.
        agent_id: Who asked.
        model: Who answered, ``provider/model``; the last one when more than one request was made.
        usage: Tokens.
        cost_usd: ``None`` when the price of a request is not known.
        provider_ms: From request to the end of the answer.
        first_token_ms: From request to the first piece.
        attempts: Requests sent, failed ones included.
        tool_calls: Calls that the model asked for.
        tool_errors: Calls whose result is an error.
        tool_ms: Time in tools, calls side by side counted each.
    """

    run_id: str | None
    step: int | None
    agent_id: str
    model: str = ""
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    provider_ms: float = 0.0
    first_token_ms: float | None = None
    attempts: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    tool_ms: float = 0.0


@dataclass(slots=True)
class SessionMetrics:
    """A session in numbers. Times in milliseconds.

    Attributes:
        steps: Model requests that were answered.
        tool_calls: Calls that the models asked for.
        errors: Error events.
        retries: Requests that were sent again.
        usage: Tokens in all.
        cost_usd: Sum of the known costs; ``None`` when there were requests and no price is known.
        unpriced_requests: Requests whose price is not known; ``cost_usd`` is without them.
        provider_ms: Waiting for models.
        tool_ms: Time in tools, calls side by side counted each.
        tools: Calls by tool name.
        tool_failures: Failed calls by category.
        errors_by_kind: Error events by kind.
        by_step: Each step in order.
    """

    steps: int = 0
    tool_calls: int = 0
    errors: int = 0
    retries: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    unpriced_requests: int = 0
    provider_ms: float = 0.0
    tool_ms: float = 0.0
    tools: dict[str, int] = field(default_factory=dict[str, int])
    tool_failures: dict[str, int] = field(default_factory=dict[str, int])
    errors_by_kind: dict[str, int] = field(default_factory=dict[str, int])
    by_step: list[StepMetrics] = field(default_factory=list[StepMetrics])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        plain = asdict(self)
        plain["usage"] = _plain(self.usage)
        for step, row in zip(self.by_step, plain["by_step"], strict=True):
            row["usage"] = _plain(step.usage)
        return plain


def _plain(usage: Usage) -> dict[str, Any]:
    return {**usage.model_dump(), "total": usage.total}


def session_metrics(events: Iterable[Event], agent_id: str | None = "main") -> SessionMetrics:
    """Fold events into numbers, in one pass.

    Args:
        events: Of one session, in order.
        agent_id: Whose events count; ``None``: those of all agents, as for the session's whole cost.
    """
    fold = _Fold()
    for event in events:
        if agent_id is None or event.agent_id == agent_id:
            fold.add(event)
    return fold.finish()


class _Fold:
    def __init__(self) -> None:
        self.metrics = SessionMetrics()
        self.rows: dict[tuple[str | None, int | None, str], StepMetrics] = {}
        self.priced = 0

    def add(self, event: Event) -> None:
        if isinstance(event, ProviderMeta):
            self._request(event)
        elif isinstance(event, ToolCall):
            self.metrics.tool_calls += 1
            self._row(event).tool_calls += 1
            _count(self.metrics.tools, event.tool_name)
        elif isinstance(event, ToolResult):
            self._result(event)
        elif isinstance(event, Retry):
            self.metrics.retries += 1
        elif isinstance(event, ErrorEvent):
            self.metrics.errors += 1
            _count(self.metrics.errors_by_kind, str(event.kind))

    def _row(self, event: Event) -> StepMetrics:
        key = (event.run_id, event.step, event.agent_id)
        if key not in self.rows:
            self.rows[key] = StepMetrics(*key)
        return self.rows[key]

    def _request(self, event: ProviderMeta) -> None:
        total, row = self.metrics, self._row(event)
        total.steps += 1
        total.usage += event.usage
        total.provider_ms += event.duration_ms
        row.model = event.full_model
        row.usage += event.usage
        row.provider_ms += event.duration_ms
        row.first_token_ms = event.first_token_ms
        row.attempts += event.attempts
        if event.cost_usd is None:
            total.unpriced_requests += 1
            row.cost_usd = None
            return
        self.priced += 1
        total.cost_usd = (total.cost_usd or 0.0) + event.cost_usd
        row.cost_usd = None if row.cost_usd is None else row.cost_usd + event.cost_usd

    def _result(self, event: ToolResult) -> None:
        row = self._row(event)
        self.metrics.tool_ms += event.duration_ms
        row.tool_ms += event.duration_ms
        if event.is_error:
            row.tool_errors += 1
            _count(self.metrics.tool_failures, str(event.category or "unknown"))

    def finish(self) -> SessionMetrics:
        if self.metrics.unpriced_requests and not self.priced:
            self.metrics.cost_usd = None
        self.metrics.by_step = list(self.rows.values())
        return self.metrics


def _count(table: dict[str, int], key: str) -> None:
    table[key] = table.get(key, 0) + 1
