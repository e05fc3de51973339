"""What a person sees: progress on a terminal only, hostile text made visible, readers that go away."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from pathlib import Path

from tests.cli.support import COMMAND, environment, events, finish, of_type, script, start, stored

HOSTILE = "safe \x1b]0;owned\x07\x1b[2J\x1b[31mred\u202e end"


def on_terminal(*args: str, cwd: Path, out: bool = False, **env: str | None) -> tuple[int, str, str]:
    """Run aar with standard error (and output) on a terminal; return code, standard output, the screen."""
    parent, child = pty.openpty()
    told = environment(**{"TERM": "xterm-256color", "CI": None, **env})
    process = subprocess.Popen(
        [*COMMAND, *args], cwd=cwd, env=told, stdin=subprocess.DEVNULL,
        stdout=child if out else subprocess.PIPE, stderr=child,
    )  # fmt: skip
    os.close(child)
    screen = bytearray()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not select.select([parent], [], [], 1)[0]:
            continue
        try:
            piece = os.read(parent, 65536)
        except OSError:  # EIO: nobody has the terminal open any more
            break
        if not piece:
            break
        screen += piece
    os.close(parent)
    answer = process.stdout.read().decode() if process.stdout is not None else ""
    if process.stdout is not None:
        process.stdout.close()
    return process.wait(60), answer, screen.decode()


def test_progress_is_drawn_on_a_terminal_within_its_width_and_taken_away(
    project: Path, tmp_path: Path
) -> None:
    model = script(tmp_path / "s.json", {"text": "Hello.", "first_delay_ms": 400})
    code, out, screen = on_terminal("run", "--model", model, "hi", cwd=project, COLUMNS="24")
    assert (code, out) == (0, "Hello.\n")
    frames = re.findall(r"\r\x1b\[K([^\r\n\x1b]+)", screen)
    drawn = [frame for frame in frames if not frame.startswith("aar: ")]
    assert any("Waiting" in frame for frame in drawn)
    assert max(map(len, drawn)) <= 23
    assert re.search(r"\r\x1b\[K(aar: Session \w+)\r\n$", screen)


def test_nothing_is_drawn_for_ci_dumb_terminals_or_when_asked_to_be_quiet(
    project: Path, tmp_path: Path
) -> None:
    model = script(tmp_path / "s.json", {"text": "Hello.", "first_delay_ms": 250})
    for args, env in ((["-q"], {}), ([], {"CI": "true"}), ([], {"TERM": "dumb"})):
        code, out, screen = on_terminal("run", *args, "--model", model, "hi", cwd=project, **env)
        assert (code, out) == (0, "Hello.\n")
        assert "\x1b" not in screen


def test_colours_of_a_diff_are_for_terminals_that_want_them(project: Path, tmp_path: Path) -> None:
    write = {"tool_calls": [{"name": "write_file", "arguments": {"path": "{name}", "content": "one\n"}}]}
    for name, no_color in (("a", ""), ("b", "1")):
        model = script(tmp_path / "s.json", write, "Done.", set={"name": name})
        _, _, screen = on_terminal("run", "--model", model, "hi", cwd=project, NO_COLOR=no_color)
        assert ("\x1b[32m+one" in screen) == (not no_color)


def test_hostile_text_of_the_model_is_made_visible_on_a_terminal_and_kept_in_a_pipe(
    project: Path, tmp_path: Path
) -> None:
    model = script(tmp_path / "s.json", HOSTILE, chunk_chars=3)
    code, _, screen = on_terminal("run", "-q", "--model", model, "hi", cwd=project, out=True)
    assert code == 0
    assert "safe ␛]0;owned" in screen
    assert "\x1b" not in screen
    assert "\u202e" not in screen
    _, _, listed = on_terminal("sessions", "show", stored()[0].stem, cwd=project, out=True)
    assert "\x1b]" not in listed
    assert "\u202e" not in listed
    piped = finish(start("run", "-q", "--model", model, "hi", cwd=project))
    assert piped.out == HOSTILE + "\n"


def test_a_reader_that_goes_away_ends_the_run_quietly_and_its_session_is_kept(
    project: Path, tmp_path: Path
) -> None:
    model = script(tmp_path / "s.json", {"text": "word " * 2000, "chunk_chars": 5, "chunk_delay_ms": 5})
    process = start("run", "--output", "stream-json", "--model", model, "hi", cwd=project)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    begin = time.monotonic()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 130
    assert time.monotonic() - begin < 40
    assert of_type(events(stored()[0]), "state")[-1]["stop_reason"] == "cancelled"


def test_closed_and_full_standard_streams_do_no_harm(project: Path, hello: str) -> None:
    command = " ".join(map(repr, [*COMMAND, "run", "--model", hello, "hi"]))
    for redirect, code, said in (
        (">&-", 0, "Session"),
        (">/dev/full", 7, "cannot be written"),
        (">/dev/null 2>&- <&-", 0, ""),
        ("2>/dev/full", 0, ""),
    ):
        ended = subprocess.run(
            ["/bin/sh", "-c", f"{command} {redirect}"],
            cwd=project,
            env=environment(),
            capture_output=True,
            text=True,
        )
        assert ended.returncode == code, redirect
        assert said in ended.stderr
        assert "Traceback" not in ended.stderr
        assert "Exception" not in ended.stderr
    for file in stored():
        assert events(file)[-1]["stop_reason"] == "end_turn"


def test_lists_may_be_cut_off_by_a_reader(project: Path, hello: str) -> None:
    for command in ("--help", "config show", "tools --json"):
        words = " ".join(map(repr, COMMAND))
        ended = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {words} {command} | true"],
            cwd=project,
            env=environment(),
            capture_output=True,
        )
        assert (ended.returncode, ended.stderr) == (0, b"")
