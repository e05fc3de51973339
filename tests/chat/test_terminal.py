"""`aar chat` as a real process on a terminal of its own."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from pathlib import Path

import pytest

from tests.cli.conftest import hello, project
from tests.cli.support import COMMAND, aar, environment, events, script, stored

__all__ = ["hello", "project"]


class Terminal:
    """aar chat on a terminal."""

    def __init__(self, *args: str, cwd: Path, **env: str | None) -> None:
        self._parent, child = pty.openpty()
        told = environment(**{"TERM": "xterm-256color", "CI": None, **env})
        # A session of its own, with the terminal as its controlling one, so that Ctrl-C is a signal.
        self.process = subprocess.Popen(
            [*COMMAND, "chat", *args],
            cwd=cwd,
            env=told,
            stdin=child,
            stdout=child,
            stderr=child,
            start_new_session=True,
        )
        os.close(child)
        self.screen = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(20)
        os.close(self._parent)

    def type(self, text: str) -> None:
        """Press keys as soon as they are read one by one: only then somebody is asked for words."""
        deadline = time.monotonic() + 40
        while termios.tcgetattr(self._parent)[3] & termios.ICANON:
            assert time.monotonic() < deadline, self.screen
            self._read(0.02)
        os.write(self._parent, text.encode())

    def shows(self, *words: str, since: int = 0) -> str:
        """Read until all of ``words`` were written; cursor positions that are asked for are answered."""
        deadline = time.monotonic() + 40
        while not all(word in self.screen[since:] for word in words):
            assert time.monotonic() < deadline, self.screen
            if not self._read(0.2) and self.process.poll() is not None:
                assert all(word in self.screen[since:] for word in words), self.screen
        return self.screen[since:]

    def _read(self, seconds: float) -> bool:
        if not select.select([self._parent], [], [], seconds)[0]:
            return False
        try:
            piece = os.read(self._parent, 65536).decode(errors="replace")
        except OSError:
            return False
        if "\x1b[6n" in piece:
            os.write(self._parent, b"\x1b[1;1R")
        self.screen += piece
        return bool(piece)

    def ends(self) -> int:
        """Wait for the end; return the exit code."""
        deadline = time.monotonic() + 40
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.screen
            self._read(0.1)
        while self._read(0.05):
            pass
        return self.process.returncode


def test_a_dumb_terminal_gets_plain_lines_and_a_session_that_goes_on(project: Path, hello: str) -> None:
    with Terminal("--model", hello, "--title", "First talk", cwd=project, TERM="dumb") as at:
        at.shows("> ")
        at.type("hi\r")
        at.shows("Hello there.", "(1 step")
        at.type("\x04")
        assert at.ends() == 0
        assert "\x1b" not in at.screen
        assert "is kept" in at.screen
    (file,) = stored()
    assert events(file)[0]["title"] == "First talk"
    with Terminal("--continue", "--model", hello, "again", cwd=project, TERM="dumb") as at:
        at.shows("Going on with", "Hello there.", "(1 step")
        at.type("/quit\r")
        assert at.ends() == 0
    assert [event["content"][0]["text"] for event in events(file) if event["type"] == "user_message"] == [
        "hi",
        "again",
    ]
    with Terminal("--fork", file.stem, "--model", hello, "third", cwd=project, TERM="dumb") as at:
        at.shows("(1 step")
        at.type("\x04")
        assert at.ends() == 0
    assert len(stored()) == 2


def test_ctrl_c_interrupts_the_run_and_leaves_the_talk_alive(project: Path, tmp_path: Path) -> None:
    slow = {"text": "word ", "text_repeat": 3000, "chunk_delay_ms": 20}
    model = script(tmp_path / "s.json", slow, "Second answer.")
    with Terminal("--model", model, cwd=project, NO_COLOR="1") as at:
        at.type("talk\r")
        at.shows("word word")
        os.kill(at.process.pid, signal.SIGINT)
        at.shows("! Cancelled.")
        at.type("more\r")
        at.shows("Second answer.")
        assert not re.search(r"\x1b\[3\dm", at.screen.split("! Cancelled.")[0].split("word word")[1])
        at.type("\x04")
        assert at.ends() == 0


def test_a_question_is_answered_with_one_key_on_a_real_terminal(project: Path, tmp_path: Path) -> None:
    write = {"tool_calls": [{"name": "write_file", "arguments": {"path": "b.txt", "content": "b\n"}}]}
    model = script(tmp_path / "s.json", write, "Done.")
    with Terminal("--model", model, "write b", cwd=project) as at:
        at.shows("? Write b.txt", "n no")
        at.type("y")
        at.shows("Done.")
        assert (project / "b.txt").read_text() == "b\n"
        at.type("\x04")
        assert at.ends() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_cleanly_also_in_a_run(project: Path, tmp_path: Path, number: int) -> None:
    model = script(tmp_path / "s.json", {"text": "word ", "text_repeat": 3000, "chunk_delay_ms": 20})
    with Terminal("--model", model, "talk", cwd=project, TERM="dumb") as at:
        at.shows("word word")
        os.kill(at.process.pid, number)
        assert at.ends() == 128 + number
        assert "Traceback" not in at.screen
    (file,) = stored()
    kept = events(file)
    assert kept[-1]["type"] in ("state", "session")
    assert any(event["type"] == "assistant_message" and event["partial"] for event in kept)


def test_without_a_terminal_it_says_what_to_use_instead(project: Path, hello: str) -> None:
    ran = aar("chat", "--model", hello, cwd=project, stdin="hi\n")
    assert ran.code == 2
    assert "aar run" in ran.err


def test_an_unknown_session_is_one_sentence(project: Path, hello: str) -> None:
    with Terminal("--session", "zzzz", "--model", hello, cwd=project) as at:
        assert at.ends() == 3
        assert at.screen.count("aar: ") == 1
        assert "Traceback" not in at.screen
