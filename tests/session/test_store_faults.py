"""Sessions survive full disks, second writers and sudden death."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aar.core.session import Session
from aar.memory import session_file
from aar.memory.session_store import SessionStore
from aar.protocol.errors import StorageError
from aar.protocol.events import AssistantMessage, Notice, StreamChunk, ToolCall, ToolResult
from aar.protocol.state import AgentState
from tests.session.sequences import check
from tests.session.support import in_child, new_session, path_of, read_all, texts, user


def test_a_full_disk_does_not_stop_the_session_and_nothing_is_lost(tmp_path: Path) -> None:
    """The limit on file size makes real short writes and real errors."""

    def write_on(out: int) -> None:
        store, session = new_session(tmp_path)
        seen: list[str | None] = []
        session.on_event(lambda event: seen.append(event.code) if isinstance(event, Notice) else None)
        sys.dont_write_bytecode = True  # half a compiled module would be kept for the next process
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
        session.append(*(user(f"{number} " + "x" * 100) for number in range(50)))
        session.append(user("while full"))
        size = path_of(store, session).stat().st_size
        kept = texts(list(session.events()))
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        session.append(user("after"))
        facts = {"id": session.session_id, "seen": seen, "size": size, "kept": len(kept)}
        session.close()
        os.write(out, json.dumps(facts).encode())

    pid, out = in_child(write_on)
    facts = json.loads(read_all(out))
    assert os.waitpid(pid, 0)[1] == 0
    assert facts["size"] == 10_000
    assert facts["kept"] == 51
    assert facts["seen"] == ["store_degraded", "store_recovered"]
    events = list(SessionStore(tmp_path / "sessions").read(facts["id"]))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert texts(events)[-2:] == ["while full", "after"]
    assert len(texts(events)) == 52


def test_a_folder_that_cannot_be_made_gives_a_session_in_memory_that_is_saved_later(tmp_path: Path) -> None:
    blocker = tmp_path / "sessions"
    blocker.write_text("a file where the folder should be")
    store = SessionStore(blocker)
    session = Session.create(store, cwd=tmp_path, model=None)
    session.append(user("kept"))
    assert session.degraded
    assert texts(list(session.events())) == ["kept"]
    blocker.unlink()
    session.append(user("saved"))
    assert not session.degraded
    assert texts(list(store.read(session.session_id))) == ["kept", "saved"]
    session.close()


async def test_a_disk_that_fails_at_fsync_is_told_and_its_recovery_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, session = new_session(tmp_path)

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(session_file.os, "fsync", broken)
        await session.sync()
        assert session.degraded
    await session.sync()
    codes = [event.code for event in store.read(session.session_id) if isinstance(event, Notice)]
    assert codes == ["store_degraded", "store_recovered"]
    session.close()


def test_a_second_process_is_refused_with_the_pid_and_the_way_on(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    session.append(user("mine"))
    code = (
        "import sys; from pathlib import Path\n"
        "from aar.core.session import Session\n"
        "from aar.memory.session_store import SessionStore\n"
        "store = SessionStore(Path(sys.argv[1]))\n"
        "try: Session.resume(store, sys.argv[2])\n"
        "except Exception as error: print(error)\n"
        "print(Session.fork(store, sys.argv[2]).last_seq)\n"
    )
    argv = [sys.executable, "-c", code, str(store.root), session.session_id]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    refusal, forked = done.stdout.splitlines()
    assert f"aar run --fork {session.session_id}" in refusal
    if Path("/proc/locks").exists():
        assert f"process {os.getpid()}" in refusal
    assert int(forked) == 3
    session.close()
    again = Session.resume(store, session.session_id)
    assert texts(list(again.events())) == ["mine"]
    again.close()


def _write_for_ever(root: Path, out: int) -> None:
    _, session = new_session(root)
    os.write(out, f"{session.session_id}\n".encode())
    run = session.scope("R")
    run.append(user("go"))
    session.on_event(lambda event: os.write(out, f"{event.seq}\n".encode()) and None)
    for step in range(1, 1_000_000):
        run.step = step
        run.append(AssistantMessage(content="x" * (step % 3000)), ToolCall(call_id=f"c{step}", tool_name="t"))
        run.append(ToolResult(call_id=f"c{step}", tool_name="t", output="ok"))


def _kill_once(root: Path, delay_s: float) -> tuple[set[int], set[int]]:
    """Kill a writing process; return the numbers that it printed, and those that are in its file."""
    pid, out = in_child(lambda end: _write_for_ever(root, end))
    first = b""
    while not first.endswith(b"\n"):
        first += os.read(out, 1)
    session_id = first.decode().strip()
    os.set_blocking(out, False)
    printed = bytearray()
    deadline = time.monotonic() + delay_s
    while time.monotonic() < deadline:
        with contextlib.suppress(BlockingIOError):
            printed += os.read(out, 1 << 20)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.set_blocking(out, True)
    printed += read_all(out)
    shown = [int(number) for number in printed.split(b"\n")[:-1]]
    store = SessionStore(root / "sessions")
    session = Session.resume(store, session_id)
    stored = {event.seq for event in session.events()}
    check(session.messages())
    assert not session.totals.agents_with_open_calls()
    session.append(user("on we go"))
    session.close()
    return set(shown), stored


def test_what_was_shown_before_a_kill_is_in_the_file(tmp_path: Path) -> None:
    chance = random.Random(7)
    for number in range(15):
        shown, stored = _kill_once(tmp_path / str(number), chance.uniform(0, 0.1))
        assert shown <= stored
        assert stored == set(range(1, len(stored) + 1))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_was_shown_before_500_kills_is_in_the_file(tmp_path: Path) -> None:
    chance = random.Random()
    for number in range(500):
        shown, stored = _kill_once(tmp_path / str(number), chance.uniform(0, 0.15))
        assert shown <= stored
        assert stored == set(range(1, len(stored) + 1))


async def test_the_streamed_half_of_an_answer_survives_a_kill(tmp_path: Path) -> None:
    def stream(out: int) -> None:
        _, session = new_session(tmp_path)
        run = session.scope("R")
        run.append(user("go"))
        session.set_state(AgentState.RUNNING, emit=run)
        run.step = 1
        # Without a running loop each piece is written at once.
        for word in ("half ", "an ", "answer"):
            run.publish(StreamChunk(text=word))
        os.write(out, session.session_id.encode())
        os.kill(os.getpid(), signal.SIGKILL)

    pid, out = in_child(stream)
    session_id = read_all(out).decode()
    os.waitpid(pid, 0)
    store = SessionStore(tmp_path / "sessions")
    session = Session.resume(store, session_id)
    partial = [event for event in session.events() if isinstance(event, AssistantMessage)]
    assert [(event.content, event.partial, event.run_id, event.step) for event in partial] == [
        ("half an answer", True, "R", 1)
    ]
    assert session.totals.state() is AgentState.CANCELLED
    assert not store.path(session_id).with_suffix(".d").exists()
    session.close()
    again = Session.resume(store, session_id)
    assert [message.text for message in again.messages()] == ["go", "half an answer"]
    again.close()


def test_a_journal_of_an_answer_that_was_stored_is_dropped(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    run = session.scope("R")
    run.step = 1
    run.append(user("go"), AssistantMessage(content="whole"))
    session.close()
    folder = path_of(store, session).with_suffix(".d")
    folder.mkdir()
    line = {"run_id": "R", "step": 1, "text": "who", "reasoning": ""}
    folder.joinpath("stream").write_text(json.dumps(line) + '\n{"torn')
    again = Session.resume(store, session.session_id)
    assert [message.text for message in again.messages()] == ["go", "whole"]
    assert not folder.exists()
    again.close()


def test_a_lock_dies_with_its_process(tmp_path: Path) -> None:
    def hold(out: int) -> None:
        _, session = new_session(tmp_path)
        os.write(out, session.session_id.encode())
        os.kill(os.getpid(), signal.SIGKILL)

    pid, out = in_child(hold)
    session_id = read_all(out).decode()
    os.waitpid(pid, 0)
    session = Session.resume(SessionStore(tmp_path / "sessions"), session_id)
    assert session.session_id == session_id
    session.append(user("mine now"))
    assert texts(list(session.events())) == ["mine now"]
    session.close()


def test_a_closed_session_refuses_more(tmp_path: Path) -> None:
    _, session = new_session(tmp_path)
    session.close()
    session.close()
    with pytest.raises(StorageError, match="closed"):
        session.append(user("too late"))
