"""Plans run with a scripted model: order, checks, failures, new plans, interruptions, hooks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aar.core.agent import RunResult
from aar.protocol.errors import UsageError
from aar.protocol.events import PlanEvent, PlanItem
from aar.runtime.plan import approve, current, set_down, skip
from aar.runtime.plan.running import run_plan
from tests.support.fakes import Turn, call, check_messages
from tests.support.minds import Ask, Place, place
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("clean_environment")


def step(name: str, *needs: str, **fields: Any) -> PlanItem:
    return PlanItem.model_validate({"id": name, "title": f"Do {name}", "depends_on": needs, **fields})


def name_of(ask: Ask) -> str:
    """Return which step a child was asked to do; empty: it is the main agent."""
    found = re.search(r"^Your step: (\S+)\. ", ask.prompt, re.MULTILINE)
    return found[1] if found else ""


def writes(name: str) -> Turn:
    return Turn(calls=[call("write_file", path=f"{name}.txt", content=name)])


def diligent(ask: Ask) -> Turn | str:
    """Write a file named after the step, then report."""
    return writes(name_of(ask)) if ask.first else f"Wrote {name_of(ask)}."


async def run(here: Place, *items: PlanItem, goal: str = "All of it") -> RunResult:
    set_down(here.session, goal, items, "test")
    async with asyncio.timeout(60):
        return await run_plan(here.runtime, here.session, here.agent)


def states(here: Place) -> dict[str, str]:
    return {item.id: item.status for item in current(here.session).items}


def notices(here: Place) -> str:
    return "\n".join(event.message for event in here.of("notice"))


async def test_steps_run_in_order_each_checked_and_told_what_came_before(tmp_path: Path) -> None:
    items = (
        step("b", "a", done_when="test -e b.txt"),
        step("a", done_when="file: a.txt"),
        step("c", "b", done_when="text: c.txt =~ ^c$", detail="Mind the gap."),
    )
    async with place(tmp_path, diligent) as here:
        result = await run(here, *items)
        assert (result.stop_reason, result.exit_code) == ("verified", 0)
        assert states(here) == {"a": "completed", "b": "completed", "c": "completed"}
        order = [name_of(ask) for ask in here.mind.asked if ask.first]
        assert order == ["a", "b", "c"]
        last = next(ask for ask in here.mind.asked if name_of(ask) == "c")
        assert "Mind the gap." in last.prompt
        assert "Wrote b." in last.prompt
        assert "Wrote a." not in last.prompt
        assert {change.path for change in result.file_changes} == {"a.txt", "b.txt", "c.txt"}
        assert "✓ c. Do c" in result.text
        assert [e.result for e in here.of("subagent") if e.action == "end"] == [
            "Wrote a.",
            "Wrote b.",
            "Wrote c.",
        ]
        check_messages(here.session.messages())
        assert [e.stage for e in here.of("plan")][-1] == "done"


async def test_steps_that_only_read_run_side_by_side_and_cannot_write(tmp_path: Path) -> None:
    together = asyncio.Barrier(3)

    def think(ask: Ask) -> Turn | str:
        if name_of(ask) == "w":
            assert here.mind.open == 1
            return diligent(ask)
        if not ask.first:
            return "Seen."
        return Turn(calls=[call("write_file", path="no.txt", content="x")], gate=_Gate(together))

    items = [step(name, read_only=True) for name in ("r1", "r2", "r3")]
    async with place(tmp_path, think) as here:
        result = await run(here, *items, step("w"), step("end", "r1", "w", agent="reviewer"))
        assert result.exit_code == 0
        assert not (here.root / "no.txt").exists()
        refused = [e.category for e in here.of("tool_result") if e.is_error]
        assert len(refused) == 4
        assert set(refused) <= {"blocked", "unknown_tool"}
        assert (here.root / "w.txt").exists()


class _Gate:
    """Waits until all have come; only for the first three."""

    def __init__(self, barrier: asyncio.Barrier) -> None:
        self._barrier = barrier
        _Gate.used = getattr(_Gate, "used", 0) + 1
        self._mine = _Gate.used

    async def wait(self) -> None:
        if self._mine <= 3:
            await self._barrier.wait()


async def test_a_failed_check_sends_the_agent_back_with_its_output(tmp_path: Path) -> None:
    def think(ask: Ask) -> Turn | str:
        if "Your step is not done" in ask.said and not (here.root / "a.txt").exists():
            return writes("a")
        return "I am done."

    async with place(tmp_path, think) as here:
        result = await run(here, step("a", done_when="test -e a.txt || { echo missing; exit 3; }"))
        assert result.exit_code == 0
        assert len({e.agent_id for e in here.of("subagent")}) == 1
        assert "Step a failed (1 of 3)" in notices(here)
        assert any("missing" in ask.said for ask in here.mind.asked)


async def test_after_three_failures_the_plan_is_changed_and_what_is_done_stays(tmp_path: Path) -> None:
    def think(ask: Ask) -> Turn | str:
        if not name_of(ask):
            if "does not work as it is" not in ask.said:
                return "?"
            new = [{"id": "b2", "title": "Another way", "done_when": "file: b2.txt"}]
            return Turn(calls=[call("plan", items=new)]) if ask.first else "Changed."
        return "Nothing done." if name_of(ask) == "b" else diligent(ask)

    items = (step("a", done_when="file: a.txt"), step("b", "a", done_when="file: b.txt"))
    async with place(tmp_path, think) as here:
        result = await run(here, *items)
        assert (result.stop_reason, result.exit_code) == ("verified", 0)
        assert states(here) == {"a": "completed", "b2": "completed"}
        said = notices(here)
        assert "Step b failed 3 times. Changing the plan (1 of 3)." in said
        assert "The plan was changed:\n- b. Do b\n+ b2. Another way — done when file: b2.txt" in said
        assert [name_of(ask) for ask in here.mind.asked if ask.first and name_of(ask) == "a"] == ["a"]


async def test_plans_that_keep_failing_end_with_every_step_told_and_the_chain_of_what_waits(
    tmp_path: Path,
) -> None:
    def think(ask: Ask) -> Turn | str:
        if not name_of(ask):
            number = current(here.session).replans
            new = [
                {"id": f"bad{number}", "title": "Try", "done_when": "false"},
                {"id": "c", "title": "Then", "depends_on": [f"bad{number}"]},
                {"id": "d", "title": "Last", "depends_on": ["c"]},
            ]
            asked_now = ask.said.rpartition("The plan does not work")[2]
            assert asked_now
            return Turn(calls=[call("plan", items=new)]) if _fresh(ask) else "Changed."
        return diligent(ask)

    async with place(tmp_path, think) as here:
        result = await run(
            here, step("ok"), step("bad0", done_when="false"), step("c", "bad0"), step("d", "c")
        )
        assert (result.stop_reason, result.exit_code) == ("error", 1)
        assert result.error is not None
        assert result.error["kind"] == "planning"
        assert result.error["message"].startswith("1 of 4 steps are done. Failed: bad3 (Try).")
        assert "d needs c needs bad3." in result.error["message"]
        assert states(here) == {"ok": "completed", "bad3": "failed", "c": "blocked", "d": "blocked"}
        assert current(here.session).replans == 3
        assert "✗ bad3. Try" in result.text


def _fresh(ask: Ask) -> bool:
    """Whether the plan was not changed since the model was asked to."""
    last = ask.request.messages[-1]
    return not any(getattr(block, "type", "") == "tool_result" for block in last.content)


async def test_without_another_plan_independent_steps_are_still_done(tmp_path: Path) -> None:
    def think(ask: Ask) -> Turn | str:
        return diligent(ask) if name_of(ask) else "It cannot be done."

    async with place(tmp_path, think) as here:
        result = await run(here, step("x", done_when="false"), step("y"))
        assert result.exit_code == 1
        assert states(here) == {"x": "failed", "y": "completed"}
        assert "There is no other plan." in notices(here)


async def test_a_check_goes_through_policy_and_wall(tmp_path: Path) -> None:
    async with place(tmp_path, lambda ask: "Done.", mode="ask") as here:
        result = await run(here, step("a", done_when="touch x"))
        assert result.exit_code == 6
        assert states(here) == {"a": "pending"}
        [denied] = here.of("tool_result", agent="plan")
        assert (denied.tool_name, denied.category) == ("bash", "denied")
        assert current(here.session).stage == "interrupted"


async def test_a_check_that_may_never_run_is_not_tried_again(tmp_path: Path) -> None:
    async with place(tmp_path, lambda ask: "Done.") as here:
        result = await run(here, step("a", done_when="git push --force"))
        assert result.exit_code == 1
        [denied] = here.of("tool_result", agent="plan")
        assert denied.category == "blocked"
        assert "Step a failed (3 of 3)" in notices(here)
        outside = await run(here, step("b", done_when="touch /etc/plan-was-here"))
        assert outside.exit_code == 1
        assert not Path("/etc/plan-was-here").exists()


async def test_an_interrupted_plan_goes_on_where_it_was(tmp_path: Path) -> None:
    hang = True

    def think(ask: Ask) -> Turn | str:
        return Turn(hang=True) if hang and name_of(ask) == "b" else diligent(ask)

    async with place(tmp_path, think) as here:
        set_down(here.session, "g", (step("a"), step("b", "a"), step("c", "b")), "test")
        task = asyncio.create_task(run_plan(here.runtime, here.session, here.agent))
        await until(lambda: any(name_of(ask) == "b" for ask in here.mind.asked))
        here.agent.cancel()
        result = await task
        assert (result.stop_reason, result.exit_code) == ("cancelled", 130)
        assert states(here) == {"a": "completed", "b": "cancelled", "c": "pending"}
        assert here.runtime.extras.team(here.session).working == []
        hang = False
        asked = len(here.mind.asked)
        async with asyncio.timeout(60):
            result = await run_plan(here.runtime, here.session, here.agent)
        assert result.exit_code == 0
        assert [name_of(ask) for ask in here.mind.asked[asked:] if ask.first] == ["b", "c"]
        again = here.mind.asked[asked]
        assert "It was interrupted." in again.prompt


async def test_stop_lets_the_present_step_end_and_begins_no_other(tmp_path: Path) -> None:
    def think(ask: Ask) -> Turn | str:
        here.agent.stop()
        return diligent(ask)

    async with place(tmp_path, think) as here:
        result = await run(here, step("a"), step("b", "a"))
        assert (result.stop_reason, result.exit_code) == ("stopped", 0)
        assert states(here) == {"a": "completed", "b": "pending"}
        assert "· b. Do b" in result.text


async def test_what_the_user_says_meanwhile_reaches_the_next_step(tmp_path: Path) -> None:
    def think(ask: Ask) -> Turn | str:
        if name_of(ask) == "a" and ask.first:
            here.agent.steer("Use tabs.")
        return diligent(ask)

    async with place(tmp_path, think) as here:
        await run(here, step("a"), step("b", "a"))
        second = next(ask for ask in here.mind.asked if name_of(ask) == "b")
        assert "The user said meanwhile: Use tabs." in second.prompt
        assert "Use tabs." in here.session.messages()[0].text or any(
            "Use tabs." in str(m) for m in here.session.messages()
        )


async def test_hooks_hear_of_each_step_once(tmp_path: Path) -> None:
    config = '[hooks]\nplan_step_done = "cat >> done.jsonl; echo >> done.jsonl"\n'

    def think(ask: Ask) -> Turn | str:
        return diligent(ask)

    async with place(tmp_path, think, files={".aar/config.toml": config}, trust=True) as here:
        await run(here, step("a"), step("b", "a"))
        await here.session.aclose()
        lines = (here.root / "done.jsonl").read_text().split("\n")
        heard = [line for line in lines if '"plan_step_done"' in line]
        assert len(heard) == 2


async def test_a_plan_of_the_model_is_a_draft_and_a_todo_list_does_not_replace_it(tmp_path: Path) -> None:
    items = [{"title": "One", "done_when": "all tests are green"}, {"title": "Two", "depends_on": ["1"]}]

    def think(ask: Ask) -> Turn | str:
        done = len(ask.results)
        calls: list[Callable[[], Any]] = [
            lambda: call("plan", goal="Be good", items=items),
            lambda: call("todo", items=["x"]),
            lambda: call("plan", items=[{"id": "a", "title": "A", "depends_on": ["b"]}]),
        ]
        return Turn(calls=[calls[done]()]) if done < len(calls) else "Here it is."

    async with place(tmp_path, think, mode="plan") as here:
        await here.run("Plan it.")
        plan = current(here.session)
        assert (plan.goal, plan.stage, plan.kind) == ("Be good", "draft", "plan")
        assert [item.done_when for item in plan.items] == ["judge: all tests are green", None]
        outputs = [event.output for event in here.of("tool_result")]
        assert "a needs b. There are: a." in outputs[2]
        assert f"`aar plan run {here.session.session_id}` does it" in notices(here)
        with pytest.raises(UsageError, match="Mode plan changes nothing"):
            await run_plan(here.runtime, here.session, here.agent)


async def test_part_of_a_plan_is_approved_only_with_what_it_needs(tmp_path: Path) -> None:
    async with place(tmp_path, diligent) as here:
        set_down(here.session, "g", (step("a"), step("b", "a"), step("c")), "test")
        with pytest.raises(UsageError, match="Step b needs a, which you leave out; name a too, or not b"):
            approve(here.session, ["b"])
        with pytest.raises(UsageError, match="There is no step z; steps are a, b, c"):
            approve(here.session, ["z"])
        assert approve(here.session, ["c"]).stage == "approved"
        result = await run_plan(here.runtime, here.session, here.agent)
        assert result.exit_code == 0
        assert states(here) == {"a": "skipped", "b": "skipped", "c": "completed"}
        approve(here.session, ["a", "b"])
        skip(here.session, "a")
        await run_plan(here.runtime, here.session, here.agent)
        assert states(here) == {"a": "skipped", "b": "completed", "c": "completed"}


async def test_a_limit_ends_the_plan_with_its_code_and_the_rest_stays_to_do(tmp_path: Path) -> None:
    async with place(tmp_path, diligent, sets=("limits.usd=0.02",)) as here:
        result = await run(here, step("a"), step("b", "a"), step("c", "b"))
        assert (result.stop_reason, result.exit_code) == ("budget", 5)
        assert "completed" not in (states(here)["b"], states(here)["c"])


def test_old_plan_events_are_read_as_todo_lists() -> None:
    event = PlanEvent.model_validate({"type": "plan", "items": [{"id": "1", "title": "x"}], "revision": 4})
    assert (event.kind, event.stage, event.items[0].failures) == ("todo", "draft", 0)
