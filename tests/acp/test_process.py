"""The real process: its streams, its end, storms of lines, tools that would read the protocol."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import time
from pathlib import Path

from tests.acp.support import Editor
from tests.cli.support import call, script
from tests.support.waiting import until

GREETING = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
MALFORMED = [
    b"{", b"nonsense", b"\xff\xfe\x00", b"[]", b"7", b'"x"', b"null", b"{}", b'{"id":101}', b'{"method":7,"id":102}',
    b'{"jsonrpc":"2.0","id":{},"method":"initialize"}', b'{"jsonrpc":"2.0","id":true,"method":"initialize"}',
    b'{"jsonrpc":"2.0","id":103,"method":"initialize","params":[1]}', b"[" * 100_000,
    b'{"jsonrpc":"2.0","id":104,"method":"no/such"}', b'[{"jsonrpc":"2.0","id":105,"method":"initialize"}]',
]  # fmt: skip


def marked(mark: str) -> list[int]:
    """Return the processes with ``mark`` in their command line, in whatever namespace they are."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def sleeper() -> tuple[str, str]:
    """Return a command with a child that sleeps long, and the mark of both."""
    mark = f"300.{secrets.randbelow(10**9):09}"
    return mark, f"sleep {mark} & sleep {mark}"


async def gone(mark: str) -> bool:
    return await until(lambda: not marked(mark), told=lambda: marked(mark))


async def running(mark: str) -> None:
    await until(lambda: any(b"sleep\0" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in marked(mark)))


async def test_malformed_lines_are_answered_or_ignored_and_harm_nothing(
    project: Path, tmp_path: Path
) -> None:
    model = script(tmp_path / "m.json", "Hello there.", after="last")
    async with Editor.outside("--model", model, cwd=project) as editor:
        for line in MALFORMED:
            editor.send_raw(line + b"\n")
        editor.send_raw(b"\n  \n\r\n")
        for harmless in (
            {"id": None, "error": {}},
            {"id": 99, "result": 7},
            {"method": "no/such"},
            {"method": "x", "params": 7},
        ):
            editor.send({"jsonrpc": "2.0", **harmless})
        await editor.greet()
        codes = [message["error"]["code"] for message in editor.log if "error" in message]
        assert codes == [-32700] * 3 + [-32600] * 9 + [-32602, -32700, -32601, -32600]
        assert [m["id"] for m in editor.log if "error" in m][8:14] == [101, 102, None, None, 103, None]
        assert await editor.say(await editor.new(project), "Hi.") == "end_turn"
        editor.hang_up()
        assert editor.process is not None
        assert await asyncio.to_thread(editor.process.wait, 10) == 0
        assert editor.process.stderr is not None
        assert editor.process.stderr.read() == b""
        assert editor.garbage == []


async def test_a_message_of_any_size_comes_whole_in_pieces_and_with_others(
    project: Path, tmp_path: Path
) -> None:
    model = script(tmp_path / "m.json", "Hello there.", after="last")
    async with Editor.outside("--model", model, cwd=project) as editor:
        line = json.dumps(GREETING).encode()
        for byte in line:  # one byte at a time
            editor.send_raw(bytes([byte]))
        editor.send_raw(b"\n")
        await editor.until(lambda: editor.log)
        session = await editor.new(project)
        image = {"type": "image", "mimeType": "image/png", "data": "A" * 12_000_000}
        turn = editor.prompt(session, "See.", image)
        others = [editor.start("session/list") for _ in range(20)]
        assert all("result" in answer for answer in await asyncio.wait_for(asyncio.gather(*others), 60))
        assert (await asyncio.wait_for(turn, 60))["result"]["stopReason"] == "end_turn"
        long = await editor.fail(
            "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "x" * 3_000_000}]
        )
        assert long["code"] == -32602
        assert "max_prompt_chars" in long["message"]
        assert len(json.dumps(long)) < 2000


