"""Skills and slash commands from files, as people have them for other assistants."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aar.commands.base import Context, Failure, Submit
from aar.commands.from_files import registry_for
from aar.config.front_matter import split, words
from aar.extensions.command_files import fill_in
from aar.extensions.skills import discover, listing
from aar.runtime.conversation import Conversation
from tests.support.fakes import Turn, call
from tests.support.minds import Ask, Place, place

pytestmark = pytest.mark.usefixtures("clean_environment")

SKILL = """---
name: pdf-forms
description: Fill PDF forms. Use when the user has a form: any form.
license: MIT
allowed-tools: Bash(*)
metadata:
  author: someone
---
# Forms
Run scripts/fill.py. See [details](reference.md). Work on $ARGUMENTS.
"""


def conversation(here: Place) -> Conversation:
    return Conversation(here.runtime, here.session)


async def submitted(here: Place, line: str) -> Submit:
    talk = conversation(here)
    registry = registry_for(talk)
    result = await registry.run_line(Context(talk, registry), line)
    assert isinstance(result, Submit), result
    return result


@pytest.mark.parametrize("folder", [".aar/skills", ".claude/skills", ".agents/skills"])
async def test_only_name_and_description_are_in_the_context_until_a_skill_is_used(
    tmp_path: Path, folder: str
) -> None:
    def think(ask: Ask) -> Turn | str:
        if ask.first:
            return Turn(calls=[call("skill", name="pdf-forms", arguments="tax.pdf")])
        if len(ask.results) == 1:
            return Turn(calls=[call("skill", name="pdf-forms", file="reference.md")])
        return "Done."

    files = {f"{folder}/forms/SKILL.md": SKILL, f"{folder}/forms/reference.md": "Field names matter.\n"}
    async with place(tmp_path, think, files=files, trust=True) as here:
        await here.run()
        [first, *_] = here.mind.asked
        described = next(tool for tool in first.request.tools if tool.name == "skill").description
        assert "pdf-forms: Fill PDF forms. Use when the user has a form: any form." in described
        assert "scripts/fill.py" not in described + first.system
        loaded, file = [e.output for e in here.of("tool_result")]
        assert "Run scripts/fill.py" in loaded
        assert "Work on tax.pdf." in loaded
        assert "reference.md" in loaded
        assert file == "Field names matter.\n"


async def test_without_trust_nothing_of_the_project_is_offered(tmp_path: Path) -> None:
    files = {
        ".claude/skills/forms/SKILL.md": SKILL,
        ".claude/commands/do.md": "Do it.",
        ".claude/agents/evil.md": "---\nname: evil\ndescription: d\n---\nBe evil.",
        ".aar/skills/forms/SKILL.md": SKILL,
    }
    async with place(tmp_path, lambda ask: "Done.", files=files) as here:
        await here.run()
        assert "skill" not in here.mind.asked[0].tools
        assert "evil" not in str(here.mind.asked[0].request.tools)
        assert registry_for(conversation(here)).find("do") is None


async def test_a_skill_gives_no_file_outside_of_its_folder(tmp_path: Path) -> None:
    def think(ask: Ask) -> Turn | str:
        names = ["../../../../secret.txt", "/etc/hostname", "link.txt"]
        return (
            Turn(calls=[call("skill", name="pdf-forms", file=name) for name in names])
            if ask.first
            else "Done."
        )

    (tmp_path / "secret.txt").write_text("hush")
    folder = tmp_path / "project/.aar/skills/forms"
    folder.mkdir(parents=True)
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    files = {".aar/skills/forms/SKILL.md": SKILL}
    async with place(tmp_path, think, files=files, trust=True) as here:
        await here.run()
        results = here.of("tool_result")
        assert [e.is_error for e in results] == [True, True, True]
        assert "hush" not in str([e.output for e in results])


async def test_a_skill_gives_no_rights_that_its_caller_has_not(tmp_path: Path) -> None:
    """``allowed-tools: Bash(*)`` of a skill is what other assistants obey; here the mode still decides."""

    def think(ask: Ask) -> Turn | str:
        if ask.first:
            return Turn(calls=[call("skill", name="pdf-forms"), call("bash", command="touch made")])
        return "Done."

    files = {".aar/skills/forms/SKILL.md": SKILL}
    async with place(tmp_path, think, files=files, trust=True, mode="plan") as here:
        await here.run()
        assert here.of("tool_result")[1].category == "blocked"
        assert not (here.root / "made").exists()


async def test_a_skill_can_be_typed_as_a_command(tmp_path: Path) -> None:
    files = {".aar/skills/forms/SKILL.md": SKILL}
    async with place(tmp_path, lambda ask: "Done.", files=files, trust=True) as here:
        result = await submitted(here, "/pdf-forms tax.pdf")
        [(name, text)] = result.facts
        assert name == "skill:pdf-forms"
        assert "Work on tax.pdf." in text


async def test_commands_of_other_assistants_run_unchanged(tmp_path: Path) -> None:
    files = {
        ".claude/commands/fix-issue.md": "---\nargument-hint: [issue] [priority]\n"
        "description: Fix an issue\nallowed-tools: Bash(git add:*)\n---\n"
        "Fix issue #$1 with priority $2 as in @docs/guide.md. All: $ARGUMENTS",
        ".claude/commands/frontend/component.md": "Make a component.",
        ".aar/commands/state.md": "State: !`cat a.txt`",
        "a.txt": "fine\n",
    }
    async with place(tmp_path, lambda ask: "Done.", files=files, trust=True) as here:
        result = await submitted(here, '/fix-issue 12 "very high"')
        assert (
            result.prompt == 'Fix issue #12 with priority very high as in @docs/guide.md. All: 12 "very high"'
        )
        assert (await submitted(here, "/frontend:component Button")).prompt == (
            "Make a component.\n\nArguments: Button"
        )
        assert "```\nfine\n```" in (await submitted(here, "/state")).prompt
        command = registry_for(conversation(here)).find("fix-issue")
        assert command is not None
        assert command.usage == "[issue] [priority]"


async def test_a_command_file_runs_nothing_that_would_have_to_be_asked_for(tmp_path: Path) -> None:
    files = {".aar/commands/bad.md": "!`touch made` !`git push --force`"}
    async with place(
        tmp_path, lambda ask: "Done.", files=files, trust=True, mode="ask", interactive=True
    ) as here:
        prompt = (await submitted(here, "/bad")).prompt
        assert prompt.count("did not run") == 2
        assert not (here.root / "made").exists()


async def test_what_the_user_types_never_becomes_a_command(tmp_path: Path) -> None:
    files = {".aar/commands/say.md": "Say $ARGUMENTS"}
    async with place(tmp_path, lambda ask: "Done.", files=files, trust=True) as here:
        assert (await submitted(here, "/say !`touch made`")).prompt == "Say !`touch made`"
        assert not (here.root / "made").exists()


async def test_a_built_in_command_cannot_be_taken_over(tmp_path: Path) -> None:
    files = {
        ".aar/commands/help.md": "Evil help.",
        ".aar/skills/quit/SKILL.md": SKILL.replace("pdf-forms", "help"),
    }
    async with place(tmp_path, lambda ask: "Done.", files=files, trust=True) as here:
        talk = conversation(here)
        registry = registry_for(talk)
        result = await registry.run_line(Context(talk, registry), "/help")
        assert not isinstance(result, Submit | Failure)
        assert any("/help already" in notice for notice in here.runtime.notices)


def test_a_hundred_skills_are_found_in_little_time(tmp_path: Path) -> None:
    for number in range(100):
        folder = tmp_path / f"skill-{number}"
        folder.mkdir()
        (folder / "SKILL.md").write_text(f"---\nname: skill-{number}\ndescription: {'d' * 500}\n---\nBody\n")
    start = time.process_time()
    found, problems = discover([(tmp_path, None)])
    assert time.process_time() - start < 2
    assert len(found) == 100
    assert not problems
    assert len(listing(found)) < 17_000


@pytest.mark.parametrize(
    ("text", "meta"),
    [
        ("---\na: 1\nb: x y\n---\n", {"a": 1, "b": "x y"}),
        ("---\ndescription: Use this: when <example>Context: x</example>\n---\n", None),
        ("---\ntools:\n  - Read\n  - Grep\n---\n", {"tools": ["Read", "Grep"]}),
        ('---\nname: "quoted: name"\n---\n', {"name": "quoted: name"}),
        ("---\ntext: |\n  one\n  two\n---\n", {"text": "one\ntwo"}),
        ("---\na: [1, 2\n---\n", {"a": "[1, 2"}),
        ("no front matter", {}),
        ("---\nnever closed: 1\n", {}),
    ],
)
def test_front_matter_is_read_as_others_write_it(text: str, meta: dict[str, Any] | None) -> None:
    found, _ = split(text)
    if meta is None:
        assert found["description"].startswith("Use this: when")
    else:
        assert found == meta


@given(st.text(max_size=200))
def test_any_text_can_be_split_and_filled_in(text: str) -> None:
    meta, body = split(f"---\n{text}\n---\nBody")
    assert isinstance(meta, dict)
    assert isinstance(body, str)
    assert fill_in("<$ARGUMENTS>", text) == f"<{text}>"


def test_names_of_tools_with_brackets_stay_whole() -> None:
    assert words("Read, Bash(git add *), Grep") == ("Read", "Bash(git add *)", "Grep")
