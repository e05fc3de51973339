"""Steps that write side by side in work trees, merged in the order of the plan."""

from __future__ import annotations

import asyncio
import fcntl
import tempfile
from pathlib import Path

import pytest

from aar.protocol.events import ToolCall
from tests.commands.support import git, repository
from tests.plan.test_run import diligent, name_of, notices, run, states, step, writes
from tests.support.fakes import Turn, call
from tests.support.minds import Ask, Place, place

pytestmark = pytest.mark.usefixtures("clean_environment")
APART = ("plan.worktrees=true", "plan.retries=2")


class Gate:
    """A barrier as a gate of a turn."""

    def __init__(self, together: asyncio.Barrier) -> None:
        self._together = together

    async def wait(self) -> None:
        await self._together.wait()


def merges(here: Place) -> list[str]:
    calls = [e for e in here.of("tool_call") if isinstance(e, ToolCall) and e.tool_name == "apply_patch"]
    return [str(e.arguments["patch"]) for e in calls]


async def test_steps_write_at_the_same_time_and_are_merged_in_the_order_of_the_plan(tmp_path: Path) -> None:
    project = repository(tmp_path / "project")
    (project / "fresh.txt").write_text("not committed\n")
    together, second = asyncio.Barrier(2), asyncio.Event()

    def think(ask: Ask) -> Turn | str:
        name = name_of(ask)
        if name == "end":
            assert "Wrote b." in ask.prompt
            return Turn(calls=[call("bash", command="cat b.txt c.txt fresh.txt")]) if ask.first else "Seen."
        if ask.first:
            return Turn(
                calls=[call("write_file", path=f"{name}.txt", content=f"{name}\n")], gate=Gate(together)
            )
        if name == "c":
            second.set()
            return "Wrote c."
        return Turn("Wrote b.", gate=second)

    async with place(tmp_path, think, sets=APART) as here:
        items = [step(name, done_when=f"grep -q {name} {name}.txt") for name in "bc"]
        result = await run(here, *items, step("end", "b", "c"))
        assert result.stop_reason == "verified", notices(here)
        assert set(states(here).values()) == {"completed"}
        first, then = merges(here)
        assert "+++ b/b.txt" in first
        assert "+++ b/c.txt" in then
        assert (project / "b.txt").read_text() == "b\n"
        assert here.mind.asked[-1].results[0].output == "b\nc\nnot committed"
        assert {change.path for change in result.file_changes} == {"b.txt", "c.txt"}
        assert git(project, "worktree", "list").count("\n") == 1
        assert git(project, "for-each-ref", "refs/aar") == ""
        # Each request costs; the session pays for those in work trees too.
        cost = pytest.approx(0.015 * len(here.mind.asked))
        assert (here.session.totals.cost_usd, result.cost_usd) == (cost, cost)
        assert len(here.of("checkpoint")) == 2


async def test_a_conflict_is_a_failed_step_that_begins_again_with_what_is_there_now(tmp_path: Path) -> None:
    project = repository(tmp_path / "project")
    git(project, "config", "merge.evil.driver", f"touch {tmp_path}/ran; true")
    (project / ".gitattributes").write_text("*.txt merge=evil\n")
    together = asyncio.Barrier(2)

    def think(ask: Ask) -> Turn | str:
        name, again = name_of(ask), "earlier attempt" in ask.prompt
        if not ask.first:
            return f"Wrote {name}."
        old = "a\n" if again else "one\n"
        edit = call("edit_file", path="a.txt", old_text=old, new_text=f"{name}\n")
        return Turn(calls=[edit], gate=None if again else Gate(together))

    async with place(tmp_path, think, sets=APART) as here:
        result = await run(here, step("a"), step("b"))
        assert result.exit_code == 0
        assert "changed the same lines of a.txt" in notices(here)
        assert "Step b failed (1 of 2)" in notices(here)
        assert (project / "a.txt").read_text() == "b\n"
        assert len(merges(here)) == 2
        # A program that the repository names for merging does not run.
        assert not (tmp_path / "ran").exists()


async def test_what_a_killed_run_left_is_removed_and_what_another_one_uses_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    project = repository(tmp_path / "project")
    names = ("aar-plan-deadbeef", "aar-plan-inuse000", "aar-plan-foreign0", "elsewhere")
    for name in (*names, "aar-agent-deadbeef", "aar-agent-changed0"):
        (tmp_path / name).mkdir()
        git(project, "worktree", "add", "-q", "--detach", str(tmp_path / name / "tree/p"))
        git(project, "update-ref", f"refs/aar/{name}", "HEAD")
        if name != "aar-plan-foreign0":
            (tmp_path / name / "aar.lock").touch()
    (tmp_path / "aar-agent-changed0/tree/p/a.txt").write_text("work of an agent\n")
    with (tmp_path / "aar-plan-inuse000/aar.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        async with place(tmp_path, diligent, sets=APART) as here:
            assert (await run(here, step("b"))).exit_code == 0
    left = {path.name for path in tmp_path.iterdir() if (path / "tree/p").exists()}
    assert left == {"aar-plan-inuse000", "aar-plan-foreign0", "elsewhere", "aar-agent-changed0"}
    assert not (tmp_path / "aar-agent-changed0/aar.lock").exists(), "it is the user's from now on"
    assert "deadbeef" not in git(project, "for-each-ref") + git(project, "worktree", "list")


async def test_what_a_step_that_failed_changed_is_not_taken_over(tmp_path: Path) -> None:
    project = repository(tmp_path / "project")
    sets = (*APART, "plan.max_replans=0", "limits.steps=2")

    def think(ask: Ask) -> Turn | str:
        return writes("b") if ask.request.tools else "I could not."

    async with place(tmp_path, think, sets=sets) as here:
        assert (await run(here, step("b"))).exit_code != 0
        assert not (project / "b.txt").exists()
        assert merges(here) == []


async def test_a_merge_goes_by_the_mode_like_any_edit(tmp_path: Path) -> None:
    project = repository(tmp_path / "project")
    async with place(tmp_path, diligent, mode="ask", sets=APART) as here:
        result = await run(here, step("b"))
        assert result.stop_reason == "denied"
        assert not (project / "b.txt").exists()
        [merge] = [e for e in here.of("tool_result") if e.tool_name == "apply_patch"]
        assert merge.category == "denied"


async def test_without_a_repository_steps_are_done_one_by_one(tmp_path: Path) -> None:
    def think(ask: Ask) -> Turn | str:
        assert here.mind.open == 1
        return diligent(ask)

    async with place(tmp_path, think, sets=APART) as here:
        assert (await run(here, step("a"), step("b"))).exit_code == 0
        assert "Steps that write are done one by one: Work trees need a git repository" in notices(here)
