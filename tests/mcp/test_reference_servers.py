"""The reference servers from npm, where they are installed, through a real run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.mcp.world import NPM, opened

TIME = Path(sys.executable).with_name("mcp-server-time")


@pytest.mark.skipif(not TIME.exists(), reason="mcp-server-time is not installed")
async def test_a_server_written_in_python_works_inside_the_wall(tmp_path: Path) -> None:
    async with opened(tmp_path / "ws", {"time": {"command": str(TIME), "args": []}}) as world:
        assert await world.bridge.settle(60) == []
        told = await world.call("mcp__time__get_current_time", timezone="Europe/Berlin")
        assert "Europe/Berlin" in told.output


@pytest.mark.skipif(not (NPM / ".bin").is_dir(), reason="MCP_REFERENCE_SERVERS names no node_modules")
async def test_the_reference_servers_work_inside_the_wall(tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    ws.mkdir()
    (ws / "a.txt").write_text("words of a file")
    servers = {
        "every": {"command": str(NPM / ".bin/mcp-server-everything"), "args": ["stdio"]},
        "fs": {"command": str(NPM / ".bin/mcp-server-filesystem"), "args": ["."]},
    }
    async with opened(ws, servers) as world:
        assert await world.bridge.settle(60) == []
        assert "hi" in (await world.call("mcp__every__echo", message="hi")).output
        assert (await world.call("mcp__every__get-tiny-image")).images
        assert (
            "temperature"
            in (await world.call("mcp__every__get-structured-content", location="New York")).output
        )
        assert "words of a file" in (await world.call("mcp__fs__read_text_file", path="a.txt")).output
        roots = (await world.call("mcp__every__get-roots-list")).output
        assert str(ws.name) in roots
        assert world.bridge.status()[0].prompts > 0
