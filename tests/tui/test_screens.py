"""Screens over the main one, with a whole app behind them: lists, changes, settings, questions at the start."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.content import Content
from textual.pilot import Pilot
from textual.widgets import Input, OptionList

from aar.config.paths import paths
from aar.config.trust import TrustStore
from aar.core.file_diffs import FileDiff
from aar.runtime import models as runtime_models
from aar.transports.tui.app import AarApp
from aar.transports.tui.keys import shown_keys
from aar.transports.tui.layout import Look
from aar.transports.tui.screens.ask_text import AskText
from aar.transports.tui.screens.diff_view import DiffView, file_line, hunk_lines
from aar.transports.tui.screens.picker import Picker, Row, matches, row_contents
from aar.transports.tui.screens.question import FirstRunScreen, TrustScreen
from aar.transports.tui.screens.sessions import SessionPicker
from aar.transports.tui.screens.text_view import TextView
from aar.transports.tui.side_panel import SidePanel
from tests.tui.screens import screen_text, until

WRITES = {
    "text": "",
    "tool_calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "one\ntwo\n"}}],
}
DONE = {"text": "Done."}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


@asynccontextmanager
async def opened(
    project: Path, *steps: dict[str, Any], size: tuple[int, int] = (120, 40), **kwargs: Any
) -> AsyncIterator[tuple[AarApp, Pilot[int]]]:
    """The whole app with a scripted model, once its session is open."""
    file = project.parent / "scenario.json"
    file.write_text(json.dumps({"steps": list(steps or (DONE,)), "after": "last"}))
    options = {
        "model": f"scripted/{file}",
        "cwd": project,
        "sets": kwargs.pop("sets", ()),
        "mode": kwargs.pop("mode", "edit"),
    }
    app = AarApp(options, user_themes=paths().config / "themes", **kwargs)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.connection is not None and app.prompting.conversation is not None)
        yield app, pilot


async def say(app: AarApp, pilot: Pilot[int], text: str) -> None:
    await pilot.press(*text, "enter")
    await until(
        pilot, lambda: app.conversation and app.conversation.last_result and not app.conversation.running
    )
    await pilot.pause(0.1)


def saved() -> dict[str, Any]:
    return tomllib.loads(paths().user_config.read_text())


# --- parts of a list -----------------------------------------------------------------------------------------


def test_every_word_of_a_query_must_stand_in_the_row() -> None:
    row = Row("1", "Fix the Parser", "2 days ago", search="src/parse.py")
    assert matches(row, "parser FIX")
    assert matches(row, "parse.py days")
    assert not matches(row, "parser lexer")
    assert matches(row, "")


def test_a_row_is_harmless_and_no_markup() -> None:
    line = row_contents([Row("1", "[bold]x[/]\x1b[2J\nnew", "\u202edetail")], 80)[0]
    assert line.plain.startswith("  [bold]x[/]␛[2J")
    assert not set(line.plain) & {"\x1b", "\n", "\u202e"}
    assert isinstance(line, Content)


def test_rows_stand_in_columns_that_fit_the_width() -> None:
    rows = [Row("1", "plan", "reads only; every change is refused"), Row("2", "ask", "asks", mark=True)]
    assert [row.plain for row in row_contents(rows, 30)] == [
        "  plan  reads only; every\n        change is refused",
        "• ask   asks",
    ]
    long = [Row("1", "a model with a long name", "needs a key that is not there")]
    assert (
        row_contents(long, 30)[0].plain
        == "  a model with a long name\n    needs a key that is not\n    there"
    )
    dated = [Row("1", "漢字 " * 20, lead="2 h"), Row("2", "short", "/elsewhere", "12 min")]
    shown = row_contents(dated, 30)
    assert [row.plain.split("\n") for row in shown] == [[shown[0].plain], ["  12 min  short  /elsewhere"]]
    assert shown[0].plain.endswith("…")
    assert max(row.cell_length for row in shown) <= 30


# --- layout ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40), (200, 50)])
async def test_the_screen_is_whole_at_every_size(project: Path, size: tuple[int, int]) -> None:
    async with opened(project, size=size) as (app, pilot):
        await say(app, pilot, "hello")
        lines = screen_text(app).split("\n")
        assert "ask" in lines[0] or "edit" in lines[0]
        assert "Done." in screen_text(app)
        assert "send" in lines[size[1] - 1]
        assert app.query_one(SidePanel).display is (size[0] >= 120)


async def test_the_panel_comes_and_goes_with_the_width_of_the_terminal(project: Path) -> None:
    async with opened(project, size=(80, 24)) as (app, pilot):
        panel = app.query_one(SidePanel)
        for columns, shown in ((200, True), (80, False), (200, True), (60, False)):
            await pilot.resize_terminal(columns, 40)
            await until(pilot, lambda: app.size.width == columns and app._settling is None)  # noqa: B023
            assert panel.display is shown


async def test_f2_opens_the_panel_alone_on_a_narrow_screen_and_closes_it(project: Path) -> None:
    async with opened(project, size=(60, 20)) as (app, pilot):
        panel, transcript = app.query_one(SidePanel), app.query_one("Transcript")
        await pilot.press("f2")
        await pilot.pause()
        assert panel.display
        assert transcript.has_class("-gone")
        assert panel.size.width > 50
        await pilot.press("ctrl+t")
        await pilot.pause()
        assert not panel.display
        assert not transcript.has_class("-gone")


async def test_parts_can_be_switched_off_in_the_config(project: Path) -> None:
    sets = ("tui.layout.header=false", "tui.layout.footer=false", "tui.layout.panel=false")
    async with opened(project, sets=sets) as (app, pilot):
        await until(pilot, lambda: app.query_one("HeaderBar").has_class("-gone"))
        assert app.query_one("FooterBar").has_class("-gone")
        assert not app.query_one(SidePanel).display


async def test_chosen_keys_work_and_conflicts_are_told(project: Path) -> None:
    sets = ('tui.keys.app={toggle_panel="f12", show_log="f5"}',)
    async with opened(project, sets=sets) as (app, pilot):
        await until(pilot, lambda: "f5 already does app.show_changes" in screen_text(app))
        shown = app.query_one(SidePanel).display
        await pilot.press("f2")
        assert app.query_one(SidePanel).display is shown
        await pilot.press("f12")
        assert app.query_one(SidePanel).display is not shown


async def test_a_screen_reader_gets_words_and_no_animation(project: Path) -> None:
    table = {"text": "| a | b |\n|---|---|\n| 1 | 2 |\n\n> quoted"}
    sets = ("tui.screen_reader=true",)
    async with opened(project, table, look=Look(screen_reader=True), sets=sets) as (app, pilot):
        await say(app, pilot, "hello")
        assert app.has_class("-plain")
        assert app.animation_level == "none"
        assert not re.search("[\u2500-\u259f⠋⠙]", screen_text(app))
        assert "> hello" in screen_text(app)


async def test_losing_the_focus_of_the_window_takes_none_from_the_prompt(project: Path) -> None:
    async with opened(project) as (app, pilot):
        before = app.focused
        app.app_focus = False
        await pilot.pause()
        assert app.focused is before


# --- lists -----------------------------------------------------------------------------------------------------


async def test_f1_shows_all_keys_and_escape_goes_back(project: Path) -> None:
    async with opened(project, size=(80, 24)) as (app, pilot):
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(app.screen, TextView))
        await pilot.pause()
        assert "End the present run; what was shown is kept." in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, TextView))


async def test_another_session_is_found_by_its_words_and_goes_on(project: Path) -> None:
    async with opened(project) as (app, pilot):
        await say(app, pilot, "first task")
        first = app.conversation.session.session_id
        await app.conversation.new_session()
        await say(app, pilot, "second task")
        await pilot.press("f3")
        await until(pilot, lambda: isinstance(app.screen, Picker))
        await pilot.press(*"first")
        rows = app.screen.query_one(OptionList)
        await until(pilot, lambda: rows.option_count == 1)
        # The list is drawn a moment after it has become short.
        await until(pilot, lambda: "second task" not in screen_text(app))
        assert "first task" in screen_text(app)
        await until(pilot, lambda: "Done." in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: app.conversation.session.session_id == first)
        await say(app, pilot, "go on")
        said = [event for event in app.conversation.session.events() if event.type == "user_message"]
        assert [event.content[0].text for event in said] == ["first task", "go on"]


async def test_the_list_of_sessions_searches_what_was_said_and_shows_the_place(project: Path) -> None:
    long_ago = {"text": "The rounding of sums was wrong."}
    async with opened(project, long_ago, DONE) as (app, pilot):
        await say(app, pilot, "first task")
        first = app.conversation.session.session_id
        await app.conversation.new_session()
        await say(app, pilot, "second task")
        await pilot.press("f3")
        await until(pilot, lambda: isinstance(app.screen, Picker))
        await pilot.press(*"round")
        answer = "The rounding of sums was wrong."
        await until(pilot, lambda: answer in screen_text(app))
        await until(pilot, lambda: screen_text(app).count(answer[:12]) >= 2)  # in the row and beside it
        await until(pilot, lambda: "assistant, event" in screen_text(app))
        shown = screen_text(app)
        assert "first task" in shown
        assert "second task" not in shown
        await pilot.press(*["backspace"] * 5)
        await until(pilot, lambda: "second task" in screen_text(app))
        await until(pilot, lambda: "assistant, event" not in screen_text(app))
        await pilot.press(*"sums was")
        await until(pilot, lambda: "assistant, event" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: app.conversation.session.session_id == first)


async def test_a_session_is_renamed_and_deleted_in_the_list(project: Path) -> None:
    async with opened(project) as (app, pilot):
        await say(app, pilot, "first task")
        await app.conversation.new_session()
        await say(app, pilot, "second task")
        store = app.conversation.runtime.store

        async def titles() -> set[str]:
            await pilot.pause()
            return {info.title or "" for info in store.list()}

        await pilot.press("f3")
        await until(pilot, lambda: isinstance(app.screen, SessionPicker) and app.screen.marked)
        await pilot.press("ctrl+r")  # the open one
        await until(pilot, lambda: isinstance(app.screen, AskText))
        app.screen.query_one(Input).value = "Renamed here"
        await pilot.press("enter")
        await until(pilot, lambda: app.conversation.session.title == "Renamed here")
        await until(pilot, lambda: "Renamed here" in screen_text(app))
        await pilot.press("ctrl+d", "ctrl+d")
        await until(pilot, lambda: "This is the open session" in screen_text(app))
        await pilot.press("down", "ctrl+r")  # a stored one
        await until(pilot, lambda: isinstance(app.screen, AskText))
        app.screen.query_one(Input).value = "Renamed there"
        await pilot.press("enter")
        await until(pilot, lambda: "Renamed there" in screen_text(app))
        assert await titles() == {"Renamed here", "Renamed there"}
        await pilot.press("ctrl+d")
        await until(pilot, lambda: "Delete “Renamed there” for good?" in screen_text(app))
        await pilot.press("up")  # another key keeps it
        await until(pilot, lambda: "for good?" not in screen_text(app))
        await pilot.press(*"first task")  # found by its words, not by its title
        await until(pilot, lambda: app.screen.marked and app.screen.marked.title == "Renamed there")
        await pilot.press("ctrl+d", "ctrl+r")
        await until(pilot, lambda: isinstance(app.screen, AskText))
        await pilot.press("escape", "ctrl+d")
        await until(pilot, lambda: "for good?" in screen_text(app))
        assert await titles() == {"Renamed here", "Renamed there"}
        await pilot.press("ctrl+d")
        await until(pilot, lambda: "Renamed there" not in screen_text(app))
        app.screen.query_one(Input).value = ""
        await until(pilot, lambda: "Renamed here" in screen_text(app))
        assert "Renamed there" not in screen_text(app)
        assert await titles() == {"Renamed here"}


async def test_the_theme_under_the_mark_is_shown_and_escape_takes_it_back(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLORTERM", "truecolor")
    async with opened(project) as (app, pilot):
        before = app.theme
        await pilot.press("f6")
        await until(pilot, lambda: isinstance(app.screen, Picker))
        await pilot.press(*"ember")
        await until(pilot, lambda: app.theme == "ember")
        await pilot.press("escape")
        await until(pilot, lambda: app.theme == before)
        assert not paths().user_config.exists(), "looking keeps nothing"
        await pilot.press("f6")
        await until(pilot, lambda: isinstance(app.screen, Picker))
        await pilot.press(*"ocean", "enter")
        await until(pilot, lambda: paths().user_config.is_file() and not isinstance(app.screen, Picker))
        await until(pilot, lambda: app.theme == "ocean")
        assert saved() == {"tui": {"theme": "ocean"}}


async def test_a_wrong_theme_in_the_config_is_told_and_the_screen_lives(project: Path) -> None:
    folder = paths().config / "themes"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text("name = 'mine'\ndark = true\n")
    async with opened(project, sets=("tui.theme=mine",)) as (app, pilot):
        await until(pilot, lambda: "is missing; give a colour" in " ".join(screen_text(app).split()))
        assert app.theme != "mine"
        await say(app, pilot, "hello")
        assert "Done." in screen_text(app)


async def test_models_are_listed_with_window_and_price_and_one_is_taken(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
    async with opened(project) as (app, pilot):
        await pilot.press("f4")
        await until(pilot, lambda: isinstance(app.screen, Picker))
        await pilot.pause()
        shown = screen_text(app)
        assert "needs OPENAI_API_KEY" in shown
        assert "OLLAMA_API_KEY" not in shown
        assert "128.0k tokens · free" in shown
        assert re.search(r"anthropic/\S+ .*tokens.*thinks", shown)
        await pilot.press(*"anthropic", "enter")
        await until(pilot, lambda: app.conversation.runtime.active.name.startswith("anthropic/"))
        await until(pilot, lambda: "claude" in screen_text(app).split("\n")[0])


async def test_shift_tab_goes_through_the_modes_and_never_to_unsafe(project: Path) -> None:
    async with opened(project, mode="plan") as (app, pilot):
        seen = []
        for _ in range(4):
            seen.append(app.conversation.mode)
            await pilot.press("shift+tab")
            await pilot.pause()
        assert seen[:3] == ["plan", "ask", "edit"]
        assert "unsafe" not in seen
        assert app.conversation.mode in {"plan", "ask"}


async def test_a_setting_is_written_to_the_users_file_and_a_wrong_one_is_told(project: Path) -> None:
    async with opened(project) as (app, pilot):
        await pilot.press("f7")
        await until(pilot, lambda: isinstance(app.screen, Picker))
        await pilot.press(*"layout.header", "enter")
        await until(
            pilot,
            lambda: app.screen.query("AskText #title, Input") and type(app.screen).__name__ == "AskText",
        )
        app.screen.query_one(Input).value = "maybe"
        await pilot.press("enter")
        await until(pilot, lambda: "tui.layout.header: " in screen_text(app))
        assert "maybe" in screen_text(app), "what was typed is there to be mended"
        assert not paths().user_config.exists()
        app.screen.query_one(Input).value = "false"
        await pilot.press("enter")
        await until(pilot, lambda: paths().user_config.exists())
        assert saved() == {"tui": {"layout": {"header": False}}}
        await until(pilot, lambda: isinstance(app.screen, Picker) and app.screen.marked)
        assert app.screen.query_one(Input).value == "layout.header"
        assert app.screen.marked.detail == "false"
        await until(pilot, lambda: app.screen_stack[0].query_one("HeaderBar").has_class("-gone"))


async def test_the_log_is_shown_sanitised(project: Path) -> None:
    async with opened(project) as (app, pilot):
        folder = paths().logs
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "aar.log").open("a") as file:
            file.write("2026 ERROR bad \x1b[2J thing\n")
        await pilot.press("f8")
        await until(pilot, lambda: isinstance(app.screen, TextView) and "ERROR" in screen_text(app))
        assert "2026 ERROR bad ␛[2J thing" in screen_text(app)
        assert "\x1b" not in screen_text(app)


# --- changes -----------------------------------------------------------------------------------------------------


async def test_a_change_is_shown_and_taken_back(project: Path) -> None:
    (project / "a.txt").write_text("one\n")
    async with opened(project, WRITES, DONE) as (app, pilot):
        await say(app, pilot, "write")
        assert (project / "a.txt").read_text() == "one\ntwo\n"
        await pilot.press("f5")
        await until(pilot, lambda: isinstance(app.screen, DiffView) and "+ two" in screen_text(app))
        assert "a.txt +1 −0" in screen_text(app)
        await pilot.press("R")
        await until(pilot, lambda: (project / "a.txt").read_text() == "one\n")
        await until(pilot, lambda: "No file is other" in screen_text(app))
        await pilot.press("q")
        await until(pilot, lambda: not isinstance(app.screen, DiffView))


def test_files_without_lines_to_show_say_what_they_are() -> None:
    binary = FileDiff("a.bin", "modify", b"\0", b"\1", True, ())
    script = FileDiff("run", "modify", b"x", b"x", False, (), "executable")
    assert file_line(binary, marked=False).plain.split() == ["a.bin", "binary"]
    assert file_line(script, marked=False).plain.split() == ["run", "executable"]
    assert "R takes the file back" in hunk_lines(script, 0)[0][0].plain


# --- questions at the start ----------------------------------------------------------------------------------------


@asynccontextmanager
async def started(project: Path, **options: Any) -> AsyncIterator[tuple[AarApp, Pilot[int]]]:
    app = AarApp({"cwd": project, **options})
    async with app.run_test(size=(100, 30)) as pilot:
        yield app, pilot


async def test_without_any_model_the_user_is_asked_and_the_choice_is_kept(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_models, "_ollama_runs", lambda: False)
    monkeypatch.setattr(runtime_models, "_local_installed", lambda base: False)
    monkeypatch.setattr("aar.providers.local.provider.installed", lambda settings, folder: False)
    async with started(project) as (app, pilot):
        await until(pilot, lambda: isinstance(app.screen, FirstRunScreen))
        await until(pilot, lambda: "Which model shall answer?" in screen_text(app))
        shown = screen_text(app)
        assert "set ANTHROPIC_API_KEY" in shown
        assert "not installed" in shown
        await pilot.press(*"another", "enter")
        await until(pilot, lambda: type(app.screen).__name__ == "AskText")
        app.screen.query_one(Input).value = "http://127.0.0.1:9/v1"
        await pilot.press("enter")
        await until(pilot, lambda: "Name of the model" in screen_text(app))
        await pilot.press(*"tiny", "enter")
        await until(pilot, lambda: app.connection is not None)
        assert saved()["model"]["name"] == "openai-compatible/tiny"
        assert app.conversation.runtime.active.name == "openai-compatible/tiny"


async def test_leaving_the_first_question_ends_with_the_sentence(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_models, "_ollama_runs", lambda: False)
    monkeypatch.setattr(runtime_models, "_local_installed", lambda base: False)
    async with started(project) as (app, pilot):
        await until(pilot, lambda: isinstance(app.screen, FirstRunScreen))
        await until(pilot, lambda: app.screen.query(OptionList))
        await pilot.press("escape")
        await until(pilot, lambda: app.failure is not None)
        assert "No model is configured" in str(app.failure)


@pytest.mark.parametrize(
    ("answer", "trusted", "asked_again"),
    [("yes", True, False), ("no", False, False), ("escape", False, True)],
)
async def test_a_project_that_brings_rules_is_asked_about_before_they_act(
    project: Path, answer: str, trusted: bool, asked_again: bool
) -> None:
    (project / "AGENTS.md").write_text("Always answer in verse. \x1b[2J")
    file = project.parent / "scenario.json"
    file.write_text(json.dumps({"steps": [DONE]}))
    model = f"scripted/{file}"
    async with started(project, model=model) as (app, pilot):
        await until(pilot, lambda: isinstance(app.screen, TrustScreen) and "AGENTS.md" in screen_text(app))
        assert app.connection is None
        await pilot.press(*([answer] if answer == "escape" else [*answer, "enter"]))
        await until(pilot, lambda: app.connection is not None)
        assert app.conversation.runtime.base.trusted is trusted
        assert TrustStore(paths()).is_trusted(project) is trusted
    async with started(project, model=model) as (app, pilot):
        await until(pilot, lambda: app.connection is not None or isinstance(app.screen, TrustScreen))
        assert isinstance(app.screen, TrustScreen) is asked_again


# --- the user's status line --------------------------------------------------------------------------------------


async def test_the_first_line_of_the_status_command_stands_in_the_footer(project: Path) -> None:
    script = project.parent / "status.py"
    script.write_text(
        "import json, sys\nfacts = json.load(sys.stdin)\nprint(facts['mode'], '\\x1b[31mhi')\nprint('second')\n"
    )
    async with opened(project, sets=(f"tui.status_command=python3 {script}",)) as (app, pilot):
        await until(pilot, lambda: "hi" in screen_text(app).split("\n")[39])
        footer = screen_text(app).split("\n")[39]
        assert "edit ␛[31mhi" in footer
        assert "second" not in screen_text(app)


async def test_a_status_command_that_fails_is_told(project: Path) -> None:
    async with opened(project, sets=("tui.status_command=exit 3",)) as (app, pilot):
        await until(pilot, lambda: "status_command ended" in screen_text(app))
        assert "status_command ended with exit 3" in screen_text(app)
        assert app.is_running
        assert app.failure is None


def test_the_list_of_keys_keeps_its_columns_on_a_narrow_screen() -> None:
    from aar.transports.tui.key_table import key_table
    from aar.transports.tui.screen_actions import key_lines

    for action in key_table():
        for width in (40, 76, 116):
            lines = [line.plain for line in key_lines(shown_keys(action.keys), action, width)]
            assert all(len(line.rstrip()) <= max(width, 52) for line in lines), lines
            told = " ".join(line[29:].strip() for line in lines)
            assert told.startswith(action.help)


async def test_a_long_command_goes_on_in_the_background_with_one_key(project: Path) -> None:
    command = {"command": "echo begun; read line < fifo; echo over"}
    steps = ({"tool_calls": [{"name": "bash", "arguments": command}]}, {"text": "Gone on."})
    os.mkfifo(project / "fifo")
    async with opened(project, *steps, mode="unsafe") as (app, pilot):
        await pilot.press("ctrl+b")
        await until(pilot, lambda: "No command of the agent runs" in screen_text(app))
        await pilot.press(*"go", "enter")
        await until(pilot, lambda: "begun" in screen_text(app))
        await pilot.press("ctrl+b")
        await until(pilot, lambda: "Gone on." in screen_text(app))
        background = app.conversation.runtime.background if app.conversation else {}
        assert [process.running for process in background.values()] == [True]
