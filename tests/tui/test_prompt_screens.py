"""How prompt, queue and questions look at the usual sizes."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult
from textual.containers import Vertical

from aar.transports.tui.approvals import ApprovalPanel
from aar.transports.tui.prompt.completion import Suggestion
from aar.transports.tui.prompt.controller import PromptController
from aar.transports.tui.prompt.popup import CompletionPopup
from aar.transports.tui.prompt.queue_panel import QueuePanel
from tests.tui.screens import assert_screen
from tests.tui.test_approvals import asked, question

SIZES = [(60, 20), (80, 24), (120, 40)]
HOSTILE = "echo 'done' \x1b[2J; rm -rf ~ \u202e txt.exe\nprintf '世界 👩‍💻 e\u0301'\n# [bold red]no markup[/]"


class Bottom(App[int]):
    """The lower part of the screen."""

    CSS = """
    Screen { layout: vertical; }
    #above { height: 1fr; }
    PromptArea { height: auto; max-height: 33vh; border: none; border-left: thick $primary; padding: 0 1; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.prompting = PromptController(self)

    def compose(self) -> ComposeResult:
        yield Vertical(id="above")
        yield from self.prompting.compose()

    async def on_mount(self) -> None:
        await self.prompting.complete()
        self.prompting.area.focus()


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_a_question_about_hostile_text(size: tuple[int, int]) -> None:
    app = Bottom()
    async with app.run_test(size=size) as pilot:
        panel = app.query_one(ApprovalPanel)
        panel.show([asked(arguments={"command": HOSTILE}), asked(request_id="r2")])
        await pilot.pause()
        panel.focus()
        await pilot.pause()
        await pilot.pause()
        assert_screen(app, f"approval-hostile-{size[0]}x{size[1]}")


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_a_long_edit_and_a_queue(size: tuple[int, int]) -> None:
    app = Bottom()
    async with app.run_test(size=size) as pilot:
        old = "\n".join(f"old line {number}" for number in range(30))
        arguments = {"path": "src/parser.py", "old_text": old, "new_text": old.replace("line 7", "word 7")}
        panel = app.query_one(ApprovalPanel)
        panel.show([asked("edit_file", arguments=arguments, scopes=("once", "session", "project", "user"))])
        app.query_one(QueuePanel).show(["be quick"], ["then run the tests", "and\ncommit"], running=True)
        app.prompting.area.set_text("a draft\nof two lines")
        await pilot.pause()
        panel.focus()
        await pilot.pause()
        await pilot.pause()
        assert_screen(app, f"approval-edit-{size[0]}x{size[1]}")


async def test_a_question_of_the_model_on_the_screen() -> None:
    app = Bottom()
    async with app.run_test(size=(80, 24)) as pilot:
        panel = app.query_one(ApprovalPanel)
        panel.show([question(["red", "green \x1b[31m", "世界"])])
        await pilot.pause()
        panel.focus()
        await pilot.pause()
        await pilot.press("down")
        await pilot.pause()
        assert_screen(app, "approval-question-80x24")


async def test_suggestions_of_commands() -> None:
    app = Bottom()
    async with app.run_test(size=(80, 24)) as pilot:
        app.prompting.area.set_commands(
            [
                Suggestion("/model ", "/model", "Choose the model and how much it thinks"),
                Suggestion("/mode ", "/mode", "What may run without a question"),
                Suggestion("/memory ", "/memory", "What is remembered"),
            ]
        )
        await pilot.press(*"/m", "down")
        await pilot.pause()
        assert app.query_one(CompletionPopup).is_open
        assert_screen(app, "prompt-commands-80x24")
