"""Pictures of ten states in all their colours, as SVG in ``__snapshots__``; ``--snapshot-update`` takes them anew."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from aar.config.paths import paths
from aar.transports.tui import activity, header
from aar.transports.tui.app import AarApp
from aar.transports.tui.approvals import ApprovalPanel
from aar.transports.tui.blocks import ThinkingBlock, ToolBlock
from aar.transports.tui.presenter import Changes, Presenter
from aar.transports.tui.transcript import Transcript
from tests.tui.screens import screen_text, until
from tests.tui.test_screens import project

__all__ = ["project"]

Act = Callable[[AarApp, Pilot[int]], Awaitable[object]]
Compare = Callable[..., bool]
Take = Callable[..., bool]

EDIT = {
    "reasoning": "The greeting is in hello.py. I change the word.",
    "text": "I change it.",
    "tool_calls": [
        {
            "name": "edit_file",
            "arguments": {"path": "hello.py", "old_text": "'Hello'", "new_text": "'Good day'"},
        }
    ],
}
COMMAND = {"text": "", "tool_calls": [{"name": "bash", "arguments": {"command": "git push origin main"}}]}
ANSWER = {
    "text": "## Done\n\nIt says **Good day** now, see `hello.py`:\n\n```python\ndef greet(name: str) -> str:\n"
    '    return f"Good day, {name}"  # polite\n```\n\n| word | bytes |\n|---|--:|\n| 漢字 | 6 |\n| a\u0300 | 3 |\n\n'
    "- one\n- [two](https://example.com)\n"
}
FAILURE = {"status": 400, "error": "the server says no [bold]markup[/] \x1b[31m"}


def timeless(drain: Callable[[Presenter], Changes]) -> Callable[[Presenter], Changes]:
    """Let nothing that is drawn tell how long it took."""

    def timeless_drain(presenter: Presenter) -> Changes:
        for block in presenter.blocks:
            if isinstance(block, ToolBlock):
                block.duration_ms = None
            elif isinstance(block, ThinkingBlock) and block.seconds is not None:
                block.seconds = 0.0
        return drain(presenter)

    return timeless_drain


@pytest.fixture
def take(snap_compare: Compare, project: Path, monkeypatch: pytest.MonkeyPatch) -> Take:
    """Play a scripted session in a small project and compare its screen; times and tokens stand still."""
    monkeypatch.setattr(activity, "elapsed", lambda seconds: "7 s")
    monkeypatch.setattr(activity, "tokens", lambda count: "3.2k")
    monkeypatch.setattr(Presenter, "drain", timeless(Presenter.drain))
    monkeypatch.setattr(header, "_gauge", lambda status, plain: "")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    (project / "hello.py").write_text("def greet():\n    print('Hello')\n")
    (project / ".git/HEAD").write_text("ref: refs/heads/main\n")

    def take(act: Act, *steps: dict[str, Any], size: tuple[int, int] = (100, 32), mode: str = "edit") -> bool:
        file = project.parent / "scenario.json"
        file.write_text(json.dumps({"steps": list(steps) or [{"text": "Done."}], "after": "last"}))
        options = {"model": f"scripted/{file}", "cwd": project, "sets": ("tui.theme=default",), "mode": mode}
        app = AarApp(options, user_themes=paths().config / "themes")

        async def play(pilot: Pilot[int]) -> None:
            await until(pilot, lambda: app.connection is not None and app.prompting.conversation is not None)
            if app.conversation is None or app.conversation.runtime.wall() != "bubblewrap":
                pytest.skip("the pictures show bubblewrap")
            await act(app, pilot)
            # What came last is drawn, text that came in a rush to its end.
            await until(pilot, lambda: app._flush_timer is None)
            await until(pilot, lambda: not app.screen_stack[0].query_one(Transcript).document.unfinished)
            await pilot.pause()

        return snap_compare(app, terminal_size=size, run_before=play)

    return take


async def told(app: AarApp, pilot: Pilot[int], text: str) -> None:
    """Give a task and wait for the end of the answer."""
    app.prompting.area.set_text(text)
    await pilot.press("enter")
    await until(
        pilot, lambda: app.conversation and app.conversation.last_result and not app.conversation.running
    )
    await until(pilot, lambda: app.connection and not app.connection.presenter.status.working)


def over(key: str) -> Act:
    """Open the screen of a key."""

    async def act(app: AarApp, pilot: Pilot[int]) -> None:
        await pilot.press(key)
        await until(pilot, lambda: len(app.screen_stack) > 1 and app.focused in app.screen.query("*"))
        if isinstance(app.focused, Input):
            app.focused.cursor_blink = False  # it stands there whenever the picture is taken

    return act


async def nothing(app: AarApp, pilot: Pilot[int]) -> None:
    """Leave the screen as it opens."""


async def in_theme(app: AarApp, pilot: Pilot[int], theme: str) -> None:
    app.use_theme(theme)
    await told(app, pilot, "Change the greeting")


def test_the_first_screen(take: Take) -> None:
    assert take(nothing, size=(80, 24))


def test_an_answer_with_a_diff_code_and_a_table(take: Take) -> None:
    assert take(lambda app, pilot: told(app, pilot, "Change the greeting"), EDIT, ANSWER, size=(100, 44))


def test_an_answer_on_a_light_ground(take: Take) -> None:
    assert take(lambda app, pilot: in_theme(app, pilot, "daylight"), EDIT, ANSWER, size=(100, 44))


def test_an_answer_in_high_contrast(take: Take) -> None:
    assert take(lambda app, pilot: in_theme(app, pilot, "high-contrast-dark"), EDIT, ANSWER, size=(100, 44))


def test_a_question_before_a_command(take: Take) -> None:
    async def act(app: AarApp, pilot: Pilot[int]) -> None:
        app.prompting.area.set_text("Push it")
        await pilot.press("enter")
        await until(pilot, lambda: app.query_one(ApprovalPanel).display)
        await until(pilot, lambda: "y once" in screen_text(app))  # it takes keys a moment later

    assert take(act, COMMAND, size=(80, 24))


def test_a_question_before_an_edit(take: Take) -> None:
    async def act(app: AarApp, pilot: Pilot[int]) -> None:
        app.prompting.area.set_text("Change the greeting")
        await pilot.press("enter")
        await until(pilot, lambda: app.query_one(ApprovalPanel).display)
        await until(pilot, lambda: "y once" in screen_text(app))

    assert take(act, EDIT, mode="ask")


def test_commands_below_the_prompt(take: Take) -> None:
    async def act(app: AarApp, pilot: Pilot[int]) -> None:
        await pilot.press(*"/co")
        await until(pilot, lambda: "/compact" in screen_text(app))

    assert take(act, size=(80, 24))


def test_the_palette(take: Take) -> None:
    assert take(over("ctrl+p"), size=(80, 24))


def test_the_keys(take: Take) -> None:
    assert take(over("f1"))


def test_the_themes(take: Take) -> None:
    assert take(over("f6"))


def test_a_refused_request(take: Take) -> None:
    async def act(app: AarApp, pilot: Pilot[int]) -> None:
        app.prompting.area.set_text("Hello")
        await pilot.press("enter")
        await until(pilot, lambda: "the server says" in screen_text(app))
        await until(pilot, lambda: app.connection and not app.connection.presenter.status.working)

    assert take(act, FAILURE, size=(80, 24))


def test_everything_unfolded(take: Take) -> None:
    async def act(app: AarApp, pilot: Pilot[int]) -> None:
        await told(app, pilot, "Change the greeting")
        app.query_one(Transcript).action_fold_all()
        await pilot.pause()

    assert take(act, EDIT, ANSWER, size=(100, 44))
