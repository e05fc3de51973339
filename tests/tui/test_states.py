"""Pictures of the main states of the whole screen at four sizes, with text from outside that wants to do harm."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot

from aar.transports.tui import activity, screen_data
from aar.transports.tui.app import AarApp
from aar.transports.tui.approvals import ApprovalPanel
from aar.transports.tui.side_panel import SidePanel
from aar.transports.tui.transcript import Transcript
from tests.tui.screens import FOLDER, UPDATING, assert_screen, screen_text, until
from tests.tui.test_screens import opened, project, say

__all__ = ["project"]

SIZES = ((60, 20), (80, 24), (120, 40), (200, 50))
HOSTILE = "\x1b[2J\x1b]0;owned\x07 [bold]no markup[/] \u202eright to left\u202c 漢字 👩‍👩‍👧 \r\x9b31m a\u0300"
STEPS: list[dict[str, Any]] = [
    {
        "reasoning": f"The file says one thing.\nI look first. {HOSTILE}",
        "text": f"I read it. {HOSTILE}",
        "tool_calls": [{"name": "read_file", "arguments": {"path": "words.py"}}],
    },
    {
        "text": "",
        "tool_calls": [
            {
                "name": "edit_file",
                "arguments": {"path": "words.py", "old_text": "two", "new_text": f"2 {HOSTILE}"},
            },
            {
                "name": "todo",
                "arguments": {
                    "items": [
                        {"id": "1", "title": f"Change it {HOSTILE}", "status": "completed"},
                        {"id": "2", "title": "Run it", "status": "in_progress"},
                    ]
                },
            },
        ],
    },
    {"text": "", "tool_calls": [{"name": "bash", "arguments": {"command": f"printf '{HOSTILE}'; git push"}}]},
    {
        "text": f"## Done\n\n- one {HOSTILE}\n- two\n\n| a | b |\n|---|---|\n| 1 | 漢字 |\n\n```python\nx = 2\n```\n"
    },
    {"status": 400, "error": f"the server says {HOSTILE}"},
]


def still(text: str) -> str:
    """Return the screen without what differs from run to run: durations, tokens, how full the window is."""
    text = re.sub(r" (for|·) \d+\.\d s", lambda found: " " * len(found[0]), text)
    text = re.sub(r"\d+\.\dk", lambda found: "k" * len(found[0]), text)
    text = re.sub(r"\d%", "N%", text)
    # How many tokens there are decides how much of this line has room.
    text = re.sub(r"(Esc interrupts) ·.*", r"\1 · …", text)
    text = re.sub(r"(Esc interrupts)( *)$", r"\1 · …", text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.split("\n"))


async def shoot(pilot: Pilot[int], name: str) -> set[str]:
    """Compare the state at each size; the whole screen is as wide as it should be, and nothing acts on it."""
    compared = {f"state-{name}-{columns}x{rows}" for columns, rows in SIZES}
    for columns, rows in SIZES:
        await pilot.resize_terminal(columns, rows)
        # A size that changed is drawn once more when it is quiet.
        await until(pilot, lambda: pilot.app._settling is None)  # type: ignore[attr-defined]
        await pilot.pause()
        await pilot.pause()
        picture = FOLDER / f"state-{name}-{columns}x{rows}.txt"
        for _ in range(100):
            # A busy machine draws later; what is wrong stays wrong.
            if (
                UPDATING
                or not picture.is_file()
                or still(screen_text(pilot.app)) == picture.read_text(encoding="utf-8")
            ):
                break
            await pilot.pause(0.1)
        shown = screen_text(pilot.app)
        assert not set(shown) & set("\x1b\x07\x9b\r\u202e\u202c")
        assert_screen(pilot.app, f"state-{name}-{columns}x{rows}", still)
    return compared


async def over(app: AarApp, pilot: Pilot[int], key: str, name: str) -> set[str]:
    await pilot.press(key)
    await until(pilot, lambda: len(app.screen_stack) > 1)
    await pilot.pause(0.3)
    compared = await shoot(pilot, name)
    await pilot.press("escape")
    await until(pilot, lambda: len(app.screen_stack) == 1)
    return compared


async def test_the_main_states_of_the_screen(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "elapsed", lambda seconds: "7 s")
    monkeypatch.setattr(screen_data, "ago", lambda stamp, now=None: "a while ago")
    (project / "words.py").write_text("one\ntwo\nthree\n")
    (project / ".git/HEAD").write_text("ref: refs/heads/main\n")
    async with opened(project, *STEPS, mode="edit") as (app, pilot):
        if app.conversation is None or app.conversation.runtime.wall() != "bubblewrap":
            pytest.skip("the pictures show bubblewrap")
        compared = await shoot(pilot, "start")
        app.prompting.area.set_text(f"Change the words {HOSTILE}")
        await pilot.press("enter")
        await until(pilot, lambda: app.connection and app.connection.presenter.status.pending)
        await until(pilot, lambda: app.query_one(ApprovalPanel).display)
        await until(pilot, lambda: "y once" in screen_text(app))  # it takes keys a moment later
        await pilot.pause(0.2)
        compared |= await shoot(pilot, "approval")
        app.query_one(ApprovalPanel).focus()
        await until(pilot, lambda: app.query_one(ApprovalPanel).has_focus)
        await pilot.pause(1.0)
        await pilot.press("n")
        await until(pilot, lambda: app.conversation and app.conversation.last_result)
        await pilot.pause(0.2)
        compared |= await shoot(pilot, "answer")
        # In one breath, as from a macro or a slow line: the second key is for the transcript already.
        for key in ("f9", "home"):
            app.post_message(events.Key(key, None))
        await until(pilot, lambda: app.query_one(Transcript).viewport.top == 0)
        compared |= await shoot(pilot, "top")
        await pilot.press("f9")
        compared |= await over(app, pilot, "ctrl+p", "palette")
        compared |= await over(app, pilot, "f3", "sessions")
        compared |= await over(app, pilot, "f5", "changes")
        compared |= await over(app, pilot, "f1", "keys")
        await pilot.press("f2")
        await until(pilot, lambda: not app.query_one(SidePanel).display)
        await say(app, pilot, "again")
        await pilot.press(*"once more", "enter")
        app.query_one(Transcript).focus()
        await until(pilot, lambda: app.connection and not app.connection.presenter.status.working)
        await pilot.press("end")
        await until(pilot, lambda: "the server says" in screen_text(app))
        compared |= await shoot(pilot, "error")
    assert compared == {file.stem for file in FOLDER.glob("state-*.txt")}
