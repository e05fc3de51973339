"""Steps of a session one by one, and what they point out."""

from __future__ import annotations

from typing import Any

import pytest

from aar.core.timeline import hints, timeline
from aar.protocol.events import (
    Approval,
    ApprovalRequest,
    AssistantMessage,
    Event,
    ProviderMeta,
    ToolCall,
    ToolResult,
)
from aar.protocol.usage import Usage


def step(number: int, *results: ToolResult, ms: float = 1000, run: str = "R", **more: Any) -> list[Event]:
    place: dict[str, Any] = {"run_id": run, "step": number, **more}
    return [
        AssistantMessage(content="I look.", **place),
        *(ToolCall(call_id=r.call_id, tool_name=r.tool_name, **place) for r in results),
        ProviderMeta(provider="p", model="m", usage=Usage(input=9, output=2), duration_ms=ms, **place),
        *(result.model_copy(update=place) for result in results),
    ]


def result(
    call_id: str, category: str | None = None, *, ms: float = 10, code: int | None = None
) -> ToolResult:
    bad = category is not None or bool(code)
    return ToolResult(call_id=call_id, tool_name="edit_file", output="", is_error=bad, category=category,
                      duration_ms=ms, exit_code=code)  # fmt: skip


def numbered(*groups: list[Event]) -> list[Event]:
    events = [event for group in groups for event in group]
    return [event.model_copy(update={"seq": seq}) for seq, event in enumerate(events, 1)]


def test_steps_are_counted_over_runs_with_times_and_calls() -> None:
    left = AssistantMessage(content="cut off", partial=True, run_id="R", step=2)
    events = numbered(
        step(1, result("a"), result("b", "not_found")), [left], step(1, run="S"), step(1, agent_id="sub-1")
    )
    first, second = timeline(events)
    assert (first.number, first.step, second.number, second.run_id) == (1, 1, 2, "S")
    assert (first.first_seq, first.last_seq, second.first_seq) == (1, 4, 8)
    assert [call.words for call in first.calls.values()] == ["edit_file", "edit_file (not_found)"]
    assert (first.model_ms, first.tool_ms, first.total_ms) == (1000, 20, 1020)
    assert len(timeline(events, "sub-1")) == 1
    assert first.to_dict()["calls"][1] == {"call_id": "b", "name": "edit_file", "duration_ms": 10.0,
                                           "category": "not_found"}  # fmt: skip


def test_waiting_for_an_answer_is_told_apart() -> None:
    asked = ApprovalRequest(request_id="q", call_id="a", tool_name="edit_file", arguments={},
                            ts="2026-01-01T00:00:00Z")  # fmt: skip
    said = Approval(request_id="q", call_id="a", decision="allow", by="user", ts="2026-01-01T00:01:00Z")
    (only,) = timeline(numbered(step(1, result("a")), [asked, said]))
    assert only.waited_ms == 60_000
    assert hints([only]) == []


@pytest.mark.parametrize(("bad", "told"), [(1, False), (2, True)])
def test_more_than_a_fifth_of_failed_calls_are_pointed_out(bad: int, told: bool) -> None:
    results = [result(str(n), "stale_file" if n < bad else None) for n in range(5)]
    found = hints(timeline(numbered(step(1, *results))))
    assert found == ([f"{bad} of 5 tool calls failed (edit_file: stale_file {bad}×)."] if told else [])


def test_few_calls_and_commands_that_end_with_a_code_are_no_hint() -> None:
    assert hints(timeline(numbered(step(1, result("a", "not_found"))))) == []
    assert hints(timeline(numbered(step(1, *(result(str(n), code=1) for n in range(9)))))) == []


def test_a_slow_step_is_pointed_out_with_what_took_so_long() -> None:
    steps = timeline(numbered(step(1, ms=29_000), step(2, result("a", ms=40_000), ms=5_000)))
    assert hints(steps) == [
        "1 of 2 steps took more than 30 s; the longest 45 s: 5 s in the model, 40 s in tools (longest: edit_file)."
    ]
    assert hints(steps[:1]) == []
    quick_tool = timeline(numbered(step(1, result("a", ms=3), ms=98_000)))
    assert hints(quick_tool) == ["The step took 98 s: 98 s in the model."]
