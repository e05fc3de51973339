"""Commands in the editor's terminals: behind the wall, given back in any case, and only where that is the same."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.acp.support import FULL, Editor, RefusedError
from tests.cli.support import call, environment, script
from tests.support.waiting import until

TERMINAL = {**FULL, "terminal": True}


class Terminals:
    """Runs real processes, as an editor does."""

    def __init__(self, editor: Editor) -> None:
        self.made: dict[str, subprocess.Popen[bytes]] = {}
        self.editor = editor
        self.waits: list[asyncio.Future[None]] = []
        self.told: list[tuple[str, dict[str, Any]]] = []
        for name in ("create", "output", "wait_for_exit", "kill", "release"):
            editor.answers[f"terminal/{name}"] = lambda params, name=name: self.answer(name, params)

    def answer(self, name: str, params: dict[str, Any]) -> Any:
        self.told.append((name, params))
        if name == "create":
            given = {item["name"]: item["value"] for item in params["env"]}
            argv = [params["command"], *params["args"]]
            process = subprocess.Popen(
                argv,
                cwd=params["cwd"],
                env=environment(**given),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            self.made[f"t{len(self.made)}"] = process
            return {"terminalId": f"t{len(self.made) - 1}"}
        process = self.made[params["terminalId"]]
        if name == "kill":
            process.kill()
        if name == "output":
            out, _ = process.communicate(timeout=60)
            return {
                "output": out.decode(),
                "truncated": False,
                "exitStatus": {"exitCode": process.returncode},
            }
        if name == "wait_for_exit":
            self.waits.append(asyncio.ensure_future(self.tell_exit(process)))
            return None  # answered when it ends
        return {}

    async def tell_exit(self, process: subprocess.Popen[bytes]) -> None:
        request_id = next(
            asked["id"] for asked in self.editor.asked if asked["method"] == "terminal/wait_for_exit"
        )
        code = await asyncio.to_thread(process.wait)
        result = {"exitCode": code, "signal": None}
        self.editor.send({"jsonrpc": "2.0", "id": request_id, "result": result})

    def names(self) -> list[str]:
        return [name for name, _ in self.told]


async def test_a_command_runs_in_a_terminal_behind_the_wall(project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    steps = (call("bash", command=f"echo from the terminal; touch inside; touch {outside}"), "Done.")
    async with Editor.inside(model=script(tmp_path / "m.json", *steps)) as editor:
        terminals = Terminals(editor)
        await editor.greet(TERMINAL)
        session = await editor.new(project)
        assert await editor.say(session, "Run it.") == "end_turn"
        [held] = editor.calls(session).values()
    if "create" not in terminals.names():
        pytest.skip("no wall holds here, so commands do not run in terminals")
    assert terminals.names() == ["create", "wait_for_exit", "output", "release"]
    told = terminals.told[0][1]
    assert "sandbox" in told["args"]
    assert told["cwd"] == str(project)
    assert (project / "inside").exists()
    assert not outside.exists()
    assert held["content"] == [{"type": "terminal", "terminalId": "t0"}]
    assert "from the terminal" in held["rawOutput"]["output"]
    assert held["rawOutput"]["sandbox"] != "none"
    shown = [one for one in editor.told("tool_call_update") if one.get("content")]
    assert len(shown) == 2, "the terminal as soon as there is one, and in the end"


async def test_a_turn_that_is_cancelled_kills_and_gives_back_its_terminal(
    project: Path, tmp_path: Path
) -> None:
    steps = (call("bash", command="touch begun; sleep 60"), "Never.")
    async with Editor.inside(model=script(tmp_path / "m.json", *steps)) as editor:
        terminals = Terminals(editor)
        await editor.greet(TERMINAL)
        session = await editor.new(project)
        asking = asyncio.ensure_future(editor.say(session, "Wait."))
        await until(lambda: (project / "begun").exists())
        editor.tell("session/cancel", sessionId=session)
        assert await asking == "cancelled"
    if terminals.made:
        assert "kill" in terminals.names()
        assert terminals.names()[-1] == "release"
        assert terminals.made["t0"].poll() is not None


async def test_an_editor_that_gives_no_terminal_is_not_asked_again(project: Path, tmp_path: Path) -> None:
    steps = (call("bash", command="echo one > one"), call("bash", command="echo two > two"), "Done.")
    asked: list[str] = []

    def refuse(params: dict[str, Any]) -> Any:
        asked.append(params["command"])
        raise RefusedError

    async with Editor.inside(model=script(tmp_path / "m.json", *steps)) as editor:
        editor.answers["terminal/create"] = refuse
        await editor.greet(TERMINAL)
        session = await editor.new(project)
        await editor.say(session, "Run them.")
    assert (project / "one").read_text() == "one\n"
    assert (project / "two").read_text() == "two\n"
    assert len(asked) <= 1


async def test_what_the_command_line_cannot_say_runs_as_ever(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", call("bash", command="echo one > one"), "Done.")
    async with Editor.inside(model=model, sets=("sandbox.memory_mb=4000",)) as editor:
        terminals = Terminals(editor)
        await editor.greet(TERMINAL)
        session = await editor.new(project)
        await editor.say(session, "Run it.")
    assert terminals.told == []
    assert (project / "one").exists()
