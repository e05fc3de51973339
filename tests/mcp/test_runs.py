"""MCP servers through whole commands: `aar run`, `aar mcp …`, and aar itself as a server."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from aar.protocol.tool import SideEffect
from tests.cli import support as cli
from tests.cli.support import Ran
from tests.mcp.world import SDK_SERVER, opened


def aar(cwd: Path, *args: str, check: bool = True) -> Ran:
    ran = cli.aar(*args, cwd=cwd)
    assert not check or ran.code == 0, ran.err
    return ran


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ws").mkdir()
    return tmp_path / "ws"


def scenario(folder: Path, *calls: dict[str, Any]) -> str:
    steps = [{"tool_calls": [call]} for call in calls]
    (folder / "s.json").write_text(json.dumps({"steps": [*steps, {"text": "done"}]}))
    return "scripted/s.json"


def test_servers_are_added_tried_used_in_a_run_and_removed(folder: Path) -> None:
    aar(folder, "mcp", "add", "bench", "--", sys.executable, str(SDK_SERVER))
    listed = json.loads(aar(folder, "mcp", "list", "--json").out)
    assert (listed["name"], listed["kind"], listed["scope"]) == ("bench", "stdio", "user")
    tried = json.loads(aar(folder, "mcp", "test", "--json").out)
    assert tried["state"] == "ready"
    assert "add" in tried["tool_names"]

    model = scenario(folder, {"name": "mcp__bench__add", "arguments": {"a": 20, "b": 22}})
    rules = ("--set", 'permissions.allow=["mcp__bench__add"]')
    done = aar(folder, "run", "--model", model, *rules, "--output", "stream-json", "Add.")
    events = [json.loads(line) for line in done.out.splitlines()]
    result = next(event for event in events if event["type"] == "tool_result")
    assert '"total": 42' in result["output"]
    assert events[-1]["exit_code"] == 0

    touch = scenario(folder, {"name": "mcp__bench__touch", "arguments": {"path": "t.txt"}})
    denied = aar(folder, "run", "--model", touch, "--output", "stream-json", "Touch.", check=False)
    assert "effects are not known to aar" in denied.out
    assert not (folder / "t.txt").exists()

    aar(folder, "mcp", "remove", "bench")
    assert aar(folder, "mcp", "list", "--json").out == ""


def test_a_required_server_that_fails_ends_the_run_with_exit_3_before_a_request(folder: Path) -> None:
    (folder / "servers.json").write_text(
        json.dumps({"mcpServers": {"must": {"command": "/nowhere/x", "required": True}}})
    )
    done = aar(
        folder,
        "run",
        "--model",
        scenario(folder),
        "--mcp-config",
        "servers.json",
        "--output",
        "json",
        "Hi.",
        check=False,
    )
    told = json.loads(done.out)
    assert (done.code, told["exit_code"], told["steps"]) == (3, 3, 0)
    assert "must is required and cannot be used" in told["error"]["message"]


def test_a_server_that_fails_costs_one_notice(folder: Path) -> None:
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"may": {"command": "/nowhere/x"}}}))
    done = aar(folder, "run", "--model", scenario(folder), "--mcp-config", "servers.json", "Hi.")
    assert done.out.strip() == "done"
    assert done.err.count("The MCP server may is not used") == 1


def test_servers_of_a_project_need_trust(folder: Path) -> None:
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"p": {"command": "x"}}}))
    assert aar(folder, "mcp", "list", "--json").out == ""
    assert '"scope": "project"' in aar(folder, "mcp", "list", "--json", "--trust").out


async def test_aar_serves_its_reading_tools_and_an_agent(tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    ws.mkdir()
    (ws / "a.txt").write_text("words\n")
    (ws / ".env").write_text("KEY=1\n")
    model = scenario(ws, {"name": "write_file", "arguments": {"path": "b.txt", "content": "new"}})
    env = {name: os.environ[name] for name in ("AAR_HOME", "HOME")}
    args = ["-m", "aar", "mcp", "serve", "--model", model, "--mode", "edit"]
    server = {"command": sys.executable, "args": args, "env": env, "sandbox": False}
    async with opened(ws, {"aar": server}) as world:
        assert await world.bridge.settle(60) == []
        names = {spec.name for spec in world.bridge.offered()}
        assert {"mcp__aar__read_file", "mcp__aar__grep", "mcp__aar__agent"} <= names
        assert not any("write" in name or "bash" in name for name in names)
        assert "words" in (await world.call("mcp__aar__read_file", path="a.txt")).output
        assert (await world.call("mcp__aar__read_file", path=".env")).is_error
        agent = world.registry.get("mcp__aar__agent")
        assert agent is not None
        assert agent.side_effects == {SideEffect.EXTERNAL}
        done = await world.call("mcp__aar__agent", prompt="Write b.txt")
        assert done.output.startswith("done")
        assert '"changed_files": ["b.txt"]' in done.output
        assert (ws / "b.txt").read_text() == "new"
