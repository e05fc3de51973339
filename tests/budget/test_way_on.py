"""Whoever is stopped by a limit is told how the work goes on, in the words of their door."""

from __future__ import annotations

from pathlib import Path

import pytest

from aar.commands.base import Choice, Failure, Submit, Table, Text
from aar.config.schema import BudgetConfig, Config, GuardrailsConfig, LimitsConfig
from aar.core.budget import Budget, Line
from aar.core.limits import RunLimits
from aar.core.way_on import way_on
from aar.protocol.errors import UsageError
from aar.protocol.state import StopReason
from aar.protocol.usage import Usage
from tests.commands.support import Desk, desk


def offered(
    reason: StopReason,
    *,
    commands: bool,
    kept: str | None = "01M8",
    limits: dict[str, float] | None = None,
    lines: tuple[Line, ...] = (),
    spent: float = 0,
) -> str | None:
    budget = Budget(BudgetConfig(session_usd=1), lambda: spent) if lines else None
    run = RunLimits(LimitsConfig.model_validate(limits or {}), GuardrailsConfig(), budget=budget)
    run.steps = 1
    run.count(Usage(input=1000), 2.0)
    return way_on(reason, run, lines, kept, commands=commands)


def test_a_run_that_ended_well_or_failed_is_offered_nothing() -> None:
    for reason in (StopReason.END_TURN, StopReason.ERROR, StopReason.CANCELLED, StopReason.DENIED):
        assert offered(reason, commands=True) is None


def test_without_commands_the_flag_is_named() -> None:
    assert (
        offered(StopReason.BUDGET, commands=False, limits={"usd": 2})
        == 'To go on: aar run --session 01M8 --max-cost 4 "go on"'
    )
    assert (
        offered(StopReason.MAX_STEPS, commands=False, limits={"steps": 2})
        == 'To go on: aar run --session 01M8 --max-steps 4 "go on"'
    )
    assert offered(StopReason.BUDGET, commands=False, kept=None, limits={"tokens": 1000}) == (
        "--set limits.tokens=2000 lets it go further."
    )
    told = offered(StopReason.BUDGET, commands=False, lines=(Line("session", 3, 1),), spent=3)
    assert told == 'To go on: aar run --session 01M8 --set budget.session_usd=6 "go on"'


def test_where_commands_are_typed_the_command_is_named() -> None:
    told = offered(StopReason.BUDGET, commands=True, lines=(Line("session", 3, 1),), spent=3)
    assert told == "/budget session 6 raises the limit to that many dollars and goes on."
    assert offered(StopReason.MAX_STEPS, commands=True, limits={"steps": 2}) == (
        "Say “go on” and it goes on with as much again ([limits] steps = 2, for each prompt)."
    )


def test_the_settings_of_the_machine_bound_what_may_be_set() -> None:
    budget = Budget(BudgetConfig(session_usd=3), lambda: 0.0, ceilings={"session": 5})
    budget.set_limit("session", 5)
    for wanted in (6, 0):
        with pytest.raises(UsageError, match=r"allow \$5.00 for a session at most"):
            budget.set_limit("session", wanted)
    assert [line.limit for line in budget.lines()] == [5, 0]


def spend(at: Desk, usd: float) -> None:
    """Let the session have cost ``usd``; scripted models cost nothing."""
    at.talk.agent.budget = Budget(at.context.runtime.config.budget, lambda: usd)


async def test_a_session_that_stopped_at_its_budget_goes_on_by_one_command(tmp_path: Path) -> None:
    async with desk(tmp_path, {"text": "done"}, sets=("budget.session_usd=2",)) as at:
        table = await at.run("/budget")
        assert isinstance(table, Table)
        assert table.rows[0] == ("session", "$0.0000", "$2.00", "$2.00")
        spend(at, 3)
        await at.say("work")
        stopped = at.talk.last_result
        assert stopped is not None
        assert (stopped.stop_reason, stopped.steps) == ("budget", 0)
        assert stopped.way_on == "/budget session 6 raises the limit to that many dollars and goes on."
        told = [event for event in at.talk.session.events() if getattr(event, "code", "") == "go_on"]
        assert len(told) == 1
        choice = await at.run("/budget")
        assert isinstance(choice, Choice)
        assert [item.command for item in choice.items] == ["/budget session 6"]
        assert isinstance(await at.run("/budget session 2.5"), Text)
        again = await at.run(choice.items[0].command)
        assert isinstance(again, Submit)
        await at.say(again.prompt)
        assert at.talk.last_result is not None
        assert at.talk.last_result.stop_reason == "end_turn"
        at.talk.set_model(at.context.runtime.active.name)
        assert at.talk.agent.budget is not None
        assert at.talk.agent.budget.lines()[0].limit == 6, "another model forgets what was allowed"


@pytest.mark.parametrize("line", ["/budget week 3", "/budget session", "/budget day much", "/budget day -1"])
async def test_a_budget_that_makes_no_sense_is_refused(tmp_path: Path, line: str) -> None:
    async with desk(tmp_path) as at:
        assert isinstance(await at.run(line), Failure)
        assert Config().budget == at.context.runtime.config.budget
