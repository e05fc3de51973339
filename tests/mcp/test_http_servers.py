"""A server of the SDK on loopback HTTP: streamable, the older SSE, and nobody at all."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aar.protocol.tool import SideEffect
from tests.mcp.world import SDK_SERVER, opened
from tests.support.waiting import until


@asynccontextmanager
async def serving(file: Path, *more: str) -> AsyncIterator[int]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SDK_SERVER), "http", str(file), *more, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await until(lambda: (file.exists() and file.read_text()) or process.returncode is not None)
        yield int(file.read_text())
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize(("more", "path"), [((), "/mcp"), (("sse",), "/sse")])
async def test_a_server_on_http_is_used_whichever_transport_it_has(
    tmp_path: Path, more: tuple[str, ...], path: str
) -> None:
    async with serving(tmp_path / "port", *more) as port:
        url = f"http://127.0.0.1:{port}{path}"
        async with opened(tmp_path / "ws", {"web": {"url": url}}) as world:
            assert await world.bridge.settle(60) == []
            assert '"total": 7' in (await world.call("mcp__web__add", a=3, b=4)).output
            spec = world.registry.get("mcp__web__add")
            assert spec is not None
            assert spec.side_effects == {SideEffect.EXTERNAL}


async def test_nobody_at_the_address_is_told_in_one_sentence(tmp_path: Path) -> None:
    async with opened(tmp_path / "ws", {"web": {"url": "http://127.0.0.1:9/mcp"}}) as world:
        news = await world.bridge.settle(60)
        assert "The MCP server web is not used: nobody answers at its address" in news[0]
