"""Each exit code of the contract is reached by a real run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import aar, call, script

READ = call("read_file", path="notes.txt")


@pytest.mark.parametrize(
    ("steps", "args", "code", "reason"),
    [
        (["Done."], [], 0, "end_turn"),
        (["Done."], ["--verify", "test -e notes.txt"], 0, "verified"),
        ([{"text": ""}], [], 1, "empty"),
        ([READ], [], 1, "repetition"),
        (["Done."], ["--verify", "echo no; exit 1"], 1, "repetition"),
        ([{"text": "cut", "finish": "length"}], [], 1, "max_tokens"),
        ([{"text": "", "finish": "content_filter"}], [], 1, "refusal"),
        ([{"status": 401, "error": "who are you"}], [], 4, "error"),
        ([{"status": 500}], ["--set", "model.retries=1"], 4, "error"),
        ([READ, call("list_directory", path="."), "Summary."], ["--max-steps", "2"], 5, "max_steps"),
        ([{"text": "late", "first_delay_ms": 60_000}], ["--timeout", "0.2"], 5, "timeout"),
        ([call("bash", command="touch x")], ["--mode", "ask"], 6, "denied"),
        ([call("write_file", path="x", content="")], ["--mode", "plan"], None, None),
    ],
)  # fmt: skip
def test_a_run_ends_with_its_exit_code(
    project: Path, tmp_path: Path, steps: list[Any], args: list[str], code: int | None, reason: str | None
) -> None:
    model = script(tmp_path / "s.json", *steps)
    ran = aar("run", "--output", "json", "--model", model, *args, "do it", cwd=project)
    assert ran.json["exit_code"] == ran.code
    if code is None:
        assert not (project / "x").exists()
        return
    assert (ran.code, ran.json["stop_reason"]) == (code, reason), ran.err


def test_money_ends_a_run_with_the_code_of_limits(project: Path, tmp_path: Path) -> None:
    model = script(
        tmp_path / "s.json", READ, call("list_directory", path="."), "x", price={"input": 1e6, "output": 1e6}
    )
    ran = aar("run", "--output", "json", "--model", model, "--max-cost", "0.01", "do it", cwd=project)
    assert (ran.code, ran.json["stop_reason"]) == (5, "budget")
    assert ran.json["steps"] < 3


def test_max_steps_is_the_number_of_requests_with_the_last_tool_less_one(
    project: Path, tmp_path: Path
) -> None:
    steps = [call("bash", command=f"echo {n}") for n in range(9)]
    model = script(tmp_path / "s.json", *steps, side_reply="Where things stand.")
    ran = aar("run", "--output", "json", "--model", model, "--max-steps", "3", "do it", cwd=project)
    assert (ran.code, ran.json["steps"], ran.json["text"]) == (5, 3, "Where things stand.")


def test_no_model_at_all_is_a_question_of_configuration_and_names_the_ways_on(project: Path) -> None:
    ran = aar("run", "--set", "providers.local.model_path=/nowhere/x.gguf", "hi", cwd=project)
    assert ran.code == 3
    assert "--base-url" in ran.err
    assert ran.out == ""


def test_a_wrong_command_line_is_answered_with_the_nearest_name(project: Path) -> None:
    for args, near in (
        (["rum", "hi"], "'run'"),
        (["run", "--outptu", "json", "hi"], "--output"),
        (["sessions", "lst"], "'list'"),
        (["run", "--mode", "yolo", "hi"], "'auto'"),
        (["run", "--timeout", "soon", "hi"], "'soon' is not a number"),
    ):
        ran = aar(*args, cwd=project)
        assert (ran.code, ran.out) == (2, ""), args
        assert near in ran.err
        assert ran.err.count("\n") == 1


def test_flags_that_contradict_each_other_are_refused_before_anything_is_done(
    project: Path, hello: str
) -> None:
    for args in (["--continue", "--session", "X"], ["--fork", "X", "--no-session"], ["--max-cost", "0"]):
        ran = aar("run", "--model", hello, *args, "hi", cwd=project)
        assert (ran.code, ran.out) == (2, ""), args
