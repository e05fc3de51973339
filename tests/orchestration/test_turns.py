"""Agents that wait for their turn are seen, come in order, and can be stopped."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aar.orchestration.turns import NotBegunError, Turns
from aar.protocol.state import StopReason
from tests.support.fakes import Turn, call
from tests.support.minds import Ask, place
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("clean_environment")


async def test_places_are_given_in_order_and_none_is_lost_when_somebody_leaves() -> None:
    turns, done = Turns(1), list[str]()
    gate = asyncio.Event()

    async def work(name: str) -> None:
        async with turns.turn(name):
            await gate.wait()
            done.append(name)

    tasks = {name: asyncio.create_task(work(name)) for name in "abcde"}
    await until(lambda: turns.ahead_of("e") == 3)
    assert turns.ahead_of("a") is None
    assert turns.send_away("b")
    assert not turns.send_away("a")
    tasks["d"].cancel()
    gate.set()
    ended = await asyncio.gather(*tasks.values(), return_exceptions=True)
    assert done == ["a", "c", "e"]
    assert [type(item) for item in ended][1::2] == [NotBegunError, asyncio.CancelledError]
    async with asyncio.timeout(60), turns.turn("f"):
        assert turns.ahead_of("f") is None


async def test_a_waiting_agent_is_listed_as_such_and_can_be_stopped(tmp_path: Path) -> None:
    gate = asyncio.Event()

    def think(ask: Ask) -> Turn | str:
        if "You work for another agent" in ask.system:
            return Turn("report", gate=gate)
        calls = [call("task", prompt=f"job {n}", agent="explore") for n in range(3)]
        return Turn(calls=calls) if ask.first else "Done."

    async with place(tmp_path, think, sets=("agents.parallel=1",)) as here:
        running = asyncio.create_task(here.run())
        team = here.runtime.extras.team(here.session)
        await until(lambda: len(here.mind.asked) == 2 and len(team.working) == 3)
        states = {team.state(child): child.agent_id for child in team.children.values()}
        assert list(states) == ["works", "waits, the next", "waits, 1 before it"]
        assert [event.queued for event in here.of("subagent")] == [None, 0, 1]
        assert team.cancel(states["waits, the next"])
        gate.set()
        assert (await running).stop_reason is StopReason.END_TURN
        outputs = [event.output for event in here.of("tool_result", agent="main")]
        assert ["report" in output for output in outputs] == [True, False, True]
        assert "stopped before its turn came" in outputs[1]
        assert team.working == []
