"""Dictation and reading aloud by the user's own programs, which are small scripts here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aar.commands.base import Failure, Text, UiAction
from aar.protocol.events import Notice
from aar.runtime.voice import spoken
from tests.commands import support
from tests.commands.support import Desk
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("clean_environment")


@asynccontextmanager
async def desk(
    tmp_path: Path,
    *,
    hears: str = "",
    speaks: str = "",
    answers: tuple[str, ...] = ("Fine.",),
    **options: str,
) -> AsyncIterator[Desk]:
    sets = [f"voice.{name}={value}" for name, value in options.items()]
    for name, body in (("stt", hears), ("tts", speaks)):
        if body:
            script = tmp_path / f"{name}.sh"
            script.write_text(f"cd '{tmp_path}'\n{body}\n")
            sets.append(f"voice.{name}_command=sh '{script}'")
    steps = [{"text": answer} for answer in answers]
    async with support.desk(tmp_path, *steps, sets=tuple(sets)) as at:
        at.context.actions = at.context.actions | {"insert"}
        yield at


RECORDS = "trap 'ended=1' INT; : > began; while [ -z $ended ]; do sleep 0.02; done"


async def test_what_is_heard_becomes_harmless_text_for_the_prompt_and_is_not_sent(tmp_path: Path) -> None:
    hears = r"printf 'mend\n the \033[31mparser\033[0m\007, please\342\200\256\n'; echo noise >&2"
    async with desk(tmp_path, hears=hears) as at:
        assert await at.run("/voice") == UiAction("insert", {"argument": "mend the parser, please\\u202e"})
        assert not at.talk.running
        assert at.talk.session.totals.all.steps == 0


async def test_a_recording_is_ended_by_a_key_and_dropped_by_a_second_one(tmp_path: Path) -> None:
    hears = f"{RECORDS}; [ -e slow ] && sleep 60; echo so far"
    async with desk(tmp_path, hears=hears) as at:
        seen: list[bool] = []
        at.talk.voice.on_listening = seen.append
        for slow in (False, True):
            if slow:
                (tmp_path / "slow").touch()
            asked = asyncio.ensure_future(at.run("/voice"))
            await until((tmp_path / "began").exists)
            assert isinstance(await at.run("/voice"), Text)
            if slow:
                assert at.talk.stop_voice()
            result = await asked
            (tmp_path / "began").unlink()
            if slow:
                assert result == Failure("Nothing was heard.")
            else:
                assert result == UiAction("insert", {"argument": "so far"})
        assert not at.talk.stop_voice()
        assert seen == [True, False, True, False]


@pytest.mark.parametrize(
    ("hears", "options", "sentence"),
    [
        ("", {}, "set [voice] stt_command in your config file to one that prints what it hears."),
        ("echo 'no \033[2Jmicrophone' >&2; exit 3", {}, "failed (exit code 3: no microphone)."),
        ("exec sleep 60", {"seconds": "0.2"}, "stt_command was ended after 0.2 s ([voice] seconds)."),
        (":", {}, "Nothing was heard."),
    ],
)
async def test_what_goes_wrong_is_one_sentence(
    tmp_path: Path, hears: str, options: dict[str, str], sentence: str
) -> None:
    async with desk(tmp_path, hears=hears, **options) as at:
        result = await at.run("/voice")
        assert isinstance(result, Failure)
        assert result.sentence.endswith(sentence)
        assert "\n" not in result.sentence


async def test_answers_are_read_aloud_when_asked_for_and_stopped(tmp_path: Path) -> None:
    speaks = "cat > said.part; mv said.part said; [ -e slow ] && exec sleep 60; :"
    said = tmp_path / "said"
    async with desk(tmp_path, speaks=speaks, answers=("**One** `x`.", "Two.")) as at:
        await at.say("first")
        assert isinstance(await at.run("/voice read"), Text)
        await until(said.exists)
        assert said.read_text() == "One x.\n"
        await until(lambda: not at.talk.voice.reading)
        (tmp_path / "slow").touch()
        said.unlink()
        await at.run("/voice on")
        await at.say("second")
        await until(said.exists)
        assert said.read_text() == "Two.\n"
        assert at.talk.stop_voice()
        assert not at.talk.voice.reading


async def test_a_voice_that_fails_is_told_once_and_answers_are_shown_only(tmp_path: Path) -> None:
    async with desk(tmp_path, speaks="echo gone >&2; exit 9", answers=("One.", "Two."), speak="true") as at:
        at.talk.voice.reads_answers = True
        for prompt in ("first", "second"):
            await at.say(prompt)
            await until(lambda: not at.talk.voice.reading)
        told = [e.message for e in at.talk.session.events() if isinstance(e, Notice) and e.code == "voice"]
        assert len(told) == 1
        assert told[0].endswith("failed (exit code 9: gone). Answers are not read aloud any more.")


def test_an_answer_is_spoken_without_its_marks() -> None:
    answer = (
        "# Done\n\nI **changed** `a.py` ([it](https://e.org)):\n\n```python\nx = 1\ny = 2\n```\n"
        "- one\n- two * three\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\x1b[2Jsnake_case_name"
    )
    assert spoken(answer) == (
        "Done\n\nI changed a.py (it):\n\n(Code, 2 lines.)\none\ntwo * three\n\na, b\n1, 2\nsnake_case_name\n"
    )
