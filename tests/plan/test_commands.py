"""/plan and /goal at a door without a screen, and aar plan as a process, killed in the middle."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from aar.commands.base import Failure, Submit, Text, UiAction
from aar.protocol.events import Setting
from tests.cli.support import aar, events, finish, of_type, script, start, stored
from tests.commands.support import desk

pytestmark = pytest.mark.usefixtures("clean_environment")
PLAN = [
    {"id": "one", "title": "Write b", "done_when": "file: b.txt"},
    {"id": "two", "title": "Look at b", "depends_on": ["one"], "read_only": True},
]
MAKES = {"tool_calls": [{"name": "plan", "arguments": {"goal": "Have b", "items": PLAN}}]}
WRITES = {"tool_calls": [{"name": "write_file", "arguments": {"path": "b.txt", "content": "b\n"}}]}


def text(result: Any) -> str:
    assert isinstance(result, Text), result
    return result.markdown


async def test_a_plan_is_made_shown_edited_approved_in_part_and_run(tmp_path: Path) -> None:
    answers = [MAKES, {"text": "A plan."}, WRITES, {"text": "Written."}]
    async with desk(tmp_path, *answers, mode="edit") as at:
        asked = await at.run("/plan have a file b")
        assert isinstance(asked, Submit)
        assert "have a file b" in asked.prompt
        assert at.talk.mode == "plan"
        await at.say(asked.prompt)
        assert "· one. Write b — done when file: b.txt" in text(await at.run("/plan"))
        shown = await at.run("/plan edit")
        markdown = shown.arguments["argument"] if isinstance(shown, UiAction) else text(shown)
        assert "## one. Write b" in markdown
        edited = await at.run(
            "/plan set\n# Plan: B\n\n## one. Write b\ndone when: file: b.txt\n\n## x. More\n"
        )
        assert "x. More" in text(edited)
        assert isinstance(await at.run("/plan set\n## a. A\nafter: b\n"), Failure)
        await at.run("/plan approve one")
        assert "mode edit" in text(await at.run("/plan run"))
        async with asyncio.timeout(60):
            await at.talk.wait()
        assert at.talk.last_result is not None
        assert at.talk.last_result.stop_reason == "verified"
        assert "✓ one. Write b" in text(await at.run("/plan"))
        assert "flowchart TD" in text(await at.run("/plan mermaid"))
        assert "saved as" in text(await at.run("/plan save docs/p.md"))
        assert "state: completed" in (at.context.runtime.workspace / "docs/p.md").read_text()
        assert "dropped" in text(await at.run("/plan drop"))
        assert isinstance(await at.run("/plan run"), Failure)


async def test_a_goal_lets_the_run_go_on_until_it_is_reached_and_is_then_gone(tmp_path: Path) -> None:
    async with desk(tmp_path, {"text": "Done."}, WRITES, {"text": "Now."}, mode="edit") as at:
        asked = await at.run('/goal "file: b.txt" Make b.')
        assert isinstance(asked, Submit)
        assert asked.prompt.startswith("Make b.")
        assert "file: b.txt" in text(await at.run("/goal"))
        await at.say(asked.prompt)
        assert at.talk.last_result is not None
        assert at.talk.last_result.stop_reason == "verified"
        assert "no goal" in text(await at.run("/goal"))
        changes = [
            (e.to, e.by) for e in at.talk.session.events() if isinstance(e, Setting) and e.key == "goal"
        ]
        assert changes == [("file: b.txt", "user"), (None, "verify")]
        assert isinstance(await at.run("/goal text: a"), Failure)


def test_a_killed_plan_goes_on_where_it_was_and_does_nothing_twice(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "p.md").write_text(
        "# Plan: Two\n\n## 1. First\ndone when: file: first.txt\n\n## 2. Second\nafter: 1\ndone when: file: b.txt\n"
    )
    first = {"tool_calls": [{"name": "write_file", "arguments": {"path": "first.txt", "content": "1"}}]}
    hang = {"text": "…", "first_delay_ms": 60_000}
    model = script(tmp_path / "a.json", first, "Done.", hang)
    going = start("plan", "run", "p.md", "--model", model, "--output", "stream-json", cwd=project)
    assert going.stdout is not None
    for line in going.stdout:
        event = json.loads(line)
        if event["type"] == "subagent" and event["action"] == "start" and "Second" in event["task"]:
            break
    going.send_signal(signal.SIGKILL)
    finish(going)
    session = stored()[0]
    listed = aar("plan", "list", "--json", cwd=project).json
    assert [each["status"] for each in listed["steps"]] == ["completed", "executing"]
    again = script(tmp_path / "b.json", WRITES, "Done too.")
    ran = aar("plan", "run", session.stem, "--model", again, "--output", "json", cwd=project)
    assert (ran.code, ran.json["stop_reason"]) == (0, "verified")
    tasks = [each["task"] for each in of_type(events(session), "subagent") if each["action"] == "start"]
    assert tasks == ["step 1: First", "step 2: Second", "step 2: Second"]
    assert (project / "b.txt").read_text() == "b\n"
    assert "✓ 2. Second" in aar("plan", "show", cwd=project).out
    assert aar("plan", "export", "--format", "mermaid", cwd=project).out.startswith("flowchart TD")
    assert aar("plan", "run", "--model", again, cwd=project).code == 2
