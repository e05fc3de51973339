"""docs/embedding.md: every block is run, and does what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from aar.protocol.errors import UsageError
from tests.cli.support import call, events, of_type, script, stored

PAGE = Path(__file__).parents[2] / "docs" / "embedding.md"


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """Return what the blocks of the page define, run one after the other."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    return names


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "notes.txt").write_text("remember the milk\n")
    return folder


async def test_one_task(page: dict[str, Any], project: Path, tmp_path: Path) -> None:
    assert await page["main"](project, script(tmp_path / "m.json", "Milk.")) == "Milk."
    assert events(stored()[0])[0]["title"] == "From a program"


async def test_a_tool_of_ones_own(page: dict[str, Any], project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", call("weather", city="Bergen"), call("weather", town="x"), "Rain.")
    assert await page["with_a_tool"](project, model) == "Rain."
    first, second = of_type(events(stored()[0]), "tool_result")
    assert first["output"] == "It rains in Bergen."
    assert second["category"] == "invalid_arguments"


async def test_watching(
    page: dict[str, Any], project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = script(tmp_path / "m.json", call("read_file", path="notes.txt"), "It says milk.")
    assert await page["watched"](project, model) == ["read_file {'path': 'notes.txt'}"]
    assert capsys.readouterr().out == "It says milk."


async def test_answering_questions(page: dict[str, Any], project: Path, tmp_path: Path) -> None:
    edit = call("edit_file", path="notes.txt", old_text="milk", new_text="bread")
    steps = (call("ask_user", question="Really?"), edit, call("bash", command="touch x"), "Done.")
    await page["answered"](project, script(tmp_path / "m.json", *steps))
    assert (project / "notes.txt").read_text() == "remember the bread\n"
    assert not (project / "x").exists()
    answers = of_type(events(stored()[0]), "approval")
    assert [(one["decision"], one["scope"]) for one in answers if one["by"] == "user"] == [
        ("allow", "once"),
        ("allow", "session"),
        ("reject", "once"),
    ]


async def test_beginning_from_a_conversation(page: dict[str, Any], project: Path, tmp_path: Path) -> None:
    assert await page["going_on"](project, script(tmp_path / "m.json", "Ada.")) == "Ada."
    told = [
        (event["type"], event["step"]) for event in events(stored()[0]) if event["type"].endswith("message")
    ]
    assert told[:2] == [("user_message", 1), ("assistant_message", 2)]


def test_a_history_with_calls_is_what_the_model_is_sent(tmp_path: Path) -> None:
    from aar import Message, Session, TextBlock, tell_history
    from aar.memory.memory_store import MemoryStore
    from aar.protocol.messages import ToolResultBlock, ToolUseBlock

    history = [
        Message(role="user", content=(TextBlock(text="Read it."),)),
        Message(
            role="assistant",
            content=(
                TextBlock(text="I do."),
                ToolUseBlock(call_id="1", name="read_file", arguments={"path": "x"}),
            ),
        ),
        Message(role="user", content=(ToolResultBlock(call_id="1", name="read_file", output="milk"),)),
        Message(role="assistant", content=(TextBlock(text="Milk."),)),
    ]
    session = Session.create(MemoryStore(), cwd=tmp_path, model="m")
    tell_history(session, history)
    assert session.messages() == history
    before = session.last_seq
    for wrong in (history[:2], history[2:3], [Message(role="user", content=history[1].content)]):
        with pytest.raises(UsageError, match="history"):
            tell_history(session, wrong)
    assert session.last_seq == before
    session.close()
