"""Numbers of a session are a fold over its events."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aar.observability.metrics import session_metrics
from aar.protocol.events import ErrorEvent, Event, ProviderMeta, Retry, ToolCall, ToolResult, UserMessage
from aar.protocol.usage import Usage


def meta(step: int, cost: float | None = 0.5, **more: object) -> ProviderMeta:
    given = {"provider": "p", "model": "m", "usage": Usage(input=10, output=2), "duration_ms": 100, **more}
    return ProviderMeta.model_validate({"run_id": "r", "step": step, "cost_usd": cost, **given})


def call(step: int, call_id: str, name: str = "bash", agent: str = "main") -> ToolCall:
    return ToolCall(run_id="r", step=step, call_id=call_id, tool_name=name, agent_id=agent)


def result(step: int, call_id: str, category: str | None = None) -> ToolResult:
    return ToolResult(
        run_id="r", step=step, call_id=call_id, tool_name="bash", output="", duration_ms=7,
        is_error=category is not None, category=category,
    )  # fmt: skip


SESSION: list[Event] = [
    UserMessage(content=()),
    call(1, "a"),
    call(1, "b", "grep"),
    meta(1, first_token_ms=20, attempts=2),
    result(1, "a"),
    result(1, "b", "not_found"),
    Retry(run_id="r", step=2, attempt=1, delay_s=1, error_kind="network", message="x"),
    call(2, "c"),
    meta(2, None),
    result(2, "c", "not_found"),
    ErrorEvent(kind="timeout", message="x"),
    meta(1, 2.0, agent_id="child"),
]


def test_steps_calls_times_costs_and_failures_add_up() -> None:
    found = session_metrics(SESSION)
    assert (found.steps, found.tool_calls, found.errors, found.retries) == (2, 3, 1, 1)
    assert found.usage == Usage(input=20, output=4)
    assert (found.cost_usd, found.unpriced_requests) == (0.5, 1)
    assert (found.provider_ms, found.tool_ms) == (200, 21)
    assert found.tools == {"bash": 2, "grep": 1}
    assert found.tool_failures == {"not_found": 2}
    assert found.errors_by_kind == {"timeout": 1}
    first, second = found.by_step
    assert (first.step, first.model, first.attempts, first.first_token_ms) == (1, "p/m", 2, 20)
    assert (first.tool_calls, first.tool_errors, first.tool_ms, first.cost_usd) == (2, 1, 14, 0.5)
    assert (second.step, second.cost_usd, second.tool_errors) == (2, None, 1)


def test_other_agents_count_on_their_own_and_all_together() -> None:
    assert session_metrics(SESSION, "child").cost_usd == 2.0
    everybody = session_metrics(SESSION, None)
    assert (everybody.steps, everybody.cost_usd) == (3, 2.5)
    assert [row.agent_id for row in everybody.by_step] == ["main", "main", "child"]


def test_an_unknown_price_is_not_free() -> None:
    assert session_metrics([meta(1, None)]).cost_usd is None
    assert session_metrics([meta(1, 0.0)]).cost_usd == 0.0
    assert session_metrics([]).cost_usd == 0.0


def test_the_numbers_are_plain_json() -> None:
    plain = json.loads(json.dumps(session_metrics(SESSION).to_dict()))
    assert plain["usage"]["total"] == 24
    assert plain["by_step"][0]["usage"]["input"] == 10
    assert plain["by_step"][1]["cost_usd"] is None


@given(st.lists(st.sampled_from(SESSION)), st.lists(st.sampled_from(SESSION)))
def test_two_halves_of_a_session_add_up_to_the_whole(one: list[Event], two: list[Event]) -> None:
    first, second, whole = session_metrics(one), session_metrics(two), session_metrics(one + two)
    assert whole.steps == first.steps + second.steps
    assert whole.tool_calls == first.tool_calls + second.tool_calls
    assert whole.usage == first.usage + second.usage
    assert whole.tool_ms == first.tool_ms + second.tool_ms
    assert sum(row.tool_calls for row in whole.by_step) == whole.tool_calls
    assert sum(row.provider_ms for row in whole.by_step) == pytest.approx(whole.provider_ms)
