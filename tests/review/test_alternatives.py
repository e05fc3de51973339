"""Alternatives: attempts in copies, compared by checks and a judge; one is picked through the rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aar.commands.base import Choice, Failure, Text
from aar.orchestration.alternatives import Attempt, ranked
from tests.commands.support import git, repository
from tests.review.support import room
from tests.support.fakes import Turn, call
from tests.support.minds import Ask


def number_of(ask: Ask) -> int:
    return int(ask.said.split("This is attempt ")[1][0])


def think(ask: Ask) -> Turn | str:
    if "compare several attempts" in ask.system:
        return json.dumps({"ranking": [1, 2], "why": "The first is simpler."})
    if "This is attempt" not in ask.said:
        return "ok"
    number = number_of(ask)
    if ask.first:
        return Turn(calls=[call("write_file", path="new.txt", content=f"attempt {number}\n")])
    if number == 2 and len(ask.results) == 1:
        old, new = "changed here\n", "changed there\n"
        return Turn(calls=[call("edit_file", path="a.txt", old_text=old, new_text=new)])
    return f"I did it, attempt {number}."


async def test_attempts_are_compared_and_the_picked_one_is_made_here(tmp_path: Path) -> None:
    project = repository(tmp_path / "project")
    (project / "a.txt").write_text("changed here\n")
    (project / "fresh.txt").write_text("not committed\n")
    async with room(tmp_path, think) as here:
        checks = '--check "test -f fresh.txt" --check "grep -q there a.txt"'
        choice = await here.run(f"/alternatives 2 {checks} write new.txt")
        assert isinstance(choice, Choice), choice
        # The judge prefers the first, but its check fails.
        assert [item.label for item in choice.items] == ["attempt 2", "attempt 1"]
        assert "checks pass" in choice.items[0].detail
        assert "checks FAIL" in choice.items[1].detail
        assert "The first is simpler." in choice.note
        assert not (project / "new.txt").exists()
        assert (project / "a.txt").read_text() == "changed here\n"
        assert git(project, "worktree", "list").count("\n") == 1
        ends = [event for event in here.of("subagent") if event.action == "end"]
        assert sorted(event.profile for event in ends) == ["alternative", "alternative", "judge"]
        assert here.talk.session.totals.cost_usd == pytest.approx(0.015 * len(here.mind.asked))
        shown = await here.run("/alternatives show 2")
        assert isinstance(shown, Text)
        assert "+changed there" in shown.markdown
        picked = await here.run("/alternatives pick 2")
        assert isinstance(picked, Text), picked
        assert (project / "new.txt").read_text() == "attempt 2\n"
        assert (project / "a.txt").read_text() == "changed there\n"
        assert here.of("checkpoint")
        assert isinstance(await here.run("/alternatives pick 7"), Failure)


async def test_what_cannot_be_tried_is_said(tmp_path: Path) -> None:
    async with room(tmp_path, lambda ask: "I changed nothing.") as here:
        for wrong in (
            "/alternatives",
            "/alternatives 1 x",
            "/alternatives 99 x",
            "/alternatives two x",
            "/alternatives 2",
        ):
            assert isinstance(await here.run(wrong), Failure), wrong
        none = await here.run("/alternatives 2 do nothing")
        assert isinstance(none, Failure)
        assert "changed nothing" in none.sentence
        here.talk.set_mode("plan")
        assert isinstance(await here.run("/alternatives 2 x"), Failure)


def test_checks_count_more_than_the_judge_and_size_decides_the_rest() -> None:
    small = Attempt(1, diff="+a\n", passed=True)
    large = Attempt(2, diff="+a\n+b\n", passed=True)
    failing = Attempt(3, diff="+a\n", passed=False)
    nothing = Attempt(4)
    order = ranked([nothing, failing, large, small], None)
    assert [item.number for item in order] == [1, 2, 3, 4]
    judged = ranked([nothing, failing, large, small], {"ranking": [4, 3, 2, 1]})
    assert [item.number for item in judged] == [2, 1, 3, 4]
