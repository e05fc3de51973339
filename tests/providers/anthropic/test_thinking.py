"""Reasoning levels: what each model is told, and what is left out beside it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aar.protocol.messages import ReasoningBlock, ToolResultBlock, ToolUseBlock
from aar.providers.anthropic.thinking import plan_thinking
from aar.providers.catalog import claude_traits
from tests.providers.anthropic.support import (
    READ,
    answer,
    ask,
    assistant,
    message,
    provider_at,
    say,
    stream_of,
    user,
)
from tests.support.model_server import Reply

OK = Reply(body=stream_of(message({"type": "text", "text": "ok"})), content_type="text/event-stream")
SHOWN = {"type": "adaptive", "display": "summarized"}


def plan(model: str, level: str | int | None, asked: int | None = None) -> tuple[Any, Any]:
    traits = claude_traits(model)
    made = plan_thinking(level, traits, asked_tokens=asked, limit=traits.output_limit)
    return made.thinking, made.effort


@pytest.mark.parametrize(
    ("model", "level", "thinking", "effort"),
    [
        ("claude-3-5-haiku-20241022", "max", None, None),
        ("claude-3-opus-20240229", "high", None, None),
        ("claude-3-7-sonnet-20250219", "low", {"type": "enabled", "budget_tokens": 4000}, None),
        ("claude-sonnet-4-5-20250929", "minimal", {"type": "enabled", "budget_tokens": 1024}, None),
        ("claude-haiku-4-5", "medium", {"type": "enabled", "budget_tokens": 10000}, None),
        (
            "us.anthropic.claude-opus-4-1-20250805-v1:0",
            "high",
            {"type": "enabled", "budget_tokens": 20000},
            None,
        ),
        ("claude-opus-4@20250514", "max", {"type": "enabled", "budget_tokens": 27904}, None),
        ("claude-sonnet-4-5", 500, {"type": "enabled", "budget_tokens": 1024}, None),
        ("claude-sonnet-4-5", "off", None, None),
        ("claude-sonnet-4-5", 0, None, None),
        ("claude-sonnet-4-5", None, None, None),
        ("claude-opus-4-6", "minimal", {"type": "adaptive"}, "low"),
        ("claude-sonnet-4-6", "max", {"type": "adaptive"}, "max"),
        ("claude-sonnet-4-6", 9000, {"type": "enabled", "budget_tokens": 9000}, None),
        ("claude-sonnet-4-6", None, None, None),
        ("claude-opus-4-7", "medium", SHOWN, "medium"),
        ("claude-opus-4-8", 9000, SHOWN, "medium"),
        ("claude-opus-4-8", 90000, SHOWN, "max"),
        ("claude-opus-4-8", "off", None, None),
        ("claude-sonnet-5", None, SHOWN, None),
        ("claude-haiku-5-5", "off", {"type": "disabled"}, None),
        ("claude-fable-5-1", "off", SHOWN, "low"),
        ("claude-mythos-preview", "high", SHOWN, "high"),
        ("kimi-k3", "high", None, None),
    ],
)
def test_a_level_is_told_as_each_model_takes_it(model: str, level: Any, thinking: Any, effort: Any):
    asked = 1500 if model == "kimi-k3" else None
    assert plan(model, level, asked) == (thinking, effort)


@given(
    model=st.sampled_from(
        ["claude-3-7-sonnet", "claude-opus-4-0", "claude-sonnet-4-6", "claude-opus-5", "x"]
    ),
    level=st.one_of(st.sampled_from(["off", "minimal", "low", "high", "max", None]), st.integers(0, 10**7)),
    asked=st.one_of(st.none(), st.integers(1, 10**7)),
)
def test_an_answer_is_always_limited_and_has_room_beside_its_thinking(model: str, level: Any, asked: Any):
    traits = claude_traits(model)
    made = plan_thinking(level, traits, asked_tokens=asked, limit=traits.output_limit)
    assert 1 <= made.max_tokens <= min(asked or 10**7, traits.output_limit)
    budget = (made.thinking or {}).get("budget_tokens")
    assert budget is None or 1024 <= budget < made.max_tokens


def conversation(*thinking: ReasoningBlock) -> list[Any]:
    used = ToolUseBlock(call_id="toolu_1", name="read")
    return [
        user(say("a")),
        assistant(*thinking, used),
        user(ToolResultBlock(call_id="toolu_1", name="read", output="x")),
    ]


async def test_no_budget_is_asked_for_while_results_go_back_to_an_answer_that_did_not_think():
    foreign = ReasoningBlock(text="theirs", data='{"server":"api.example"}')
    for thinking, expected in (((foreign,), False), ((ReasoningBlock(text="x", signature="s"),), True)):
        request = ask(*conversation(*thinking), reasoning="high", tools=(READ,))
        _, _, server = await answer(OK, request)
        assert ("thinking" in server.requests[0].body) == expected
    _, _, server = await answer(OK, ask(*conversation(), user(say("new")), reasoning="high"))
    assert "thinking" not in server.requests[0].body
    answered = [*conversation(), assistant(say("done")), user(say("new"))]
    _, _, server = await answer(OK, ask(*answered, reasoning="high"))
    assert "thinking" in server.requests[0].body


async def test_a_temperature_is_left_out_beside_thinking_and_where_the_wire_has_none():
    for model, level, expected in (
        ("claude-sonnet-4-5", None, 0.5),
        ("claude-sonnet-4-5", "high", None),
        ("claude-opus-4-8", None, None),
        ("another", None, 0.5),
    ):
        _, _, server = await answer(OK, ask(model=model, reasoning=level, temperature=0.5))
        assert server.requests[0].body.get("temperature") == expected
    home = provider_at("https://api.anthropic.com")
    request = ask(temperature=0.5)
    assert "temperature" not in home._fields(request, home._plan(request))


async def test_thinking_between_tool_calls_is_asked_for_by_name_where_it_has_a_budget():
    headers = {"anthropic-beta": "mine-2026"}
    for model, tools, expected in (
        ("claude-sonnet-4-5", (READ,), "mine-2026,interleaved-thinking-2025-05-14"),
        ("claude-sonnet-4-5", (), "mine-2026"),
        ("claude-opus-5", (READ,), "mine-2026"),
    ):
        request = ask(model=model, tools=tools, reasoning="high")
        _, _, server = await answer(OK, request, providers={"anthropic": {"headers": headers}})
        assert server.requests[0].headers["anthropic-beta"] == expected
