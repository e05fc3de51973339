"""The reference servers from npm, where they are installed, through a real run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mcp.world import NPM, opened

pytestmark = pytest.mark.skipif(
    not (NPM / ".bin").is_dir(), reason="MCP_REFERENCE_SERVERS names no node_modules"
)


async def test_the_reference_servers_work_inside_the_wall(tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    ws.mkdir()
    (ws / "a.txt").write_text("words of a file")
    servers = {
        "every": {"command": str(NPM / ".bin/mcp-server-everything"), "args": ["stdio"]},
        "fs": {"command": str(NPM / ".bin/mcp-server-filesystem"), "args": ["."]},
    }
    async with opened(ws, servers) as world:
        assert await world.bridge.settle(30) == []
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
