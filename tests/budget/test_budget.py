"""Budgets over runs: the strictest limit wins, totals survive, and the way on is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aar.config.schema import BudgetConfig
from aar.core.budget import Budget
from aar.core.session import Session
from aar.memory.memory_store import MemoryStore
from aar.memory.spending import SpendingLedger
from aar.protocol.errors import UsageError
from aar.protocol.usage import Price, Usage
from tests.support.fakes import Turn, World, call

DOLLAR = Usage(input=1_000_000)
PRICE = Price(input=1.0, output=1.0)
"""With it, each answer of `dear` costs a dollar."""


def dear(count: int) -> list[Turn]:
    steps = [Turn(f"Step {i}.", [call("read_file", path=f"no-{i}")], usage=DOLLAR) for i in range(count)]
    return [*steps, Turn("Done.", usage=DOLLAR)]


def world_with(root: Path, turns: list[Turn], budget: dict[str, float], **more: Any) -> World:
    price: Any = more.pop("price", PRICE)
    ledger = more.pop("ledger", None)
    world = World(root, turns, price=price, **more)
    world.agent.budget = Budget(BudgetConfig(**budget), lambda: world.session.totals.cost_usd, ledger)
    return world


def warnings(world: World) -> list[str]:
    return [notice.message for notice in world.of("notice") if notice.code == "budget_warning"]


async def test_a_session_stops_at_its_budget_over_runs_with_an_offer(tmp_path: Path) -> None:
    world = world_with(tmp_path / "p", dear(1), {"session_usd": 5})
    assert (await world.run()).stop_reason == "end_turn"
    world.provider.requests.clear()
    world.provider.turns = dear(20)
    result = await world.run()
    assert (result.stop_reason, result.exit_code) == ("budget", 5)
    assert world.session.totals.cost_usd == 5
    told = warnings(world)
    assert len(told) == 2
    assert "used $4.00 of its budget of $5.00" in told[0]
    assert told[1].endswith("stops here.")


async def test_a_spent_budget_lets_no_request_out_until_it_is_raised(tmp_path: Path) -> None:
    world = world_with(tmp_path / "p", dear(9), {"session_usd": 2})
    await world.run()
    asked = len(world.provider.requests)
    result = await world.run()
    assert (result.stop_reason, result.steps) == ("budget", 0)
    assert len(world.provider.requests) == asked
    assert world.agent.budget is not None
    world.agent.budget.set_limit("session", 5)
    world.provider.turns = [Turn("Done.", usage=DOLLAR)]
    assert (await world.run()).stop_reason == "end_turn"
    world.agent.budget.set_limit("session", 0)
    assert not world.agent.budget.exhausted
    for amount in (-1, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="amount of US dollars"):
            world.agent.budget.set_limit("session", amount)


async def test_a_resumed_session_remembers_what_it_cost(tmp_path: Path) -> None:
    store = MemoryStore()
    first = world_with(tmp_path / "p", dear(2), {"session_usd": 4}, store=store)
    await first.run()
    first.session.close()
    again = Session.resume(store, first.session.session_id)
    assert again.totals.cost_usd == 3
    second = world_with(tmp_path / "p", dear(9), {"session_usd": 4}, store=store, session=again)
    result = await second.run()
    assert (result.stop_reason, second.session.totals.cost_usd) == ("budget", 4)


async def test_the_day_counts_over_sessions_and_processes(tmp_path: Path) -> None:
    ledger = SpendingLedger(tmp_path / "spending")
    for number in range(2):
        world = world_with(
            tmp_path / "p", dear(1), {"day_usd": 6}, ledger=SpendingLedger(tmp_path / "spending")
        )
        assert (await world.run()).stop_reason == "end_turn", number
    assert ledger.today() == pytest.approx(4)
    world = world_with(tmp_path / "p", dear(9), {"day_usd": 6, "session_usd": 100}, ledger=ledger)
    result = await world.run()
    assert result.stop_reason == "budget"
    assert ledger.today() == pytest.approx(6)
    assert any("Today's work has used $6.00" in text for text in warnings(world))


@pytest.mark.parametrize(
    ("limits", "budget", "spent"),
    [({"usd": 2}, {"session_usd": 9, "day_usd": 9}, 2), ({"usd": 9}, {"session_usd": 3}, 3),
     ({"usd": 9}, {"session_usd": 9, "day_usd": 4}, 4)],
)  # fmt: skip
async def test_the_strictest_limit_wins(
    tmp_path: Path, limits: dict[str, Any], budget: dict[str, float], spent: float
) -> None:
    world = world_with(tmp_path / "p", dear(20), budget, limits=limits)
    result = await world.run()
    assert (result.stop_reason, result.cost_usd) == ("budget", spent)


async def test_something_is_kept_back_for_a_last_answer_without_tools(tmp_path: Path) -> None:
    world = world_with(tmp_path / "p", dear(20), {"session_usd": 3.3})
    result = await world.run()
    assert result.cost_usd == 4
    assert [bool(request.tools) for request in world.provider.requests] == [True, True, True, False]


async def test_an_unknown_price_is_told_once_and_a_local_model_costs_nothing(tmp_path: Path) -> None:
    unknown = world_with(tmp_path / "a", dear(3), {"session_usd": 1}, price=None)
    assert (await unknown.run()).stop_reason == "end_turn"
    assert [text for text in warnings(unknown) if "price of this model is not known" in text] == warnings(
        unknown
    )
    assert len(warnings(unknown)) == 1
    local = world_with(tmp_path / "b", dear(3), {"session_usd": 1}, price=Price(input=0, output=0))
    result = await local.run()
    assert (result.stop_reason, result.cost_usd) == ("end_turn", 0)
    assert (local.session.totals.cost_known, warnings(local)) == (True, [])


async def test_costs_are_told_by_run_agent_and_model_with_what_the_cache_spared(tmp_path: Path) -> None:
    price = Price(input=1.0, output=1.0, cache_read=0.1, cache_write=1.25)
    usage = Usage(input=1_000_000, cache_read=2_000_000, cache_write=400_000)
    world = world_with(tmp_path / "p", [Turn("Done.", usage=usage)], {}, price=price)
    result = await world.run()
    meta = world.of("provider_meta")[0]
    assert meta.cost_usd == pytest.approx(1 + 0.2 + 0.5)
    assert meta.cache_saved_usd == pytest.approx(2 * 0.9 - 0.4 * 0.25)
    totals = world.session.totals
    assert totals.all.cache_saved_usd == pytest.approx(1.7)
    for part in (totals.runs[result.run_id], totals.agents["main"], totals.models["told/m"]):
        assert part.cost_usd == pytest.approx(1.7)


def test_lines_tell_what_is_left(tmp_path: Path) -> None:
    budget = Budget(BudgetConfig(session_usd=2), lambda: 0.5, SpendingLedger(tmp_path))
    budget.count(0.25)
    session, day = budget.lines()
    assert (session.spent, session.limit, session.left) == (0.5, 2, 1.5)
    assert (day.span, day.spent, day.limit, day.left) == ("day", 0.25, 0, None)
