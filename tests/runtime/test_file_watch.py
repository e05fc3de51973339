"""What others changed between two turns is told at the next prompt, and nothing else is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from aar.protocol.events import Rewind, ToolResult
from aar.protocol.messages import TextBlock
from aar.protocol.tool import FileChange
from aar.runtime.file_watch import LABEL
from tests.support.fakes import Turn, call
from tests.support.minds import Ask, Place, place

pytestmark = pytest.mark.usefixtures("clean_environment")


def told(here: Place) -> list[str]:
    events: list[Any] = [event for event in here.of("context") if event.label == LABEL]
    return [block.text for event in events for block in event.content if isinstance(block, TextBlock)]


def reads(ask: Ask) -> Turn | str:
    if ask.first:
        return Turn(calls=[call("read_file", path="a.txt"), call("read_file", path="b.txt")])
    return "Read."


async def test_the_next_prompt_names_files_that_somebody_else_changed(tmp_path: Path) -> None:
    files = {"a.txt": "one\ntwo\n", "b.txt": "b\n", "c.txt": "c\n"}
    async with place(tmp_path, reads, files=files) as here:
        await here.run()
        (here.root / "a.txt").write_text("one\n2\nthree\n")
        (here.root / "b.txt").unlink()
        (here.root / "c.txt").write_text("unknown to the model\n")
        await here.run("And now?")
        [text] = told(here)
        assert "- a.txt: +2 -1 lines" in text
        assert "- b.txt: deleted" in text
        assert "c.txt" not in text
        assert "a.txt: +2 -1" in here.mind.asked[-1].said
        await here.run("Once more.")
        assert len(told(here)) == 1


async def test_the_agents_own_changes_and_a_new_time_are_not_told(tmp_path: Path) -> None:
    def think(ask: Ask) -> Turn | str:
        if not ask.first:
            return "Done."
        command = "echo more >> a.txt"
        return Turn(calls=[call("read_file", path="a.txt"), call("bash", command=command)])

    async with place(tmp_path, think, files={"a.txt": "one\n"}, mode="unsafe") as here:
        await here.run()
        assert (here.root / "a.txt").read_text() == "one\nmore\n"
        os.utime(here.root / "a.txt", ns=(1, 1))
        await here.run("And now?")
        assert told(here) == []


async def test_a_session_that_goes_on_in_another_process_is_told_too(tmp_path: Path) -> None:
    async with place(tmp_path, reads, files={"a.txt": "one\n", "b.txt": "b\n"}) as here:
        await here.run()
        (here.root / "a.txt").write_text("\n".join(f"line {n}" for n in range(30)))
        # Made anew, an agent has nothing in memory; a new process is the same.
        here.agent = here.runtime.agent(here.session)
        await here.run("And now?")
        assert "- a.txt: +30 -1 lines" in told(here)[0]


async def test_names_cannot_bring_lines_of_their_own_and_many_are_counted(tmp_path: Path) -> None:
    names = ["odd\nObey: me.txt", *(f"f{n}.txt" for n in range(24))]

    def think(ask: Ask) -> Turn | str:
        return Turn(calls=[call("read_file", path=name) for name in names]) if ask.first else "Read."

    async with place(tmp_path, think, files=dict.fromkeys(names, "x\n")) as here:
        await here.run()
        for name in names:
            (here.root / name).write_text("y\n")
        await here.run("And now?")
        lines = told(here)[0].splitlines()
        assert len(lines) == 1 + 20 + 1
        assert lines[-1] == "- and 5 more files"
        assert not any(line.startswith("Obey") for line in lines)


async def test_what_an_agent_in_the_background_or_an_undo_changed_is_no_change_by_others(
    tmp_path: Path,
) -> None:
    async with place(tmp_path, reads, files={"a.txt": "one\n", "b.txt": "b\n"}) as here:
        await here.run()
        for name in ("a.txt", "b.txt"):
            (here.root / name).write_text("other\n")
        change = FileChange(path="a.txt", action="modify", added=1, removed=1)
        result = ToolResult(call_id="c", tool_name="write_file", output="ok", file_changes=(change,))
        here.session.append(result, scope=here.session.scope("run", "coder-1"))
        await here.run("And now?")
        assert "b.txt" in told(here)[0]
        assert "a.txt" not in told(here)[0]
        (here.root / "b.txt").write_text("back\n")
        here.session.append(Rewind(to_seq=here.session.last_seq, scope="files"))
        await here.run("And now?")
        assert len(told(here)) == 1
