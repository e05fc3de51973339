"""Write pictures of the main states of the full screen, as SVG, into ``docs/screenshots/``.

``python docs/screenshots.py [FOLDER]``. A scripted model plays; nothing is asked of any server.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

SIZE = (120, 36)
COMMAND = "python3 hello.py && git commit -qam 'Greet in the morning'"
STEPS = [
    {
        "reasoning": "The greeting is in hello.py. I read it, then I change the word and run it.",
        "text": "I look at the file first.",
        "tool_calls": [{"name": "read_file", "arguments": {"path": "hello.py"}}],
    },
    {
        "text": "",
        "tool_calls": [
            {
                "name": "edit_file",
                "arguments": {"path": "hello.py", "old_text": "Hello", "new_text": "Good morning"},
            },
            {
                "name": "todo",
                "arguments": {
                    "items": [
                        {"id": "1", "title": "Change the greeting", "status": "completed"},
                        {"id": "2", "title": "Run it", "status": "in_progress"},
                    ]
                },
            },
        ],
    },
    {"text": "", "tool_calls": [{"name": "bash", "arguments": {"command": COMMAND}}]},
    {"text": "The greeting is **Good morning** now:\n\n```python\nprint('Good morning')\n```\n"},
]
GIT = (
    ("init", "-q", "-b", "main"),
    ("config", "user.name", "Ada"),
    ("config", "user.email", "ada@example.org"),
    ("add", "hello.py"),
    ("commit", "-q", "-m", "Say hello"),
)


async def take(folder: Path, project: Path) -> None:
    """Play the session and write the pictures."""
    from aar.transports.tui.app import AarApp

    scenario = project.parent / "model.json"
    scenario.write_text(json.dumps({"steps": STEPS, "after": "last", "context_window": 200_000}))
    app = AarApp({"model": f"scripted/{scenario}", "cwd": project, "mode": "edit"})
    async with app.run_test(size=SIZE) as pilot:

        async def until(true: Callable[[], object]) -> None:
            async with asyncio.timeout(60):
                while not true():
                    await pilot.pause(0.05)
            await pilot.pause(0.5)

        def picture(name: str) -> None:
            (folder / f"{name}.svg").write_text(app.export_screenshot(title="aar"), encoding="utf-8")

        await until(lambda: app.conversation is not None and app.prompting.conversation is not None)
        app.use_theme("default")
        picture("start")
        await pilot.press(*"Say good morning instead", "enter")
        await until(lambda: app.connection and app.connection.presenter.status.pending)
        # An approval takes no key while the user may still be typing.
        await pilot.pause(1.0)
        if not app.query_one("ApprovalPanel").has_focus:
            await pilot.press("tab")
            await pilot.pause(0.3)
        picture("approval")
        await pilot.press("y")
        await until(lambda: app.conversation and app.conversation.last_result)
        picture("answer")
        for key, name in (("f5", "changes"), ("f6", "themes"), ("f1", "keys")):
            await pilot.press(key)
            await until(lambda: len(app.screen_stack) > 1)
            picture(name)
            await pilot.press("escape")
            await until(lambda: len(app.screen_stack) == 1)
        app.use_theme("daylight")
        await pilot.pause(0.5)
        picture("light")


def make_project(project: Path) -> None:
    """Make the repository that the pictures show."""
    project.mkdir()
    (project / "hello.py").write_text("print('Hello')\n")
    for words in GIT:
        subprocess.run(["git", *words], cwd=project, check=True)  # noqa: S603, S607 - what stands above


def main() -> None:
    """Take all pictures in a home of their own."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        os.environ.update(AAR_HOME=f"{home}/aar", COLORTERM="truecolor", TEXTUAL_ANIMATIONS="none")
        make_project(Path(home) / "greeter")
        asyncio.run(take(folder, Path(home) / "greeter"))


if __name__ == "__main__":
    main()
