"""Scenarios of agent frameworks, from prompt to end: a feature taken back, a cancelled task, a new agent."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from aar.commands.base import Text
from aar.config.paths import paths
from aar.protocol.state import StopReason
from tests.commands.support import Desk, desk
from tests.support.fakes import check_messages
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("clean_environment")

FEATURE = [
    {"id": "code", "title": "Write greet.py", "done_when": "file: greet.py"},
    {"id": "doc", "title": "Tell of it in a.txt", "depends_on": ["code"], "done_when": "changed: a.txt"},
]


def uses(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def steps(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"tool_calls": list(calls)}


def of(at: Desk, kind: str) -> list[Any]:
    return [event for event in at.talk.session.events() if event.type == kind]


async def test_a_feature_is_planned_built_step_by_step_and_taken_back_whole(tmp_path: Path) -> None:
    answers = [
        steps(uses("plan", goal="Greet", items=FEATURE)),
        {"text": "A plan of two steps."},
        steps(uses("write_file", path="greet.py", content="def greet():\n    return 'hi'\n")),
        {"text": "Written."},
        steps(uses("edit_file", path="a.txt", old_string="one", new_string="one\ngreet() says hi")),
        {"text": "Told."},
    ]
    async with desk(tmp_path, *answers, mode="edit") as at:
        root = at.context.runtime.workspace
        asked: Any = await at.run("/plan a greeting")
        await at.say(asked.prompt)
        assert not (root / "greet.py").exists()
        await at.run("/plan approve")
        await at.run("/plan run")
        async with asyncio.timeout(60):
            await at.talk.wait()
        assert at.talk.last_result is not None
        assert at.talk.last_result.stop_reason is StopReason.VERIFIED
        assert (root / "greet.py").exists()
        assert "greet() says hi" in (root / "a.txt").read_text()
        taken = await at.run("/undo 2")
        assert isinstance(taken, Text), taken
        assert not (root / "greet.py").exists()
        assert (root / "a.txt").read_text() == "one\n"
        again = await at.run("/redo")
        assert isinstance(again, Text), again
        assert "greet() says hi" in (root / "a.txt").read_text()
        check_messages(at.talk.session.messages())


async def test_a_cancelled_task_leaves_no_process_and_the_session_goes_on(tmp_path: Path) -> None:
    answers = [
        steps(
            uses("write_file", path="kept.txt", content="kept\n"),
            uses("bash", command="echo $$ > pid; sleep 60 & sleep 60"),
            uses("write_file", path="never.txt", content="no\n"),
        ),
        {"text": "Here I am again."},
    ]
    async with desk(tmp_path, *answers, mode="unsafe", sets=("sandbox.mode='none'",)) as at:
        root = at.context.runtime.workspace
        pid = root / "pid"
        at.talk.submit("Work for a minute.")
        await until(lambda: pid.exists() and pid.read_text().strip())
        at.talk.agent.cancel()
        async with asyncio.timeout(60):
            await at.talk.wait()
        assert at.talk.last_result is not None
        assert at.talk.last_result.exit_code == 130
        with pytest.raises(ProcessLookupError):
            os.killpg(int(pid.read_text()), 0)
        assert [item.category for item in of(at, "tool_result")] == [None, "cancelled", "cancelled"]
        assert (root / "kept.txt").read_text() == "kept\n"
        assert not (root / "never.txt").exists()
        await at.say("Are you there?")
        assert at.talk.last_result.text == "Here I am again."
        check_messages(at.talk.session.messages())


async def test_one_file_makes_an_agent_that_the_next_run_can_use(tmp_path: Path) -> None:
    folder = paths().config / "agents"
    folder.mkdir(parents=True)
    (folder / "historian.md").write_text(
        "---\ndescription: Tells what a file was.\ntools: read_file\nmax_steps: 5\n---\nYou are a historian.\n"
    )
    answers = [
        steps(uses("task", prompt="What does a.txt say?", agent="historian")),
        steps(uses("read_file", path="a.txt"), uses("write_file", path="a.txt", content="forged")),
        {"text": "It says one."},
        {"text": "The historian says: one."},
    ]
    async with desk(tmp_path, *answers, mode="auto") as at:
        await at.say("Ask the historian about a.txt.")
        assert at.talk.last_result is not None
        assert at.talk.last_result.text == "The historian says: one."
        begun, ended = of(at, "subagent")
        assert (begun.profile, ended.result) == ("historian", "It says one.")
        assert (at.context.runtime.workspace / "a.txt").read_text() == "one\n"
        child = [item for item in of(at, "tool_result") if item.agent_id == begun.agent_id]
        assert [item.is_error for item in child] == [False, True]
        [prompt] = [event for event in of(at, "prompt") if event.agent_id == begun.agent_id]
        assert any("You are a historian." in layer.text for layer in prompt.layers)
