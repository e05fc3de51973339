"""A server of the SDK on stdio, through the bridge: tools, results, questions, its life and its end."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from aar.protocol.errors import McpError, ToolFailure
from aar.protocol.messages import ResourceBlock, TextBlock
from aar.protocol.tool import SideEffect
from tests.mcp.world import odd, opened, sdk
from tests.support.waiting import until


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_server_gives_its_tools_resources_prompts_and_results_and_outlives_a_cancelled_call(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path / "ws", {"bench": sdk()}) as world:
        assert await world.bridge.settle(60) == []
        names = [spec.name for spec in world.bridge.offered()]
        assert "mcp__bench__add" in names
        assert "mcp_read_resource" in names
        assert "mcp_search" not in names

        result = await world.call("mcp__bench__add", a=2, b=3)
        assert '"total": 5' in result.output
        image = await world.call("mcp__bench__picture")
        assert image.images[0].media_type == "image/png"

        slow = await world.call("mcp__bench__slow", seconds=0.3)
        assert slow.output == "finished"
        assert any("step 2" in text for text in world.progress)

        world.answers = ["blue"]
        assert (await world.call("mcp__bench__wish")).output == "accept blue"
        assert "Which colour?" in world.asked[0]
        assert (await world.call("mcp__bench__wish")).output == "decline None"

        content, problems = await world.bridge.expand_mentions(
            [TextBlock(text="Read @bench:note://greeting")]
        )
        assert problems == []
        assert world.bridge.resources() == ["bench:note://greeting"]
        assert isinstance(content[0], ResourceBlock)
        assert "Hello from the server" in content[0].text
        assert [name for name, _ in world.bridge.prompts()] == ["bench"]
        assert "Review a.py" in await world.bridge.prompt("bench", "review", {"path": "a.py"})

        status = world.bridge.status()[0]
        assert (status.state, status.resources, status.prompts) == ("ready", 1, 1)
        assert status.server.startswith("bench")

        with pytest.raises(ToolFailure, match="a: 'x' is not of type 'integer'"):
            await world.call("mcp__bench__add", a="x", b=1)

        world.progress.clear()
        call = asyncio.create_task(world.call("mcp__bench__slow", seconds=30))
        await until(lambda: world.progress)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert '"total": 3' in (await world.call("mcp__bench__add", a=1, b=2)).output


async def test_only_a_walled_tool_that_says_it_reads_counts_as_reading(tmp_path: Path) -> None:
    servers = {"in": odd("reads"), "out": odd("reads", sandbox=False), "net": odd("reads", network=True)}
    async with opened(tmp_path / "ws", servers) as world:
        await world.bridge.settle(60)
        effects = {
            name: spec.side_effects
            for name in ("mcp__in__look", "mcp__in__touch", "mcp__out__look", "mcp__net__look")
            if (spec := world.registry.get(name)) is not None
        }
        walled = {SideEffect.READ} if world.spawner.wall != "none" else {SideEffect.EXTERNAL}
        assert effects["mcp__in__look"] == walled
        assert effects["mcp__in__touch"] == {SideEffect.EXTERNAL}
        assert effects["mcp__out__look"] == effects["mcp__net__look"] == {SideEffect.EXTERNAL}


async def test_a_server_writes_only_where_the_wall_lets_it(tmp_path: Path) -> None:
    async with opened(tmp_path / "ws", {"bench": sdk()}) as world:
        await world.bridge.settle(60)
        if world.spawner.wall == "none":
            pytest.skip("no wall here")
        inside, outside = tmp_path / "ws" / "a.txt", tmp_path / "b.txt"
        assert (await world.call("mcp__bench__touch", path=str(inside))).output == "done"
        await world.call("mcp__bench__touch", path=str(outside))
        assert inside.exists()
        assert not outside.exists()


async def test_a_server_that_dies_is_started_again_and_its_last_words_are_kept(tmp_path: Path) -> None:
    async with opened(tmp_path / "ws", {"bench": odd("dies", sandbox=False)}) as world:
        await world.bridge.settle(60)
        first = int((await world.call("mcp__bench__pid")).output)
        with pytest.raises(ToolFailure):
            await world.call("mcp__bench__die")
        again = int((await world.call("mcp__bench__pid")).output)
        assert again != first
        status = world.bridge.status()[0]
        assert status.restarts == 1
        assert "I am gone" in status.stderr
    assert not _alive(again)


async def test_a_required_server_that_cannot_start_is_an_error_and_others_are_news(tmp_path: Path) -> None:
    missing = {"command": "/nowhere/server"}
    async with opened(tmp_path / "a", {"gone": missing}) as world:
        assert world.bridge.links["gone"].state == "off"
        news = await world.bridge.settle(60)
        assert len(news) == 1
        assert "gone is not used" in news[0]
        assert await world.bridge.settle(60) == []
    async with opened(tmp_path / "b", {"gone": {**missing, "required": True}}) as world:
        with pytest.raises(McpError, match="gone is required and cannot be used"):
            await world.bridge.settle(60)
