"""The screen in a real terminal, inside tmux; skipped where there is no tmux."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.waiting import wait_until

WAIT_S = 30.0


class Terminal:
    """A tmux server of its own with one pane, in which aar runs below a shell that tells its exit code."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        (self.project / ".git").mkdir(parents=True)
        self.home = folder / "home"
        self._socket = folder / "tmux"
        self._pid_file = folder / "pid"

    def tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), "-f", "/dev/null", *words],
            capture_output=True,
            text=True,
            timeout=20,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(
        self, steps: list[dict[str, object]], *more: str, size: str = "100x30", job: bool = False
    ) -> None:
        scenario = self.folder / "scenario.json"
        scenario.write_text(json.dumps({"steps": steps, "after": "last", "select": "history"}))
        aar = f"{sys.executable} -m aar tui --model scripted/{scenario} {' '.join(more)}"
        script = self.folder / "run.sh"
        # The shell writes the id before it becomes aar: the test ends that process and no other.
        run = f"sh -c 'echo $$ > {self._pid_file}; exec {aar}'"
        if job:
            # As below an interactive shell, with a script around aar.
            run = f'set -m\nsh -c "{run}; echo AROUND"\nstty -a > {self.folder}/stopped\nread go\nfg'
        script.write_text(
            f"cd {self.project}\nexport AAR_HOME={self.home}\nstty -a > {self.folder}/before\n"
            f"{run}\necho EXIT=$?\nstty -a > {self.folder}/after\nexec sleep 60\n"
        )
        columns, rows = size.split("x")
        if self._socket.exists():
            # A server that is ending still holds its socket: the next one gets another.
            self.tmux("kill-server")
            self._socket = self._socket.with_name(f"{self._socket.name}x")
        self.tmux("new-session", "-d", "-x", columns, "-y", rows, f"sh {script}")
        self.until("send", "edit", "ask", how=any)

    @property
    def pid(self) -> int:
        return int(self._pid_file.read_text())

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def keys(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-l", text)

    def until(self, *texts: str, how: Callable[..., bool] = all, gone: bool = False) -> str:
        shown = ""

        def stands() -> bool:
            nonlocal shown
            shown = self.screen()
            return how((text in shown) is not gone for text in texts)

        wait_until(stands, WAIT_S, lambda: f"{texts} {'still there' if gone else 'missing'}:\n{shown}")
        return shown

    def ended(self, code: int) -> None:
        self.until(f"EXIT={code}")
        after = self.folder / "after"
        wait_until(lambda: after.exists() and after.read_text())
        assert after.read_text() == (self.folder / "before").read_text()

    def sessions(self) -> list[list[dict[str, object]]]:
        """Return the stored events of each session."""
        files = sorted(self.home.glob("sessions/*/*.jsonl"))
        return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]

    def stop(self) -> None:
        if self._socket.exists():
            subprocess.run(["tmux", "-S", str(self._socket), "kill-server"], capture_output=True, timeout=20)


@pytest.fixture
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed (apt-get install tmux)")
    # Short, for the path of a socket has about a hundred bytes.
    made = Terminal(tmp_path_factory.mktemp("t"))
    yield made
    made.stop()


HELLO: dict[str, object] = {"text": "Hello from the model."}
SLOW: dict[str, object] = {"text": "word " * 2000, "chunk_chars": 5, "chunk_delay_ms": 20}


def test_a_session_from_start_to_end_gives_the_terminal_back(terminal: Terminal) -> None:
    terminal.start([HELLO])
    terminal.type("say hello 漢字 👍")
    terminal.until("say hello 漢字 👍")
    terminal.keys("Enter")
    terminal.until("Hello from the model.")
    terminal.keys("C-q")
    terminal.ended(0)
    assert "Hello from the model." not in terminal.screen()


