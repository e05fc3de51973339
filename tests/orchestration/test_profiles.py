"""Agents from files: each field of the front matter, and what is wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from aar.config.front_matter import Document
from aar.orchestration.profiles import BUILT_IN, Profile, profile_of
from aar.tools.builtin.catalogue import builtin_tools
from aar.tools.registry import ToolRegistry


def read(**meta: object) -> Profile | str:
    return profile_of(Document(Path("/x/careful.md"), {"description": "d", **meta}, "Work with care."))


def test_every_field_is_read() -> None:
    found = read(
        name="careful",
        tools=["Read", "Bash", "memory_read"],
        model="openai/gpt-5",
        reasoning="high",
        temperature=0.2,
        mode="edit",
        max_steps=7,
        max_cost=0.5,
        stop=["END"],
        memory=False,
        advisors=["explore", "security"],
        handoff="reviewer",
        critic=True,
    )
    assert isinstance(found, Profile)
    assert (found.model, found.reasoning, found.temperature, found.mode) == (
        "openai/gpt-5",
        "high",
        0.2,
        "edit",
    )
    assert (found.max_steps, found.max_cost, found.stop) == (7, 0.5, ("END",))
    assert (found.memory, found.critic) == (False, True)
    assert (found.advisors, found.handoff) == (("explore", "security"), ("reviewer",))
    offered = ["read_file", "bash", "write_file", "memory_read"]
    assert found.allowed(ToolRegistry(builtin_tools()), offered) == {"read_file", "bash"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("memory", "perhaps"),
        ("critic", 3),
        ("advisors", ["no such name!"]),
        ("max_steps", 0),
        ("max_cost", -1),
    ],
)
def test_a_field_that_cannot_be_meant_is_told_with_its_file(field: str, value: object) -> None:
    found = read(**{field: value})
    assert isinstance(found, str)
    assert found.startswith("/x/careful.md: ")
    assert field in found


def test_the_built_in_agents_are_those_that_the_documentation_names() -> None:
    names = {profile.name for profile in BUILT_IN}
    assert names == {"explore", "plan", "coder", "reviewer", "tester", "security", "docs"}
    assert {profile.name for profile in BUILT_IN if profile.mode == "plan"} == {
        "explore",
        "plan",
        "reviewer",
        "security",
    }
