"""Mode plan: the policy says no, the executor says no, and the wall is read-only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from aar.protocol.tool import SideEffect, ToolOutcome, ToolSpec
from aar.safety.policy import Decision
from aar.safety.rules import RuleSet
from tests.cli.support import aar, call, events, script, stored
from tests.support.fakes import Turn, World
from tests.support.fakes import call as told

_SCHEMA = {"type": "object", "properties": {}, "additionalProperties": True}


@pytest.mark.parametrize("effect", [SideEffect.WRITE, SideEffect.NETWORK, SideEffect.EXTERNAL])
async def test_the_executor_refuses_whatever_a_broken_policy_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effect: SideEffect
) -> None:
    ran: list[bool] = []

    async def handler(_arguments: Any, _context: Any) -> ToolOutcome:
        ran.append(True)
        return ToolOutcome(output="done")

    spec = ToolSpec("mcp__x__y", "A tool.", _SCHEMA, frozenset({effect}), handler)
    world = World(tmp_path, [Turn(calls=[told("mcp__x__y")]), "Done."], mode="plan", tools=[spec])
    monkeypatch.setattr(world.policy, "decide", lambda *_a, **_k: Decision("allow"))
    await world.run()
    assert world.results[0].category == "blocked"
    assert ran == []


async def test_u4_unannotated_tools_are_denied_in_plan_in_spite_of_rules(tmp_path: Path) -> None:
    async def handler(_arguments: Any, _context: Any) -> ToolOutcome:
        raise AssertionError("it ran")

    spec = ToolSpec("mcp__x__y", "A tool.", _SCHEMA, frozenset(), handler)
    rules = [RuleSet.parse("user", allow=["mcp__x__y", "bash", "write(**)"])]
    turns = [Turn(calls=[told("mcp__x__y"), told("write_file", path="a", content="x")]), "Done."]
    world = World(tmp_path, turns, mode="plan", tools=[spec], rules=rules)
    await world.run()
    assert [item.category for item in world.results] == ["blocked", "blocked"]
    assert not (tmp_path / "a").exists()


def test_a_command_that_passes_as_reading_still_cannot_write(tmp_path: Path) -> None:
    project = tmp_path / "p"
    (project / ".git").mkdir(parents=True)
    status = aar("sandbox", "status", "--json", cwd=project).json
    if not status["enforced"]:
        pytest.skip("no wall holds here")
    # A reader that the words cannot tell from a writer: `tree` is a program that writes.
    bin_folder = project / "bin"
    bin_folder.mkdir()
    (bin_folder / "tree").write_text(f"#!/bin/sh\necho stolen > {project}/made; echo tried\n")
    (bin_folder / "tree").chmod(0o755)
    model = script(tmp_path / "m.json", call("bash", command="tree ."), "Done.")
    env = {"PATH": f"{bin_folder}:{os.environ['PATH']}"}
    ran = aar("run", "x", "--model", model, "--mode", "plan", cwd=project, env=env)
    assert ran.code == 0
    result = next(event for event in events(stored()[0]) if event["type"] == "tool_result")
    assert "tried" in result["output"]
    assert not (project / "made").exists()
