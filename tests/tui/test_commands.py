"""Slash commands on the screen: the palette, the prompt, and what they answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.pilot import Pilot

from aar.commands.base import Table, Text
from aar.protocol.events import PlanItem, UserMessage
from aar.runtime.plan import set_down
from aar.safety.sanitize import sanitize
from aar.transports.tui.app import AarApp
from aar.transports.tui.palette import Palette, needs_words, ranked
from aar.transports.tui.prompt import PromptArea
from aar.transports.tui.results import ResultView, lines_of, passes_by
from aar.transports.tui.screens.picker import Picker, Row
from aar.transports.tui.transcript.palette import content_of
from tests.tui.screens import screen_text, until


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "a.txt").write_text("one\n")
    monkeypatch.chdir(folder)
    return folder


@asynccontextmanager
async def screen(project: Path, *steps: dict[str, Any]) -> AsyncIterator[Pilot[int]]:
    """The whole screen, ready, with a model that says ``steps``."""
    file = project.parent / "scenario.json"
    file.write_text(json.dumps({"steps": list(steps or ({"text": "Done."},)), "after": "last"}))
    app = AarApp({"model": f"scripted/{file}", "cwd": project})
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: app.connection is not None and app.commanding.ready)
        yield pilot


async def enter(pilot: Pilot[int], line: str) -> None:
    """Type a line into the prompt and send it."""
    area = pilot.app.query_one(PromptArea)
    area.set_text(line)
    area.focus()
    await pilot.pause(0.05)
    await pilot.press("escape", "enter")


def talk(pilot: Pilot[int]) -> Any:
    """Return the open conversation."""
    return pilot.app.connection.conversation  # pyright: ignore


def said(pilot: Pilot[int]) -> list[UserMessage]:
    """Return what was sent to the model."""
    return [event for event in talk(pilot).session.events() if isinstance(event, UserMessage)]


def words(pilot: Pilot[int]) -> list[str]:
    """Return the text of what was sent to the model."""
    return ["".join(getattr(block, "text", "") for block in event.content) for event in said(pilot)]


async def test_a_command_changes_the_session_and_is_not_sent(project: Path) -> None:
    async with screen(project) as pilot:
        await enter(pilot, "/mode edit")
        await until(pilot, lambda: talk(pilot).mode == "edit")
        await enter(pilot, "/rename My work")
        await until(pilot, lambda: talk(pilot).session.title == "My work")
        assert said(pilot) == []


async def test_a_table_fills_a_view_that_escape_closes(project: Path) -> None:
    async with screen(project) as pilot:
        await enter(pilot, "/status")
        await until(pilot, lambda: isinstance(pilot.app.screen, ResultView))
        await until(pilot, lambda: "project settings" in screen_text(pilot.app))
        await pilot.resize_terminal(50, 20)
        await until(pilot, lambda: "wall" in screen_text(pilot.app))
        assert max(map(len, screen_text(pilot.app).splitlines())) <= 50
        await pilot.press("escape")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
        assert said(pilot) == []


async def test_a_typo_is_told_and_the_text_is_not_sent(project: Path) -> None:
    async with screen(project) as pilot:
        await enter(pilot, "/modle")
        await until(pilot, lambda: "/model" in screen_text(pilot.app))
        assert said(pilot) == []


async def test_a_path_is_a_prompt(project: Path) -> None:
    async with screen(project) as pilot:
        await enter(pilot, "/etc/hosts is wrong")
        await until(pilot, lambda: said(pilot))
        assert words(pilot) == ["/etc/hosts is wrong"]


async def test_the_palette_finds_runs_and_fills_the_prompt(project: Path) -> None:
    async with screen(project) as pilot:
        await pilot.press("ctrl+p")
        await until(pilot, lambda: isinstance(pilot.app.screen, Palette))
        await pilot.press("s", "t", "a", "t", "u")
        await until(pilot, lambda: "/sandbox" not in screen_text(pilot.app))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, ResultView))
        await pilot.press("escape", "ctrl+p")
        await until(pilot, lambda: isinstance(pilot.app.screen, Palette))
        await pilot.press(*"rename")
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.screen_stack[0].query_one(PromptArea).text == "/rename ")
        assert not isinstance(pilot.app.screen, Palette)
        assert said(pilot) == [], "renaming waits for its words"


async def test_a_choice_runs_the_command_of_its_line(project: Path) -> None:
    async with screen(project) as pilot:
        await enter(pilot, "/mode")
        await until(pilot, lambda: isinstance(pilot.app.screen, Picker))
        await pilot.press(*"auto")
        await pilot.pause(0.1)
        await pilot.press("backspace", "backspace", "backspace", "backspace", *"plan", "enter")
        await until(pilot, lambda: talk(pilot).mode == "plan")
        assert len(pilot.app.screen_stack) == 1
        assert said(pilot) == []


async def test_a_plan_that_was_edited_wrongly_comes_back_to_be_mended(project: Path) -> None:
    async with screen(project) as pilot:
        area = pilot.app.query_one(PromptArea)
        set_down(talk(pilot).session, "Greet", [PlanItem(id="a", title="Say hi")], "test")
        await enter(pilot, "/plan edit")
        await until(pilot, lambda: "## a. Say hi" in area.text)
        wrong = area.text.replace("## a. Say hi", "## a. Say hi\nafter: b")
        area.set_text(wrong)
        await pilot.press("enter")
        await until(pilot, lambda: area.text == wrong.strip())
        assert "depends on b" in screen_text(pilot.app)
        area.set_text(wrong.replace("after: b", "done when: file: hi.txt"))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, ResultView))
        assert "done when file: hi.txt" in screen_text(pilot.app)
        assert said(pilot) == []


async def test_a_command_that_submits_starts_a_run(project: Path) -> None:
    async with screen(project, {"text": "Looked around."}) as pilot:
        await enter(pilot, "/init")
        await until(pilot, lambda: "Looked around." in screen_text(pilot.app))
        assert len(said(pilot)) == 1


@pytest.mark.parametrize("line", ["/sessions", "/model", "/log", "/keys", "/theme", "/layout", "/help"])
async def test_commands_open_their_screens_and_escape_closes_them(project: Path, line: str) -> None:
    async with screen(project) as pilot:
        await enter(pilot, line)
        await until(pilot, lambda: len(pilot.app.screen_stack) == 2)
        await pilot.pause(0.05)
        await pilot.press("escape")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
        assert said(pilot) == []


async def test_quit_leaves(project: Path) -> None:
    async with screen(project) as pilot:
        await enter(pilot, "/quit")
        await until(pilot, lambda: not pilot.app.is_running or pilot.app.return_code is not None)
        assert pilot.app.return_code == 0


async def test_a_file_is_attached_as_a_mention(project: Path) -> None:
    async with screen(project) as pilot:
        await enter(pilot, "/attach a.txt")
        await until(pilot, lambda: pilot.app.query_one(PromptArea).text == "@a.txt ")
        assert said(pilot) == [], "it goes out with the next prompt"


ROWS = [Row(name, f"/{name}", help_) for name, help_ in (
    ("model", "Choose the model."), ("mode", "What may run."), ("compact", "Sum up."), ("why", "Explain a decision."),
)]  # fmt: skip


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("mod", "model"),
        ("mode", "model"),
        ("cpt", "compact"),
        ("explain", "why"),
        ("/w", "why"),
        ("", "model"),
    ],
)
def test_the_palette_ranks_beginnings_then_words_then_letters(query: str, first: str) -> None:
    assert ranked(ROWS, query)[0].key == first
    assert ranked(ROWS, "zzz") == []


def test_commands_that_need_words_are_put_into_the_prompt() -> None:
    from aar.commands.registry import commands

    assert {item.name for item in commands() if needs_words(item)} == {"rename", "btw", "policy", "attach"}


@settings(max_examples=150, deadline=None)
@given(
    st.text(max_size=120),
    st.lists(st.lists(st.text(max_size=40), min_size=2, max_size=2), max_size=5),
    st.integers(1, 120),
    st.booleans(),
)
def test_results_of_any_text_fit_the_width_and_hold_no_control(
    words: str, rows: list[list[str]], width: int, headed: bool
) -> None:
    table = Table("t", ("a", "b") if headed else (), tuple((row[0], row[1]) for row in rows), words)
    for result in (Text(words), table):
        shown = content_of(lines_of(result, width)).plain
        assert sanitize(shown) == shown


def test_only_short_lines_pass_by() -> None:
    assert passes_by("Mode edit.")
    assert not passes_by("one\n\ntwo")
    assert not passes_by("x" * 400)


async def test_commands_that_are_added_later_are_offered_and_run(project: Path) -> None:
    from aar.commands.base import Command, Context, Result

    async def shout(context: Context, argument: str) -> Result:
        context.session.rename(argument.upper())
        return Text("Done.")

    async with screen(project) as pilot:
        commanding = pilot.app.commanding  # pyright: ignore
        commanding.registry.add(Command("shout", "Name the session loudly.", shout, usage="WORDS"))
        commanding.refresh_suggestions()
        await pilot.press("/", "s", "h", "o")
        await until(pilot, lambda: "Name the session loudly" in screen_text(pilot.app))
        await enter(pilot, "/shout hello")
        await until(pilot, lambda: talk(pilot).session.title == "HELLO")
        assert said(pilot) == []


async def test_a_rewind_brings_the_prompt_back_and_redo_the_conversation(project: Path) -> None:
    steps = ({"text": f"The answer to {words}."} for words in ("first", "second"))
    async with screen(project, *steps) as pilot:
        area = pilot.app.query_one(PromptArea)
        for words in ("first", "second"):
            talk(pilot).submit(words)
            await until(pilot, lambda words=words: f"The answer to {words}." in screen_text(pilot.app))
            await until(pilot, lambda: not talk(pilot).running)
        pilot.app.commanding.run(f"/rewind {said(pilot)[-1].seq}")  # pyright: ignore
        await until(pilot, lambda: area.text == "second")
        await until(pilot, lambda: "answer to second" not in screen_text(pilot.app))
        assert "The answer to first." in screen_text(pilot.app)
        assert "Esc interrupts" not in screen_text(pilot.app)
        pilot.app.commanding.run("/redo")  # pyright: ignore
        await until(pilot, lambda: "The answer to second." in screen_text(pilot.app))
        assert "Went back" not in screen_text(pilot.app)


async def test_the_list_of_prompts_names_them_without_their_attached_files(project: Path) -> None:
    async with screen(project) as pilot:
        await enter(pilot, "look at @a.txt please")
        await until(pilot, lambda: said(pilot) and not talk(pilot).running)
        pilot.app.commanding.run("/rewind")  # pyright: ignore
        await until(pilot, lambda: isinstance(pilot.app.screen, Picker))
        await until(pilot, lambda: "look at @a.txt please  the last one" in screen_text(pilot.app))
        assert "one\n" in words(pilot)[0], "the file was attached"
        assert "<file" not in screen_text(pilot.app)


def test_a_table_too_narrow_for_its_words_is_a_list_of_facts() -> None:
    table = Table(
        "Cost",
        ("model", "requests", "cost"),
        (("scripted/scripted", "3", "$0.0000+"),),
        right=frozenset({1, 2}),
    )
    wide = [line.text for line in lines_of(table, 60)]
    assert wide[0].split() == ["model", "requests", "cost"]
    narrow = [line.text.rstrip() for line in lines_of(table, 24)]
    assert narrow == ["scripted/scripted", "requests  3", "cost      $0.0000+"]


def test_a_fact_without_a_value_is_a_heading() -> None:
    table = Table("Commands", (), (("Work", ""), ("/plan", "Plan."), ("More", ""), ("/reload", "Read.")))
    assert [line.text for line in lines_of(table, 60)] == [
        "Work",
        "/plan    Plan.",
        "",
        "More",
        "/reload  Read.",
    ]
