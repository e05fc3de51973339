"""The task comes as an argument, on standard input, or both."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from tests.cli.support import aar, events, finish, of_type, start, stored


def asked() -> str:
    """Return the text of the last prompt that was stored."""
    newest = max(stored(), key=lambda path: path.stat().st_mtime_ns)
    return of_type(events(newest), "user_message")[-1]["content"][0]["text"]


def test_standard_input_is_the_task_when_it_is_a_dash_or_there_is_no_other(project: Path, hello: str) -> None:
    for args in (["-"], []):
        ran = aar("run", "--model", hello, *args, cwd=project, stdin="fix \u00fc it\n")
        assert (ran.code, ran.out) == (0, "Hello there.\n")
        assert asked() == "fix \u00fc it\n"


def test_piped_text_and_a_file_follow_the_prompt(project: Path, hello: str) -> None:
    aar("run", "--model", hello, "explain", cwd=project, stdin=b"a log\xff line\n")
    assert asked() == "explain\n\na log\ufffd line\n"
    with (project / "notes.txt").open("rb") as file:
        ended = subprocess.Popen.communicate(
            start("run", "--model", hello, "sum up", cwd=project, stdin=file), timeout=60
        )
    assert ended[0] == b"Hello there.\n"
    assert asked() == "sum up\n\nremember the milk\n"


def test_a_pipe_into_which_nobody_writes_does_not_hang_the_run(project: Path, hello: str) -> None:
    idle, held = os.pipe()
    begin = time.monotonic()
    try:
        ran = finish(start("run", "--model", hello, "hi", cwd=project, stdin=idle))
    finally:
        os.close(idle)
        os.close(held)
    assert (ran.code, ran.out) == (0, "Hello there.\n")
    assert "Nothing came on standard input" in ran.err
    assert time.monotonic() - begin < 30


def test_an_empty_task_is_a_wrong_command_line(project: Path, hello: str) -> None:
    for args, stdin in ((["  \n"], None), (["-"], ""), ([], "\n\n"), ([], None)):
        ran = aar("run", "--model", hello, *args, cwd=project, stdin=stdin)
        assert (ran.code, ran.out) == (2, "")
        assert "aar run" in ran.err
    assert stored() == []


def test_bytes_that_are_no_text_do_not_stop_a_prompt(project: Path, hello: str) -> None:
    ran = finish(start("run", "--output", "json", "--model", hello, b"caf\xe9", cwd=project))  # type: ignore[arg-type]
    assert ran.code == 0
    assert asked().startswith("caf")
