"""Python extensions at every door: the screen, editors, slash commands and the command line."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from aar.commands.base import Context, Failure, Submit, Table, Text
from aar.commands.from_files import registry_for
from aar.config.paths import paths
from aar.protocol.panel import Panel, PanelLine
from aar.runtime import open_runtime
from aar.runtime.conversation import Conversation
from aar.transports.cli.main import cli
from aar.transports.tui.app import AarApp
from aar.transports.tui.panel_lines import PanelFacts, panel_lines
from aar.transports.tui.presenter import Presenter
from aar.transports.tui.theme_loader import load_theme, theme_names
from tests.acp.support import Editor
from tests.cli.support import script
from tests.tui.screens import screen_text

pytestmark = pytest.mark.usefixtures("clean_environment")

SHOWS = '''"""Shows things."""
from aar.extensions.api import *

def register(api):
    @api.panel("weather", title="Weather")
    def weather(context):
        return ["It rains.", PanelLine("calls", "field", str(context.numbers.tool_calls)),
                PanelLine("clouds", "gauge", amount=0.5), PanelLine("open", "action", "/sky open")]
    @api.command("sky", summary="Look at the sky.", usage="[WHAT]")
    def sky(argument, context):
        if argument == "send": return Send("Look up.")
        if argument == "rows": return Rows("Sky", ("A",), (("b",),))
        if argument == "fail": raise KeyError("x")
        if argument == "hang":
            while True: pass
        return "blue " + argument
    @api.command("help", summary="Taken.")
    def help(argument, context): return "no"
    api.theme("storm", dark=True, background="#101418", surface="#181c22", panel="#20252c",
              foreground="#e0e4ea", primary="#7aa2f7", secondary="#9aa5ce", accent="#bb9af7",
              success="#9ece6a", warning="#e0af68", error="#f7768e")
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    return folder


def mine(name: str, text: str) -> Path:
    folder = paths().config / "extensions"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(text)
    return folder / f"{name}.py"


async def test_a_panel_stands_in_the_side_panel_and_follows_the_session(
    project: Path, tmp_path: Path
) -> None:
    mine("shows", SHOWS)
    app = AarApp({"model": script(tmp_path / "m.json", "Done."), "cwd": project})
    async with app.run_test(size=(140, 30)) as pilot:
        end = time.monotonic() + 30
        while "Weather" not in screen_text(app):
            assert time.monotonic() < end, screen_text(app)
            await pilot.pause(0.05)
        shown = screen_text(app)
        assert "It rains." in shown
        assert "██████░░░░░░ 50%" in shown
        assert app.commanding.registry is not None
        assert app.commanding.registry.find("sky") is not None


def test_panels_are_drawn_in_words_alone_for_screen_readers() -> None:
    presenter = Presenter()
    lines = (
        PanelLine("XP", "gauge", amount=0.25),
        PanelLine("rest", "action", "/x rest"),
        PanelLine("\x1b[31mred"),
    )
    presenter.set_panels((Panel("a.b", "Title", lines),))
    assert presenter.drain().status
    shown = [line.text for line in panel_lines(presenter.status, PanelFacts(), 30, plain=True)]
    assert shown[:3] == ["Title", "XP 25%", "rest /x rest"]
    assert "\x1b" not in "".join(shown)
    presenter.set_panels(presenter.status.panels)
    assert not presenter.drain().status


async def test_an_editor_gets_panels_as_data_and_the_commands(project: Path, tmp_path: Path) -> None:
    mine("shows", SHOWS)
    async with Editor.inside(model=script(tmp_path / "m.json", "Done.")) as editor:
        await editor.greet()
        session = await editor.new(project)
        told = await editor.until(
            lambda: [update["_meta"] for update in editor.told("session_info_update") if "_meta" in update]
        )
        [panel] = told[-1]["aar.panels"]
        assert (panel["name"], panel["title"]) == ("shows.weather", "Weather")
        assert panel["lines"][2] == {
            "text": "clouds",
            "kind": "gauge",
            "value": "",
            "amount": 0.5,
            "tone": "plain",
        }
        names = [item["name"] for item in editor.told("available_commands_update")[-1]["availableCommands"]]
        assert "sky" in names
        assert await editor.say(session, "/sky high") == "end_turn"
        assert "blue high" in json.dumps(editor.updates)


async def conversation(project: Path, tmp_path: Path, **options: Any) -> Conversation:
    runtime = open_runtime(
        cwd=project, model=script(tmp_path / "m.json", "Done."), interactive=True, **options
    )
    talk = Conversation(runtime, runtime.open_session())
    await runtime.extras.extensions.ready(talk.session)
    return talk


async def test_commands_of_extensions_answer_like_others_and_come_and_go_with_reload(
    project: Path, tmp_path: Path
) -> None:
    file = mine("shows", SHOWS)
    talk = await conversation(project, tmp_path, sets=["extensions.hook_seconds=1.0"])
    registry = registry_for(talk)
    context = Context(talk, registry)

    async def said(line: str) -> Any:
        return await registry.run_line(context, line)

    await talk.runtime.extras.extensions.here(talk.session).draw()  # pyright: ignore
    assert "calls: 0" in (await said("/panels weather")).markdown
    assert await said("/sky x") == Text("blue x")
    assert await said("/sky send") == Submit("Look up.", "/sky")
    assert isinstance(await said("/sky rows"), Table)
    assert "KeyError" in (await said("/sky fail")).sentence
    assert "longer than 1 s" in (await said("/sky hang")).sentence
    assert any("/help" in getattr(event, "message", "") for event in talk.session.events())
    listed = await said("/extensions")
    assert listed.rows == (("shows", "user", "works", "2 commands, 1 theme, 1 panel"),)
    file.write_text("1 / 0")
    (paths().config / "commands").mkdir()
    (paths().config / "commands/fresh.md").write_text("Do it.")
    told = await said("/reload")
    assert "ZeroDivisionError" in told.markdown
    assert isinstance(await said("/sky x"), Failure)
    assert await said("/fresh") == Submit("Do it.", f"/fresh ({paths().config}/commands/fresh.md)")
    assert talk.runtime.extras.extensions.panels(talk.session) == ()
    await talk.aclose()


async def test_a_theme_is_there_for_the_screen_and_goes_with_its_extension(
    project: Path, tmp_path: Path
) -> None:
    file = mine("shows", SHOWS)
    await (await conversation(project, tmp_path)).aclose()
    assert "storm" in theme_names()
    assert load_theme("storm").colours["primary"] == "#7aa2f7"
    file.unlink()
    await (await conversation(project, tmp_path)).aclose()
    assert "storm" not in theme_names()


def test_the_command_line_makes_checks_and_shows_extensions(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    run = CliRunner()
    made = run.invoke(cli, ["extensions", "new", "first"])
    assert made.exit_code == 0
    assert Path(made.stdout.strip()).is_file()
    checked = json.loads(run.invoke(cli, ["extensions", "validate", "first", "--json"]).stdout)
    assert checked["ok"]
    assert checked["tools"] == [{"name": "first_count_lines", "side_effects": ["read"]}]
    rows = [
        json.loads(line) for line in run.invoke(cli, ["extensions", "list", "--json"]).stdout.splitlines()
    ]
    assert [row["state"] for row in rows if row["name"] == "first"] == ["active"]
    assert {row["name"] for row in rows if row["from"] == "built-in"} >= {"branches", "companion"}
    shown = run.invoke(cli, ["extensions", "inspect", "first"]).stdout
    assert "before_tool (bash)" in shown
    again = run.invoke(cli, ["extensions", "new", "first"])
    assert "already" in str(again.exception)


def test_managed_settings_may_turn_extensions_off_and_projects_may_not_choose_them(
    project: Path, tmp_path: Path
) -> None:
    from aar.runtime import open_base

    (project / ".aar").mkdir()
    (project / ".aar/config.toml").write_text(
        '[extensions]\nuse = ["companion"]\ndisabled = ["noisy"]\nhook_seconds = 99\n'
    )
    base = open_base(cwd=project, trust=True)
    assert base.config.extensions.use == ()
    assert base.config.extensions.hook_seconds == 5
    assert base.config.extensions.disabled == ("noisy",)
