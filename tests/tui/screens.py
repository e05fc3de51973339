"""Plain-text pictures of a screen, kept in ``screens/*.txt``; ``--update-screens`` writes them anew."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from difflib import unified_diff
from pathlib import Path
from typing import Any

from textual.app import App
from textual.pilot import Pilot

from tests.support.waiting import WAIT_S

FOLDER = Path(__file__).parent / "screens"
UPDATING = bool(os.environ.get("AAR_UPDATE_SCREENS"))


def screen_text(app: App[Any]) -> str:
    """Return what stands on the screen, without the spaces at the ends of lines."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips).rstrip("\n") + "\n"


async def until(pilot: Pilot[int], true: Callable[[], object], seconds: float = WAIT_S) -> None:
    """Let the screen go on until something holds; fails with what it shows."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, screen_text(pilot.app)
        await pilot.pause(0.02)


def assert_screen(app: App[Any], name: str, still: Callable[[str], str] = str) -> None:
    """Compare the screen with ``screens/NAME.txt``; ``still`` takes out what differs from run to run."""
    shown = still(screen_text(app))
    file = FOLDER / f"{name}.txt"
    if UPDATING:
        FOLDER.mkdir(exist_ok=True)
        file.write_text(shown, encoding="utf-8")
    assert file.is_file(), f"{file.name} is missing: look at the screen and run pytest with --update-screens"
    wanted = file.read_text(encoding="utf-8")
    assert shown == wanted, "\n".join(unified_diff(wanted.split("\n"), shown.split("\n"), file.name, "shown"))
