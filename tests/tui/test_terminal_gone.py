"""A terminal that goes away or stands still: the screen ends, its session is whole, and nothing is left behind."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import wait_until

WAIT_S = 30.0
SLOW: dict[str, Any] = {"text": "word " * 4000, "chunk_chars": 5, "chunk_delay_ms": 20}


class Pty:
    """``aar tui`` on a pseudo-terminal of its own; by default it leads the terminal's session, as below a shell."""

    def __init__(self, folder: Path, step: dict[str, Any], *, leads: bool = True) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        (self.project / ".git").mkdir(parents=True)
        scenario = folder / "s.json"
        scenario.write_text(json.dumps({"steps": [step], "after": "last"}))
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        words = [
            sys.executable,
            "-m",
            "aar",
            "tui",
            "--model",
            f"scripted/{scenario}",
            "--mode",
            "unsafe",
            "go",
        ]
        if leads:
            code = "import fcntl,os,sys,termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
            words = [sys.executable, "-c", code, *words]
        env = {**os.environ, "AAR_HOME": str(self.home), "TERM": "xterm-256color"}
        self.process = subprocess.Popen(
            words,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=env,
            cwd=self.project,
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = b""

    def until(self, word: bytes) -> None:
        end = time.monotonic() + WAIT_S
        while word not in self.seen:
            assert time.monotonic() < end, self.seen[-1000:]
            if select.select([self.ours], [], [], 0.2)[0]:
                self.seen += os.read(self.ours, 65536)

    def while_reading(self, true: Callable[[], bool]) -> None:
        end = time.monotonic() + WAIT_S
        while not true():
            assert time.monotonic() < end, self.seen[-1000:]
            self.read_for(0.05)

    def read_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self.ours], [], [], left)[0]:
                self.seen += os.read(self.ours, 65536)

    def ended(self, *, reading: bool = False) -> int:
        end = time.monotonic() + WAIT_S
        while reading and self.process.poll() is None:
            assert time.monotonic() < end, "it hangs"
            if select.select([self.ours], [], [], 0.05)[0]:
                try:
                    os.read(self.ours, 65536)
                except OSError:
                    reading = False
        return self.process.wait(WAIT_S)

    def until_full(self) -> None:
        """Wait until the terminal takes nothing more: what lies in it stays the same."""
        end = time.monotonic() + WAIT_S
        waiting, same = 0, 0
        while same < 30:
            assert time.monotonic() < end, waiting
            before, waiting = waiting, self._unread()
            same = same + 1 if waiting == before > 0 else 0
            time.sleep(0.01)

    def _unread(self) -> int:
        return int.from_bytes(fcntl.ioctl(self.ours, termios.FIONREAD, bytes(4)), sys.byteorder)

    def close(self) -> None:
        os.close(self.ours)
        self.ours = -1

    def kinds(self) -> list[str]:
        (log,) = self.home.glob("sessions/*/*.jsonl")
        assert json.loads(log.read_text().splitlines()[-1])["state"] == "cancelled"
        return [json.loads(line)["type"] for line in log.read_text().splitlines()]

    def clean(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.ours >= 0:
            os.close(self.ours)


@pytest.fixture
def made() -> Iterator[list[Pty]]:
    all_of_them: list[Pty] = []
    yield all_of_them
    for one in all_of_them:
        one.clean()


def alive(word: str) -> list[int]:
    """Return the ids of processes that have ``word`` on their command line; all of this machine are looked at."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("leads", [True, False], ids=["SIGHUP", "EIO"])
def test_it_ends_with_its_session_when_the_terminal_is_gone(
    made: list[Pty], tmp_path: Path, leads: bool
) -> None:
    screen = Pty(tmp_path, SLOW, leads=leads)
    made.append(screen)
    screen.until(b"word")
    screen.close()
    assert screen.ended() == 128 + signal.SIGHUP
    assert screen.kinds()[-2:] == ["assistant_message", "state"]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("leads", [True, False], ids=["SIGHUP", "EIO"])
def test_a_command_that_runs_ends_with_the_terminal(made: list[Pty], tmp_path: Path, leads: bool) -> None:
    word = f"{os.getpid()}.{int(leads)}77"
    command = f"sleep {word} & sleep {word}; touch never"
    call = {"text": "", "tool_calls": [{"name": "bash", "arguments": {"command": command}}]}
    screen = Pty(tmp_path, call, leads=leads)
    made.append(screen)
    screen.while_reading(lambda: len(alive(f"sleep\0{word}")) == 2)
    screen.close()
    assert screen.ended() == 128 + signal.SIGHUP
    assert screen.kinds()[-2:] == ["tool_result", "state"]
    wait_until(lambda: not alive(f"sleep\0{word}"), told=lambda: alive(f"sleep\0{word}"))
    assert not (screen.project / "never").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_also_while_the_terminal_takes_nothing(
    made: list[Pty], tmp_path: Path, number: signal.Signals
) -> None:
    screen = Pty(tmp_path, {**SLOW, "chunk_delay_ms": 1})
    made.append(screen)
    screen.until(b"word")
    # Nobody reads any more: the terminal's buffer fills, then the queue before it.
    screen.until_full()
    screen.process.send_signal(number)
    assert screen.ended() == 128 + number
    assert screen.kinds()[-2:] == ["assistant_message", "state"]


def test_a_signal_at_any_moment_of_the_start_ends_it(made: list[Pty], tmp_path: Path) -> None:
    for place, delay in enumerate((0.05, 0.3, 0.5, 0.7, 1.0)):
        folder = tmp_path / str(place)
        screen = Pty(folder, SLOW)
        made.append(screen)
        screen.read_for(delay)
        screen.process.send_signal(signal.SIGTERM)
        assert screen.ended(reading=True) in (-signal.SIGTERM, 128 + signal.SIGTERM)
