"""Servers that ask the model: only after a yes, and at the session's cost."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.mcp.world import SDK_SERVER
from tests.support.fakes import Turn, call
from tests.support.minds import Ask, place
from tests.support.waiting import until


@pytest.mark.parametrize("answer", ["Yes", "No"])
async def test_an_answer_for_a_server_is_asked_for_and_counts_in_the_sessions_totals(
    tmp_path: Path, answer: str
) -> None:
    def think(ask: Ask) -> Turn | str:
        if "Say a word" in ask.said:
            return "blue"
        return Turn(calls=[call("mcp__bench__ponder")]) if ask.first else "Done."

    command, file = json.dumps(sys.executable), json.dumps(str(SDK_SERVER))
    server = f"mcp.servers.bench={{command={command}, args=[{file}]}}"
    sets = (server, 'permissions.allow=["mcp__bench__*"]', "mcp.wait_s=30")
    async with place(tmp_path, think, sets=sets, interactive=True) as here:
        bridge = here.runtime.servers.bridge
        assert bridge is not None
        assert await bridge.settle(60) == []
        running = asyncio.create_task(here.run())
        await until(lambda: here.agent.approvals.pending or running.done())
        [request] = here.agent.approvals.pending
        here.agent.answer(request.request_id, "allow", feedback=answer)
        await running
        [result] = here.of("tool_result")
        extra = here.of("provider_meta", agent="mcp")
        assert ("blue" in result.output) is (answer == "Yes")
        assert len(extra) == (1 if answer == "Yes" else 0)
        assert here.session.totals.all.cost_usd == pytest.approx(0.015 * (2 + len(extra)))