async def test_sixty_of_sixty_requests_are_answered_while_tools_run_and_read_stdin(
    project: Path, tmp_path: Path
) -> None:
    command = (
        "cat; read line; head -c 100; python3 -c 'import sys; sys.stdin.read()' </dev/stdin; sleep 0.02; cat"
    )
    calls = [call("bash", command=f"{command}; echo {n}") for n in range(15)]
    model = script(tmp_path / "m.json", *calls, "Done.")
    async with Editor.outside("--model", model, "--mode", "auto", cwd=project) as editor:
        await editor.greet()
        session = await editor.new(project)
        turn = editor.prompt(session, "Go.")
        await editor.until(lambda: editor.told("tool_call"))
        asked = []
        for _ in range(60):
            asked.append(editor.start("session/set_mode", {"sessionId": session, "modeId": "auto"}))
            await asyncio.sleep(0.005)
        answers = await asyncio.wait_for(asyncio.gather(*asked), 60)
        assert [answer["result"] for answer in answers] == [{}] * 60
        assert (await asyncio.wait_for(turn, 60))["result"]["stopReason"] == "end_turn"
        assert [told["status"] for told in editor.calls().values()].count("completed") == 15
        assert editor.garbage == []


async def test_sessions_in_different_folders_run_at_once(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two", "three")]
    for folder in folders:
        (folder / ".git").mkdir(parents=True)
    model = script(tmp_path / "m.json", call("bash", command="pwd; sleep 0.3"), "Done.")
    async with Editor.outside("--model", model, "--mode", "auto", cwd=tmp_path) as editor:
        await editor.greet()
        sessions = await asyncio.gather(*(editor.new(folder) for folder in folders))
        await asyncio.gather(*(editor.say(session, "Where?") for session in sessions))
        for session, folder in zip(sessions, folders, strict=True):
            (told,) = editor.calls(session).values()
            assert told["rawOutput"]["output"].strip() == str(folder)


async def test_the_end_of_input_ends_everything_soon(project: Path, tmp_path: Path) -> None:
    mark, command = sleeper()
    model = script(tmp_path / "m.json", call("bash", command=command), "Never.")
    async with Editor.outside("--model", model, "--mode", "auto", cwd=project) as editor:
        await editor.greet()
        session = await editor.new(project)
        turn = editor.prompt(session, "Go.")
        await running(mark)
        started = time.monotonic()
        editor.hang_up()
        assert editor.process is not None
        assert await asyncio.to_thread(editor.process.wait, 60) == 0
        assert time.monotonic() - started < 30
        assert await gone(mark)
        assert (await asyncio.wait_for(turn, 60))["result"]["stopReason"] == "cancelled"
        assert editor.process.stderr is not None
        assert editor.process.stderr.read() == b""


async def test_a_signal_ends_it_cleanly_and_a_kill_leaves_no_children(project: Path, tmp_path: Path) -> None:
    mark, command = sleeper()
    model = script(tmp_path / "m.json", call("bash", command=command), "Never.")
    for number, code in ((signal.SIGTERM, 143), (signal.SIGKILL, -9)):
        async with Editor.outside("--model", model, "--mode", "auto", cwd=project) as editor:
            await editor.greet()
            editor.prompt(await editor.new(project), "Go.")
            await running(mark)
            assert editor.process is not None
            editor.process.send_signal(number)
            assert await asyncio.to_thread(editor.process.wait, 10) == code
            assert await gone(mark)


async def test_input_that_ends_at_once_is_no_error(project: Path) -> None:
    for said in (b"", b"\n", json.dumps(GREETING).encode()):
        editor = Editor.outside("--model", "scripted/none.json", cwd=project)
        editor.send_raw(said)
        editor.hang_up()
        assert editor.process is not None
        assert await asyncio.to_thread(editor.process.wait, 20) == 0
        await editor.aclose()
        assert len(editor.log) == bool(said.strip())


async def test_the_greeting_loads_nothing_heavy(project: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys\nfrom aar.transports.acp import serve\n"
        "serve._load = lambda: None\n"
        "import asyncio\nasyncio.run = lambda work: (work.close(), 0)[1]\n"
        "before = set(sys.modules)\n"
        "from aar.transports.cli.acp import acp\nacp.main([], standalone_mode=False)\n"
        "print(' '.join(sys.modules), file=sys.stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project,
        input=json.dumps(GREETING).encode() + b"\n",
        capture_output=True,
    )
    assert json.loads(ended.stdout)["result"]["protocolVersion"] == 1
    loaded = set(ended.stderr.decode().split())
    assert "aar.transports.acp.serve" in loaded
    assert not loaded & {"pydantic", "aar.runtime", "aar.protocol.events", "httpx2", "textual", "acp"}
