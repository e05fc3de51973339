"""Advisors, critic and successors that an agent's own file names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.fakes import Turn, call
from tests.support.minds import Ask, Place, place

pytestmark = pytest.mark.usefixtures("clean_environment")


def agent_file(name: str, fields: str) -> dict[str, str]:
    return {f".aar/agents/{name}.md": f"---\nname: {name}\ndescription: d\n{fields}\n---\nI am {name}.\n"}


def who(ask: Ask) -> str:
    """Return which agent is asked."""
    for name in ("maker", "sage", "other"):
        if f"I am {name}." in ask.system:
            return name
    return "critic" if "Judge its work" in ask.system else "main"


def verdict(*improvements: str) -> str:
    found = [{"what": what, "why": "w", "fix": "f"} for what in improvements]
    return json.dumps({"verdict": "needs_improvement" if found else "approved", "improvements": found})


def asked(here: Place) -> list[str]:
    return [who(ask) for ask in here.mind.asked]


async def test_a_child_hears_the_advisors_of_its_file_and_they_ask_nobody_else(tmp_path: Path) -> None:
    def think(ask: Ask) -> Turn | str:
        match who(ask):
            case "sage":
                return "Mind the gap."
            case "maker":
                return "Made."
            case _:
                return Turn(calls=[call("task", prompt="make", agent="maker")]) if ask.first else "Done."

    files = agent_file("maker", "advisors: sage") | agent_file("sage", "advisors: [sage, maker]")
    async with place(tmp_path, think, files=files, trust=True) as here:
        await here.run()
        assert asked(here) == ["main", "sage", "maker", "main"]
        assert "Mind the gap." in next(ask.said for ask in here.mind.asked if who(ask) == "maker")
        [advice] = [event for event in here.of("context") if event.source == "advisor"]
        assert advice.agent_id.startswith("maker-")
        assert not advice.trusted


async def test_the_critic_of_a_childs_file_sends_its_report_back_once(tmp_path: Path) -> None:
    def think(ask: Ask) -> Turn | str:
        match who(ask):
            case "critic":
                return verdict("Too short.")
            case "maker":
                return "Longer." if "Too short." in ask.said else "Short."
            case _:
                return Turn(calls=[call("task", prompt="make", agent="maker")]) if ask.first else "Done."

    async with place(tmp_path, think, files=agent_file("maker", "critic: true"), trust=True) as here:
        await here.run()
        assert asked(here) == ["main", "maker", "critic", "maker", "main"]
        [output] = [event.output for event in here.of("tool_result", agent="main")]
        assert "Longer." in output


@pytest.mark.parametrize(("field", "judged"), [("critic: false", False), ("max_steps: 9", True)])
async def test_the_file_of_the_users_agent_can_do_without_the_configured_critic(
    tmp_path: Path, field: str, judged: bool
) -> None:
    def think(ask: Ask) -> Turn | str:
        return verdict() if who(ask) == "critic" else "Made."

    options: dict[str, Any] = {"sets": ("agents.critic=1",), "trust": True, "agent": "maker"}
    async with place(tmp_path, think, files=agent_file("maker", field), **options) as here:
        await here.run()
        assert asked(here) == (["maker", "critic"] if judged else ["maker"])


async def test_an_agent_gives_work_only_to_those_that_its_file_names(tmp_path: Path) -> None:
    def think(ask: Ask) -> Turn | str:
        if who(ask) == "other":
            return "Helped."
        calls = [call("task", prompt="p", agent=name) for name in ("coder", "other")]
        return Turn(calls=calls) if ask.first else "Done."

    files = agent_file("maker", "handoff: other") | agent_file("other", "mode: plan")
    async with place(tmp_path, think, files=files, trust=True, agent="maker") as here:
        await here.run()
        refused, helped = [event.output for event in here.of("tool_result", agent="main")]
        assert "may not give work to coder, only to: other" in refused
        assert "Helped." in helped


async def test_an_advisor_that_does_not_exist_is_told_and_the_work_goes_on(tmp_path: Path) -> None:
    files = agent_file("maker", "advisors: sgae") | agent_file("sage", "")
    async with place(tmp_path, lambda ask: "Made.", files=files, trust=True, agent="maker") as here:
        result = await here.run()
        assert result.text == "Made."
        assert any("did you mean sage" in event.message for event in here.of("notice"))


async def test_an_agent_that_is_only_asked_gives_work_to_no_others_either(tmp_path: Path) -> None:
    def think(ask: Ask) -> Turn | str:
        if who(ask) == "sage" and ask.first:
            return Turn(calls=[call("task", prompt="p", agent="coder")])
        return "Advice."

    files = agent_file("maker", "advisors: sage") | agent_file("sage", "handoff: maker")
    async with place(tmp_path, think, files=files, trust=True, agent="maker") as here:
        await here.run()
        [refused] = here.of("tool_result")
        assert refused.agent_id.startswith("sage-")
        assert "may not give work to coder" in refused.output
