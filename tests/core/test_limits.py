"""Limits of a run, and its ends: steps, time, tokens, money, stop."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from aar.config.schema import GuardrailsConfig, LimitsConfig
from aar.core.limits import RunLimits
from aar.protocol.tool import ToolOutcome
from aar.protocol.usage import Price, Usage
from tests.support.fakes import Turn, World, call, done, no_tasks_left, tool
from tests.support.waiting import until


def look(number: int = 0) -> Turn:
    return Turn(f"Step {number}.", [call("list_directory", path=".")])


def looks(count: int) -> list[Turn]:
    """Steps that do not repeat themselves."""
    return [Turn(f"Step {i}.", [call("read_file", path=f"no-{i}")]) for i in range(count)]


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
async def test_max_steps_is_the_number_of_requests_the_last_without_tools(tmp_path: Path, steps: int) -> None:
    world = World(tmp_path, [*looks(steps - 1 or 1), "Where things stand."], limits={"steps": steps})
    result = await world.run()
    assert (result.stop_reason, result.exit_code, result.steps) == ("max_steps", 5, steps)
    assert len(world.provider.requests) == steps
    if steps > 1:
        assert [bool(request.tools) for request in world.provider.requests] == [True] * (steps - 1) + [False]
        assert result.text == "Where things stand."
    assert str(world.of("state")[-1].state) == "max_steps"


async def test_recoveries_count_as_steps(tmp_path: Path) -> None:
    world = World(tmp_path, [""], limits={"steps": 2})
    assert (await world.run()).stop_reason == "max_steps"
    assert len(world.provider.requests) == 2


async def test_steps_are_counted_for_a_run_not_for_a_session(tmp_path: Path) -> None:
    world = World(tmp_path, [look(), "One.", look(), "Two."], limits={"steps": 3})
    assert (await world.run()).stop_reason == "end_turn"
    second = await world.run()
    assert (second.stop_reason, second.steps, second.text) == ("end_turn", 2, "Two.")


async def test_a_last_answer_that_calls_tools_all_the_same_runs_none(tmp_path: Path) -> None:
    turns = [*looks(1), Turn(calls=[call("write_file", path="late", content="x")])]
    world = World(tmp_path, turns, limits={"steps": 2})
    assert (await world.run()).stop_reason == "max_steps"
    assert [item.category for item in world.results] == ["not_found", "blocked"]
    assert not (tmp_path / "late").exists()


async def test_tokens_keep_a_reserve_for_the_last_answer(tmp_path: Path) -> None:
    turns = [Turn(turn.text, turn.calls, usage=Usage(input=300, output=100)) for turn in looks(20)]
    world = World(tmp_path, turns, limits={"tokens": 2000}, guardrails={"reserve_tokens": 500})
    result = await world.run()
    assert (result.stop_reason, result.exit_code) == ("budget", 5)
    # 4 × 400 ≥ 2000 - 500: the fifth is the last answer.
    assert [bool(request.tools) for request in world.provider.requests] == [True] * 4 + [False]
    assert result.usage.total == 2000


async def test_no_last_answer_when_nothing_is_left_for_it(tmp_path: Path) -> None:
    turns = [Turn(turn.text, turn.calls, usage=Usage(input=5000)) for turn in looks(5)]
    world = World(tmp_path, turns, limits={"tokens": 2000})
    assert (await world.run()).stop_reason == "budget"
    assert len(world.provider.requests) == 1


async def test_money_keeps_a_reserve_for_the_last_answer(tmp_path: Path) -> None:
    turns = [Turn(turn.text, turn.calls, usage=Usage(output=125_000)) for turn in looks(20)]
    world = World(
        tmp_path,
        turns,
        limits={"usd": 1.0},
        guardrails={"reserve_cost_fraction": 0.25},
        price=Price(input=0, output=1.0),
    )
    result = await world.run()
    assert result.stop_reason == "budget"
    assert result.cost_usd == pytest.approx(0.875)
    assert [bool(request.tools) for request in world.provider.requests] == [True] * 6 + [False]


async def test_each_limit_warns_once(tmp_path: Path) -> None:
    turns = [Turn(turn.text, turn.calls, usage=Usage(output=50_000)) for turn in looks(20)]
    world = World(tmp_path, turns, limits={"usd": 1.0, "steps": 20}, price=Price(input=0, output=1.0))
    assert (await world.run()).stop_reason == "budget"
    warnings = [event.message for event in world.of("notice") if event.code == "budget_warning"]
    assert len(warnings) == 2
    assert "16 of 20 steps" in warnings[0]
    assert "$0.80 of $1.00" in warnings[1]


async def test_an_unknown_price_is_told_and_never_counts_as_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, [*looks(3), "Done."], limits={"usd": 1.0})
    result = await world.run()
    assert (result.stop_reason, result.cost_usd) == ("end_turn", None)
    assert {event.cost_usd for event in world.of("provider_meta")} == {None}
    assert len([event for event in world.of("notice") if "price" in event.message]) == 1


async def test_time_interrupts_a_model_that_hangs(tmp_path: Path) -> None:
    world = World(tmp_path, [Turn("I was saying", hang=True)], limits={"seconds": 0.8})
    began = time.monotonic()
    result = await world.run()
    assert (result.stop_reason, result.exit_code) == ("timeout", 5)
    assert time.monotonic() - began < 30
    assert world.of("assistant_message")[0].partial
    assert world.finished_chunks == 1
    assert str(world.of("state")[-1].state) == "timed_out"
    assert no_tasks_left() == []


async def test_time_interrupts_a_tool_that_hangs(tmp_path: Path) -> None:
    async def hang(_arguments: Any, _context: Any) -> ToolOutcome:
        await asyncio.Event().wait()
        return done()

    world = World(tmp_path, [Turn(calls=[call("hang")])], tools=[tool("hang", hang)], limits={"seconds": 0.8})
    assert (await world.run()).stop_reason == "timeout"
    assert [item.category for item in world.results] == ["cancelled"]
    assert no_tasks_left() == []


async def test_a_time_limit_of_a_tool_is_not_the_runs(tmp_path: Path) -> None:
    async def late(_arguments: Any, _context: Any) -> ToolOutcome:
        raise TimeoutError("the server did not answer")

    world = World(
        tmp_path, [Turn(calls=[call("late")]), "Done."], tools=[tool("late", late)], limits={"seconds": 30}
    )
    assert (await world.run()).stop_reason == "end_turn"


def test_near_the_deadline_time_is_kept_for_the_last_answer() -> None:
    now = 0.0
    limits = RunLimits(LimitsConfig(seconds=100), GuardrailsConfig(), clock=lambda: now)
    limits.steps = 1
    now = 89.0
    assert limits.reached() is None
    assert limits.warnings() == ["This run has used 89 of 100 seconds."]
    assert limits.warnings() == []
    now = 91.0
    assert limits.reached() == "timeout"
    assert not limits.exhausted
    now = 100.0
    assert limits.exhausted


async def test_stop_gives_one_last_answer_without_tools(tmp_path: Path) -> None:
    gate = asyncio.Event()
    first = Turn("Step.", [call("list_directory", path=".")], gate=gate)
    world = World(tmp_path, [first, "Summed up."])
    run = world.start()
    await until(lambda: world.provider.requests)
    world.agent.stop()
    gate.set()
    result = await run
    assert (result.stop_reason, result.exit_code, result.text) == ("stopped", 0, "Summed up.")
    assert [bool(request.tools) for request in world.provider.requests] == [True, False]
    assert [item.category for item in world.results] == [None]


async def test_stop_before_the_first_request_is_not_lost(tmp_path: Path) -> None:
    world = World(tmp_path, ["Nothing done yet."])
    run = world.start()
    await asyncio.sleep(0)
    world.agent.stop()
    result = await run
    assert (result.stop_reason, result.text) == ("stopped", "Nothing done yet.")
    assert not world.provider.requests[0].tools
    assert (await world.run()).stop_reason == "end_turn"


async def test_stop_outside_of_a_run_stops_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, ["Hello."])
    world.agent.stop()
    world.agent.cancel()
    assert (await world.run()).stop_reason == "end_turn"
