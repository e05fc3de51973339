"""Clients that others wrote: the official SDK's, and acpx where it is installed."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import COMMAND, call, environment, script

STEPS = (
    {"reasoning": "Let me look.", **call("read_file", "I read it.", path="notes.txt")},
    call("edit_file", path="notes.txt", old_text="milk", new_text="bread"),
    call("bash", command="echo hello from the shell"),
    "All done.",
)


def client() -> Any:
    """Return a client of the official SDK that allows everything, and keeps what it was told."""
    import acp  # takes a second: only for the test that runs it
    from acp import schema

    class Client(acp.Client):
        def __init__(self) -> None:
            self.updates: list[Any] = []
            self.wrote: list[str] = []

        async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
            self.updates.append(update)

        async def request_permission(self, options: Any, session_id: str, tool_call: Any, **_: Any) -> Any:
            chosen = schema.AllowedOutcome(outcome="selected", option_id=options[0].option_id)
            return schema.RequestPermissionResponse(outcome=chosen)

        async def read_text_file(self, path: str, session_id: str, **_: Any) -> Any:
            return schema.ReadTextFileResponse(content=Path(path).read_text())

        async def write_text_file(self, content: str, path: str, session_id: str, **_: Any) -> Any:
            self.wrote.append(path)
            Path(path).write_text(content)
            return schema.WriteTextFileResponse()

    return Client()


async def test_the_official_client_gets_through_a_whole_turn(project: Path, tmp_path: Path) -> None:
    import acp
    from acp import schema

    told_to = client()
    args = [*COMMAND[1:], "acp", "--model", script(tmp_path / "m.json", *STEPS)]
    async with acp.spawn_agent_process(told_to, sys.executable, *args, env=environment(), cwd=project) as (
        agent,
        _,
    ):
        files = schema.FileSystemCapabilities(read_text_file=True, write_text_file=True)
        told = schema.ClientCapabilities(fs=files)
        greeting = await agent.initialize(protocol_version=1, client_capabilities=told)
        assert greeting.protocol_version == 1
        session = await agent.new_session(cwd=str(project), mcp_servers=[])
        text = schema.TextContentBlock(type="text", text="Edit it.")
        answer = await asyncio.wait_for(agent.prompt(prompt=[text], session_id=session.session_id), 60)
        assert answer.stop_reason == "end_turn"
    assert (project / "notes.txt").read_text() == "remember the bread\n"
    assert told_to.wrote == [str(project / "notes.txt")]
    kinds = {update.session_update for update in told_to.updates}
    assert {
        "agent_message_chunk",
        "agent_thought_chunk",
        "tool_call",
        "tool_call_update",
        "usage_update",
    } <= kinds


@pytest.mark.skipif(shutil.which("acpx") is None, reason="acpx is not installed (npm install acpx)")
def test_acpx_gets_through_a_whole_turn(project: Path, tmp_path: Path) -> None:
    agent = " ".join([*COMMAND, "acp", "--model", script(tmp_path / "m.json", *STEPS)])
    argv = [
        "acpx",
        "--agent",
        agent,
        "--cwd",
        str(project),
        "--format",
        "quiet",
        "--approve-all",
        "exec",
        "Edit it.",
    ]
    env = {**environment(), "PATH": os.environ["PATH"]}
    ended = subprocess.run(argv, cwd=project, env=env, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.rstrip().endswith("All done.")
    assert (project / "notes.txt").read_text() == "remember the bread\n"
