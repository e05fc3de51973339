"""Slash commands by name: finding, completing, failing well."""

from __future__ import annotations

from pathlib import Path

import pytest

from aar.commands.base import Command, Context, Failure, Result, Table, Text, starting_with
from aar.commands.registry import GROUPS, Registry, commands, find, is_command_line
from aar.protocol.errors import UsageError
from tests.commands.support import desk


async def _echo(context: Context, argument: str) -> Result:
    return Text(argument)


async def _broken(context: Context, argument: str) -> Result:
    raise ZeroDivisionError("by design")


ECHO = Command("echo", "Say it again.", _echo, aliases=("say", "help"))


def test_names_and_aliases_are_unique_and_every_command_says_what_it_does() -> None:
    names = [name for item in commands() for name in (item.name, *item.aliases)]
    assert len(names) == len(set(names))
    for item in commands():
        assert item.name == item.name.lower()
        assert item.summary.endswith(".")
        assert len(item.summary) <= 100
        assert item.group in GROUPS
    expected = set(
        "help model mode plan cost diff sessions fork rename permissions sandbox theme keys layout log doctor "
        "compact context undo redo rewind checkpoints init review queue think status policy attach stats tools commit pr btw clear quit why".split()
    )
    assert expected <= set(names)


def test_a_name_is_found_with_or_without_slash_in_any_case_and_by_alias() -> None:
    for word in ("model", "/model", "MODEL", "/models"):
        command = find(word)
        assert command is not None
        assert command.name == "model"
    assert find("no-such") is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/help", True),
        ("/model x/y", True),
        ("/etc/hosts is wrong", False),
        ("//comment", False),
        ("/", False),
        ("/ help", False),
        ("/.hidden", False),
        ("/notes.txt what is it", False),
        ("/7", False),
        ("say /help", False),
        ("", False),
        ("/btw one\ntwo", True),
    ],
)
def test_a_command_line_begins_with_a_name_and_not_with_a_path(text: str, told: bool) -> None:
    assert is_command_line(text) is told


async def test_a_typo_is_answered_with_the_nearest_names(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        answer = await at.run("/modle")
        assert isinstance(answer, Failure)
        assert "/model" in answer.sentence
        answer = await at.run("/xyzzy")
        assert isinstance(answer, Failure)
        assert "/help" in answer.sentence


async def test_commands_are_added_found_completed_and_removed(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        registry = at.context.registry
        registry.add(ECHO)
        assert await at.run("/echo  two words ") == Text("two words")
        assert await at.run("/say\nline") == Text("line")
        assert "/echo" in registry.complete(at.context, "/ec")
        assert isinstance(await at.run("/help"), Table), "an alias that is taken stays with its owner"
        with pytest.raises(UsageError, match="/echo already"):
            registry.add(ECHO)
        registry.remove("echo")
        assert registry.find("echo") is None
        assert registry.find("say") is None
        assert Registry().find("echo") is None


async def test_a_defect_in_a_command_is_one_sentence(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        at.context.registry.add(Command("broken", "Break.", _broken))
        answer = await at.run("/broken")
        assert isinstance(answer, Failure)
        assert "by design" in answer.sentence
        assert "aar logs" in answer.sentence


async def test_what_the_door_cannot_do_is_hidden(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        bare = Context(at.talk, Registry())
        shown = {item.name for item in bare.registry.all(bare)}
        assert not shown & {"theme", "keys", "layout", "quit", "attach", "doctor"}
        answer = await bare.registry.run_line(bare, "/theme")
        assert isinstance(answer, Failure)
        assert "cannot be used here" in answer.sentence
        assert "/theme" not in bare.registry.complete(bare, "/th")


async def test_names_and_arguments_are_completed(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        complete = at.context.registry.complete
        assert complete(at.context, "/mo")[:3] == ["/model", "/mode", "/models"]
        assert complete(at.context, "/mode e") == ["/mode edit"]
        assert complete(at.context, "/why f")[0] == "/why fallback"
        assert "/model ollama/qwen3-coder" in complete(at.context, "/model oll")
        assert complete(at.context, "/help per") == ["/help permissions"]
        assert complete(at.context, "/nonsense x") == []


def test_completion_prefers_beginnings() -> None:
    assert starting_with(["xa", "ab", "ba"], "a") == ["ab", "xa", "ba"]
