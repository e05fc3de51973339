"""The page in a real browser: watch a session, answer a question, send a prompt; and nothing is run from text."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import call, script
from tests.serve.support import TOKEN, Served, served

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


@pytest.fixture
async def browser() -> AsyncIterator[Any]:
    playwright = pytest.importorskip("playwright.async_api", reason="pip install playwright")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("no Chromium is installed (apt-get install chromium)")
    async with playwright.async_playwright() as started:
        # Its own sandbox does not work for root, who runs tests in containers; it sees the loopback only.
        chromium = await started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield chromium
        await chromium.close()


async def enter(browser: Any, server: Served) -> Any:
    """Open the page with the token and return it; `page.problems` holds what it complained of."""
    page = await browser.new_page()
    page.set_default_timeout(15_000)
    page.problems = []
    page.on("console", lambda said: page.problems.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("request", lambda asked: page.problems.append(asked.url) if foreign(asked.url, server) else None)
    await page.goto(f"{server.url}/#token={TOKEN}")
    return page


def foreign(url: str, server: Served) -> bool:
    return not url.startswith((server.url, "data:"))


async def test_a_session_is_watched_prompted_and_answered(
    browser: Any, project: Path, tmp_path: Path
) -> None:
    edit = call("edit_file", f"I change it {EVIL}", path="notes.txt", old_text="milk", new_text=EVIL)
    question = call("ask_user", question="Which bread?", options=["rye", "wheat"])
    steps = (edit, question, f"Done {EVIL}")
    async with served(project, script(tmp_path / "m.json", *steps)) as server:
        page = await enter(browser, server)
        await page.get_by_role("button", name="New session").click()
        await page.get_by_label("Prompt").fill(f"Bread instead {EVIL}")
        await page.keyboard.press("Enter")
        await page.get_by_text("May edit_file run?").wait_for()
        assert "-remember the milk" in await page.locator("#approvals pre").inner_text()
        await page.get_by_role("button", name="Allow once").click()
        await page.get_by_role("button", name="rye").click()
        await page.locator(".answer", has_text="Done").wait_for()
        await page.locator("#facts", has_text="completed").wait_for()
        transcript = await page.locator("#transcript").inner_text()
        assert f"Bread instead {EVIL}" in transcript
        assert f"Done {EVIL}" in transcript
        assert await page.locator("#transcript img, #transcript script").count() == 0
        assert EVIL in (project / "notes.txt").read_text()
        assert "owned" not in await page.title()
        assert TOKEN not in page.url
        again = await browser.new_page()
        await again.goto(server.url)
        assert await again.get_by_label("The token that").is_visible(), "another tab has no token"
        await again.get_by_label("The token that").fill(TOKEN)
        await again.keyboard.press("Enter")
        await again.locator("#sessions button").first.click()
        await again.locator(".answer", has_text="Done").wait_for()
        assert page.problems == []


async def test_a_run_is_cancelled_and_a_looser_mode_refused(
    browser: Any, project: Path, tmp_path: Path
) -> None:
    model = script(tmp_path / "m.json", call("bash", command="touch x; sleep 30"), "Never.")
    async with served(project, model) as server:
        page = await enter(browser, server)
        await page.get_by_role("button", name="New session").click()
        await page.get_by_label("Mode").select_option("auto")
        await page.get_by_role("alert").filter(has_text="allows ask at most").wait_for()
        await page.get_by_label("Prompt").fill("Wait.")
        await page.get_by_role("button", name="Send").click()
        await page.get_by_role("button", name="Allow once").click()
        await page.get_by_role("button", name="Cancel").click()
        await page.locator("#facts", has_text="cancelled").wait_for()
        assert all("400" in problem for problem in page.problems), page.problems
