"""Write pictures of the main states of the full screen, as SVG, into ``docs/screenshots/``.

``python docs/screenshots.py [FOLDER]``. A scripted model plays; nothing is asked of any server.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

SIZE = (120, 36)
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
    {"text": "", "tool_calls": [{"name": "bash", "arguments": {"command": "python3 hello.py && git push"}}]},
    {"text": "The greeting is **Good morning** now:\n\n```python\nprint('Good morning')\n```\n"},
]


async def take(folder: Path) -> None:
    """Play the session and write the pictures."""
    from aar.transports.tui.app import AarApp

    project = Path(os.environ["AAR_HOME"]).parent / "greeter"
    (project / ".git").mkdir(parents=True)
    (project / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (project / "hello.py").write_text("print('Hello')\n")
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
        picture("approval")
        # An approval takes no key while the user may still be typing.
        await pilot.pause(1.0)
        if not app.query_one("ApprovalPanel").has_focus:
            await pilot.press("tab")
            await pilot.pause(0.3)
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


def main() -> None:
    """Take all pictures in a home of their own."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        os.environ.update(AAR_HOME=f"{home}/aar", COLORTERM="truecolor", TEXTUAL_ANIMATIONS="none")
        asyncio.run(take(folder))


if __name__ == "__main__":
    main()
