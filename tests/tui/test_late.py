"""What comes late: keys faster than screens are built, timers and workers of a screen that is gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual import events
from textual.css.query import NoMatches
from textual.widgets import Input

from aar.transports.tui.app import AarApp
from tests.tui.screens import until
from tests.tui.test_screens import opened, project

__all__ = ["project"]


async def test_screens_that_are_opened_and_closed_faster_than_they_are_built_do_no_harm(
    project: Path,
) -> None:
    async with opened(project, size=(80, 24)) as (app, pilot):
        for turns in range(6):
            for key in ("f3", "escape", "f6", "escape", "f4", "escape", "f5", "escape", "f3"):
                app.post_message(events.Key(key, None))
                for _ in range(turns):
                    await asyncio.sleep(0)
            await asyncio.sleep(0.01 * turns)
        # A list of sessions opens once they are read: what is typed meanwhile would be for it.
        still = 0
        while still < 3:
            await pilot.pause(0.02)
            opening = any(worker.group == "screen" and not worker.is_finished for worker in app.workers)
            still = 0 if opening or len(app.screen_stack) > 1 else still + 1
            if len(app.screen_stack) > 1:
                await pilot.press("escape")
        await pilot.press(*"still here")
        await until(pilot, lambda: app.prompting.area.text.endswith("still here"))
        assert app.return_code is None


async def test_what_a_running_app_does_not_find_is_still_an_error(project: Path) -> None:
    async def ask_too_much() -> None:
        async with opened(project, size=(80, 24)) as (app, pilot):
            app.call_later(lambda: app.query_one("#no-such-widget", Input))
            await pilot.pause(0.1)

    with pytest.raises(NoMatches):
        await ask_too_much()


async def test_a_defect_ends_the_screen_and_no_values_of_variables_are_written(project: Path) -> None:
    apps: list[AarApp] = []

    async def fail() -> None:
        async with opened(project, size=(80, 24)) as (app, pilot):
            apps.append(app)
            key = "sk-secret"
            app.call_later(lambda: {}[key])
            await pilot.pause(0.1)

    with pytest.raises(KeyError):
        await fail()
    assert isinstance(apps[0].failure, KeyError)
    assert apps[0].return_code == 1
    assert apps[0]._exit_renderables == []


async def test_a_size_that_settles_after_the_end_is_no_error(project: Path) -> None:
    async with opened(project, size=(80, 24)) as (app, pilot):
        await pilot.resize_terminal(90, 30)
    app._draw_all()  # what its timer may call late
    assert not app.is_running
