"""`/export` writes the open session to a file."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from aar.commands.base import Failure, Text
from tests.commands.support import WRITE, Desk, desk

KEY = "sk-ant-api03-" + "Ab3" * 31 + "AA"


async def written(at: Desk, words: str) -> Path:
    """Run the command and return the file that it names."""
    answer = await at.run(f"/export {words}")
    assert isinstance(answer, Text), answer
    return Path(answer.markdown.split("`")[1])


async def test_without_words_markdown_for_the_owner_lies_in_the_workspace(tmp_path: Path) -> None:
    async with desk(tmp_path, WRITE, {"text": "It is *done*."}) as at:
        await at.say("write b")
        file = await written(at, "")
        assert file.parent == at.context.runtime.workspace
        assert file.stat().st_mode & 0o777 == 0o600
        text = file.read_text()
        assert text.startswith("# write b\n")
        assert "## You\n\nwrite b" in text
        assert "write_file b.txt" in text
        assert "It is *done*." in text
        await at.say("and more")
        assert await written(at, "md") == file
        assert "and more" in file.read_text()


async def test_the_name_or_the_word_before_it_chooses_the_form(tmp_path: Path) -> None:
    async with desk(tmp_path, {"text": "ok <script>"}) as at:
        await at.say("hi")
        events = json.loads((await written(at, "json")).read_text())["events"]
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        page = await written(at, "with space.html")
        assert page.name == "with space.html"
        HTMLParser().feed(page.read_text())
        assert "<script>" not in page.read_text()
        assert (
            json.loads((await written(at, f"json {tmp_path}/odd.txt")).read_text())["session"]["title"]
            == "hi"
        )
        inside = await written(at, f"html {tmp_path}")
        assert (inside.parent, inside.suffix) == (tmp_path, ".html")


@pytest.mark.parametrize("form", ["md", "html", "json"])
async def test_no_export_holds_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "correct-horse-battery-9")
    async with desk(tmp_path, {"text": f"I see {KEY} and correct-horse-battery-9."}) as at:
        await at.say(f"my key is {KEY}")
        text = (await written(at, form)).read_text()
        assert "I see" in text
        assert KEY not in text
        assert "correct-horse-battery-9" not in text


async def test_a_file_that_is_there_stays_and_names_that_cannot_be_are_told(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        await at.say("hi")
        (tmp_path / "link.md").symlink_to(tmp_path / "nowhere")
        for words, why in (
            ("a.txt", "there already"),
            (f"md {tmp_path}/link.md", "there already"),
            ("no/such/folder.md", "cannot be written"),
            ("x" * 400, "cannot be written"),
            ("a\0b", "cannot be written"),
            ("~nobody-of-that-name/x.md", "whole path"),
        ):
            answer = await at.run(f"/export {words}")
            assert isinstance(answer, Failure), words
            assert why in answer.sentence
        assert (at.context.runtime.workspace / "a.txt").read_text() == "one\n"
        assert sorted(path.name for path in at.context.runtime.workspace.iterdir()) == [".git", "a.txt"]


async def test_a_session_that_is_not_kept_can_be_exported(tmp_path: Path) -> None:
    async with desk(tmp_path, {"text": "fine"}, sets=["session.store=false"]) as at:
        await at.say("hi")
        assert "fine" in (await written(at, "")).read_text()


async def test_forms_are_completed(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        assert at.context.registry.complete(at.context, "/export h") == ["/export html"]
