"""Ctrl-C once cancels cleanly, twice leaves at once; SIGTERM is a clean end."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import call, events, finish, of_type, script, start, stored
from tests.support.waiting import wait_until

STREAM = ["--output", "stream-json"]


def until(process: subprocess.Popen[bytes], kind: str) -> list[dict[str, Any]]:
    """Read the stream of a run until an event of ``kind``."""
    assert process.stdout is not None
    seen: list[dict[str, Any]] = []
    while line := process.stdout.readline():
        seen.append(json.loads(line))
        if seen[-1]["type"] == kind:
            return seen
    raise AssertionError(f"no {kind} in {seen}")


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=lambda x: str(int(x)),
)
def test_a_signal_in_the_middle_of_an_answer_keeps_what_was_said(
    project: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    model = script(tmp_path / "s.json", {"text": "word " * 500, "chunk_chars": 5, "chunk_delay_ms": 20})
    process = start("run", *STREAM, "--model", model, "hi", cwd=project)
    until(process, "stream_chunk")
    process.send_signal(number)
    ran = finish(process)
    assert ran.code == code
    result = ran.lines[-1]
    assert (result["type"], result["exit_code"], result["stop_reason"]) == ("result", code, "cancelled")
    found = events(stored()[0])
    said = of_type(found, "assistant_message")[-1]
    assert said["partial"]
    assert said["content"].startswith("word ")
    assert (found[-1]["type"], found[-1]["stop_reason"]) == ("state", "cancelled")


def test_ctrl_c_in_the_middle_of_a_command_ends_it_and_closes_its_call(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "s.json", call("bash", command="touch begun; sleep 60; touch late"))
    process = start("run", *STREAM, "--model", model, "hi", cwd=project)
    wait_until(lambda: (project / "begun").exists())
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert finish(process).code == 130
    assert time.monotonic() - begin < 40
    found = events(stored()[0])
    assert [event["call_id"] for event in of_type(found, "tool_call")] == [
        event["call_id"] for event in of_type(found, "tool_result")
    ]
    assert not (project / "late").exists()


def test_the_second_ctrl_c_leaves_at_once(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "s.json", call("bash", command="trap '' TERM INT; sleep 60"))
    process = start("run", *STREAM, "--model", model, "hi", cwd=project)
    until(process, "provider_meta")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    ran = finish(process)
    assert ran.code == 130
    assert time.monotonic() - begin < 40


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"]
)
def test_a_signal_before_the_task_is_known_ends_in_one_object(
    project: Path, hello: str, number: signal.Signals, code: int
) -> None:
    process = start(
        "run",
        "--output",
        "json",
        "--model",
        hello,
        cwd=project,
        stdin=subprocess.PIPE,
        env={"PYTHONVERBOSE": None},
    )
    wait_until_it_reads(process)
    process.send_signal(number)
    ran = finish(process)
    assert (ran.code, ran.json["exit_code"], ran.json["stop_reason"]) == (code, code, "cancelled")


def wait_until_it_reads(process: subprocess.Popen[bytes]) -> None:
    """Wait until the process sleeps in a read of its standard input (Linux tells where it waits)."""
    place = Path(f"/proc/{process.pid}")

    def reads() -> bool:
        where, number = (place / "wchan").read_text(), (place / "syscall").read_text().split()[:2]
        return "pipe" in where or number == ["0", "0x0"]

    try:
        wait_until(reads, told=lambda: "aar never read its standard input")
    except OSError:
        time.sleep(1)  # elsewhere nothing tells
