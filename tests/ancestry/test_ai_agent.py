"""Features of ai-agent that no other room tests."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from aar.config.schema import McpServerConfig
from aar.extensions import mcp_calls
from aar.extensions.mcp_calls import ServerCalls
from aar.extensions.mcp_config import ServerSpec


class Connection:
    """Counts what is asked; a call of ``fails`` is an error of the server."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    async def call(self, name: str, arguments: dict[str, Any], _progress: Any) -> dict[str, Any]:
        self.calls.append((name, arguments))
        return {"content": [{"type": "text", "text": str(len(self.calls))}], "isError": name == "fails"}


class Questions:
    """Nobody asks anything."""

    def asking(self, *_anything: Any) -> Any:
        return contextlib.nullcontext()


def server(connection: Connection, **settings: Any) -> ServerCalls:
    async def usable() -> Any:
        return connection

    config = McpServerConfig(command="true", **settings)
    questions: Any = Questions()
    return ServerCalls(ServerSpec("docs", config, "user", "a test"), questions, usable, lambda _why: None)


async def test_answers_of_reading_tools_are_kept_as_long_as_was_said_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(mcp_calls, "time", SimpleNamespace(monotonic=lambda: now))
    context: Any = None
    connection = Connection()
    calls = server(connection, cache_ttl_s=60)
    first = await calls.tool("search", {"q": "x"}, context, reads=True)
    assert await calls.tool("search", {"q": "x"}, context, reads=True) == first
    assert len(connection.calls) == 1
    await calls.tool("search", {"q": "y"}, context, reads=True)
    for name, reads in (("write", False), ("fails", True)):
        for _ in range(2):
            await calls.tool(name, {}, context, reads=reads)
    assert [name for name, _ in connection.calls] == ["search", "search", "write", "write", "fails", "fails"]
    now += 61
    assert await calls.tool("search", {"q": "x"}, context, reads=True) != first
    calls.forget()
    await calls.tool("search", {"q": "x"}, context, reads=True)
    assert len(connection.calls) == 8


async def test_without_a_time_nothing_is_kept() -> None:
    connection = Connection()
    calls = server(connection)
    context: Any = None
    for _ in range(2):
        await calls.tool("search", {"q": "x"}, context, reads=True)
    assert len(connection.calls) == 2