def test_a_pasted_megabyte_becomes_a_chip_and_keys_are_answered(terminal: Terminal) -> None:
    terminal.start([HELLO])
    text = terminal.folder / "paste"
    # What is in a paste is never a key: these would send it, and open the editor.
    text.write_text("one line of a long text that was pasted\n" * 24_997 + "\x1b[31m\r\x07\x1b\r end")
    terminal.tmux("load-buffer", "-b", "big", str(text))
    terminal.tmux("paste-buffer", "-p", "-r", "-b", "big")
    terminal.until("lines]")
    terminal.type("after")
    shown = terminal.until("after")
    assert "[pasted 25,000 lines]after" in shown
    assert "one line of a long text" not in shown


def test_a_storm_of_sizes_leaves_a_whole_screen(terminal: Terminal) -> None:
    terminal.start([HELLO])
    terminal.type("hi")
    terminal.keys("Enter")
    terminal.until("Hello from the model.")
    for place in range(40):
        terminal.tmux("resize-window", "-x", str(40 + place * 7 % 120), "-y", str(8 + place * 5 % 40))
    terminal.tmux("resize-window", "-x", "80", "-y", "24")
    shown = terminal.until("Hello from the model.", "send")
    assert all(len(line) <= 80 for line in shown.split("\n"))


def test_escape_interrupts_and_a_question_is_answered_by_key(terminal: Terminal) -> None:
    ask: dict[str, object] = {
        "text": "",
        "tool_calls": [{"name": "write_file", "arguments": {"path": "made.txt", "content": "x\n"}}],
    }
    terminal.start([ask, HELLO, SLOW], "--mode", "ask")
    terminal.type("go")
    terminal.keys("Enter")
    terminal.until("made.txt", "Waiting for your answer")
    assert not (terminal.project / "made.txt").exists()
    terminal.keys("Tab")
    terminal.until("y once")
    terminal.keys("y")
    terminal.until("Hello from the model.")
    assert (terminal.project / "made.txt").read_text() == "x\n"
    terminal.type("more")
    terminal.keys("Enter")
    terminal.until("word word")
    terminal.keys("Escape")
    terminal.until("Interrupted")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_closes_the_session_and_gives_the_terminal_back(
    terminal: Terminal, number: signal.Signals
) -> None:
    terminal.start([SLOW])
    terminal.type("go")
    terminal.keys("Enter")
    terminal.until("word word")
    os.kill(terminal.pid, number)
    terminal.ended(128 + number)
    (stored,) = terminal.sessions()
    assert stored[-1]["type"] == "state"
    assert stored[-1]["stop_reason"] == "cancelled"


def test_what_was_said_is_there_again_after_a_kill(terminal: Terminal) -> None:
    terminal.start([HELLO])
    terminal.type("remember me")
    terminal.keys("Enter")
    terminal.until("Hello from the model.")
    os.kill(terminal.pid, signal.SIGKILL)
    terminal.until("EXIT=137")
    terminal.start([HELLO], "--continue")
    assert terminal.until("remember me", "Hello from the model.").count("remember me") == 1
    (stored,) = terminal.sessions()
    assert [event["type"] for event in stored].count("user_message") == 1


def test_ctrl_z_gives_the_terminal_to_the_shell_and_fg_comes_back(terminal: Terminal) -> None:
    terminal.start([HELLO], job=True)
    terminal.type("half a prom")
    terminal.until("half a prom")
    terminal.keys("C-z")
    stopped = terminal.folder / "stopped"
    wait_until(lambda: stopped.exists() and stopped.read_text())
    assert stopped.read_text() == (terminal.folder / "before").read_text()
    assert "half a prom" not in terminal.screen()
    terminal.keys("Enter")
    terminal.until("half a prom", "send")
    terminal.type("pt")
    assert terminal.until("half a prompt").count("half a prom") == 1
    terminal.keys("C-c", "C-q")
    terminal.until("AROUND")
    terminal.ended(0)


def test_ctrl_z_stops_nothing_where_no_shell_could_go_on_with_it(terminal: Terminal) -> None:
    terminal.start([HELLO])
    terminal.keys("C-z")
    terminal.until("No shell waits behind aar")
    terminal.type("still here")
    terminal.until("still here")
