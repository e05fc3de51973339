"""A planner of an extension in place of the model: it makes the plan that is run, and changes it."""

from __future__ import annotations

import asyncio
import textwrap
from pathlib import Path

import pytest

from aar.commands.base import Submit, Text
from aar.config.paths import paths
from aar.protocol.events import Notice, PlanEvent
from tests.commands.support import desk

pytestmark = pytest.mark.usefixtures("clean_environment")
PLANNER = """
from aar.extensions.api import *
class P:
    async def plan(self, task, context):
        if "nothing" in task: return []
        return [PlanItem(id="a", title=task, done_when="file: a.txt"),
                PlanItem(id="b", title="Then", depends_on=("a",), done_when="file: missing.txt", status="completed")]
    async def replan(self, goal, items, why, context):
        {replan}
def register(api): api.replace_planner(P())
"""
BETTER = """\
assert [item.status for item in items] == ["completed", "pending"] and "missing.txt" in items[1].note, items
        return [PlanItem(id="c", title="Other way", depends_on=("a",), done_when="file: a.txt")]"""


def planner(replan: str) -> None:
    folder = paths().config / "extensions"
    folder.mkdir(parents=True)
    (folder / "p.py").write_text(textwrap.dedent(PLANNER).format(replan=replan))


async def test_it_makes_the_plan_of_a_goal_and_another_one_when_a_step_fails(tmp_path: Path) -> None:
    planner(BETTER)
    answers = [{"text": "Nothing to do."}] * 3
    async with desk(tmp_path, *answers, mode="edit", sets=("plan.retries=1",)) as at:
        shown = await at.run("/plan have it")
        assert isinstance(shown, Text)
        assert "· b. Then" in shown.markdown
        assert at.talk.mode == "plan"
        await at.run("/plan run")
        async with asyncio.timeout(30):
            await at.talk.wait()
        assert at.talk.last_result is not None
        assert at.talk.last_result.stop_reason == "verified"
        plan = at.talk.session.totals.task_plan
        assert plan is not None
        assert [(item.id, item.status) for item in plan.items] == [("a", "completed"), ("c", "completed")]
        assert plan.replans == 1


async def test_the_model_plans_where_it_has_no_plan_or_fails(tmp_path: Path) -> None:
    planner("return [PlanItem(id='c', title='x', depends_on=('nowhere',))]")
    better = {"tool_calls": [{"name": "plan", "arguments": {"items": [{"id": "m", "title": "Model's"}]}}]}
    answers = [{"text": "A."}, {"text": "B."}, better, {"text": "Changed."}, {"text": "Done."}]
    async with desk(tmp_path, *answers, mode="edit", sets=("plan.retries=1",)) as at:
        assert isinstance(await at.run("/plan nothing"), Submit)
        await at.run("/plan have it")
        await at.run("/plan run")
        async with asyncio.timeout(30):
            await at.talk.wait()
        events = list(at.talk.session.events())
        told = [event.message for event in events if isinstance(event, Notice) and event.code == "extension"]
        assert told == [
            "The extension p failed (planner: Item c depends on nowhere, which does not exist: c needs nowhere. "
            "There are: a, c); the model changes the plan."
        ]
        last = [event for event in events if isinstance(event, PlanEvent)][-1]
        assert [(item.id, item.status) for item in last.items] == [("a", "completed"), ("m", "completed")]


async def test_in_mode_plan_its_plan_of_a_prompt_can_be_run(tmp_path: Path) -> None:
    planner("return []")
    async with desk(tmp_path, {"text": "Fine."}, mode="plan") as at:
        await at.say("have it")
        plan = at.talk.session.totals.task_plan
        assert plan is not None
        assert (plan.goal, plan.stage, len(plan.items)) == ("have it", "draft", 2)
