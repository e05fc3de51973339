"""``--input stream-json``: a program drives a session by lines on standard input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aar.protocol.errors import UsageError
from aar.transports.cli.run_input import ApprovalLine, PromptLine, parse_line
from tests.cli.support import aar, call, finish, of_type, script, start, stored

DRIVEN = ["run", "--input", "stream-json", "--output", "stream-json"]
KINDS = ("prompt", "steer", "cancel", "stop", "approval")
TOUCH = call("bash", command="touch x")


class Driver:
    """A program that writes lines and reads events."""

    def __init__(self, project: Path, *args: str) -> None:
        self.process = start(*DRIVEN, *args, cwd=project, stdin=subprocess.PIPE)

    def send(self, **line: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()

    def until(self, kind: str, **fields: Any) -> dict[str, Any]:
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            event = json.loads(line)
            if event["type"] == kind and all(event.get(key) == value for key, value in fields.items()):
                return event
        raise AssertionError(f"no {kind} {fields}")


def lines(*objects: dict[str, Any] | str) -> str:
    return "".join((item if isinstance(item, str) else json.dumps(item)) + "\n" for item in objects)


def test_prompts_run_one_after_the_other_and_each_ends_with_a_result(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "s.json", "First.", "Second.")
    block = {"type": "text", "text": "two"}
    told = lines({"type": "prompt", "content": "one"}, "", {"type": "prompt", "content": [block]})
    ran = aar(*DRIVEN, "--model", model, cwd=project, stdin=told)
    assert (ran.code, ran.err) == (0, "")
    assert [line["text"] for line in of_type(ran.lines, "result")] == ["First.", "Second."]
    assert ran.lines[-1]["type"] == "result"
    assert len(of_type(ran.lines, "session")) == 1
    seqs = [line["seq"] for line in ran.lines if line["seq"] is not None]
    assert seqs == list(range(1, len(seqs) + 1))


def test_the_argument_is_the_first_prompt_and_needs_no_other(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "s.json", "First.", "Second.")
    ran = aar(
        *DRIVEN, "--model", model, "one", cwd=project, stdin=lines({"type": "prompt", "content": "two"})
    )
    said = [event["content"][0]["text"] for event in of_type(ran.lines, "user_message")]
    assert said == ["one", "two"]
    assert aar(*DRIVEN, "--model", model, "one", cwd=project, stdin="").lines[-1]["text"] == "First."


def test_a_program_answers_the_questions(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "s.json", TOUCH, "Made.", call("bash", command="touch y"), "Not made.")
    driver = Driver(project, "--model", model, "--mode", "ask")
    driver.send(type="prompt", content="make x")
    asked = driver.until("approval_request")
    assert asked["arguments"]["command"] == "touch x"
    driver.send(type="approval", request_id="01NOSUCH", decision="allow")
    assert "01NOSUCH" in driver.until("notice", code="input")["message"]
    driver.send(type="approval", request_id=asked["request_id"], decision="allow")
    assert driver.until("result")["stop_reason"] == "end_turn"
    assert (project / "x").exists()
    driver.send(type="prompt", content="make y")
    asked = driver.until("approval_request")
    driver.send(type="approval", request_id=asked["request_id"], decision="reject", feedback="not y")
    assert "not y" in driver.until("tool_result")["output"]
    driver.until("result")
    assert finish(driver.process).code == 0
    assert not (project / "y").exists()


def test_questions_after_the_end_of_the_input_are_denied(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "s.json", TOUCH, "never said")
    told = lines({"type": "prompt", "content": "make x"})
    ran = aar(*DRIVEN, "--model", model, "--mode", "ask", cwd=project, stdin=told)
    assert (ran.code, ran.lines[-1]["stop_reason"]) == (6, "denied")
    assert not (project / "x").exists()


def test_an_open_question_is_denied_when_the_input_ends(project: Path, tmp_path: Path) -> None:
    driver = Driver(project, "--model", script(tmp_path / "s.json", TOUCH, "never said"), "--mode", "ask")
    driver.send(type="prompt", content="make x")
    driver.until("approval_request")
    assert finish(driver.process).code == 6


def test_steering_is_heard_in_the_run_and_a_cancel_ends_it(project: Path, tmp_path: Path) -> None:
    slow = {"text": "word " * 500, "chunk_chars": 5, "chunk_delay_ms": 20}
    model = script(tmp_path / "s.json", call("bash", command="sleep 0.5"), "Heard.", slow, "After.")
    driver = Driver(project, "--model", model)
    driver.send(type="prompt", content="begin")
    driver.until("tool_call")
    driver.send(type="steer", content="rather this")
    assert driver.until("user_message", source="steer")["content"][0]["text"] == "rather this"
    assert driver.until("result")["text"] == "Heard."
    driver.send(type="prompt", content="long")
    driver.until("stream_chunk")
    driver.send(type="cancel")
    ended = driver.until("result")
    assert (ended["stop_reason"], ended["exit_code"]) == ("cancelled", 130)
    driver.send(type="prompt", content="again")
    assert driver.until("result")["text"] == "After."
    assert finish(driver.process).code == 0


def test_a_cancel_right_behind_its_prompt_cancels_that_prompt(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "s.json", {"text": "slow", "first_delay_ms": 60_000})
    told = lines({"type": "prompt", "content": "one"}, {"type": "cancel"})
    ran = aar(*DRIVEN, "--model", model, cwd=project, stdin=told)
    assert (ran.code, ran.lines[-1]["stop_reason"]) == (130, "cancelled")


def test_stop_lets_the_model_sum_up(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "s.json", call("bash", command="sleep 0.5"), TOUCH, side_reply="So far.")
    driver = Driver(project, "--model", model)
    driver.send(type="prompt", content="begin")
    driver.until("tool_call")
    driver.send(type="stop")
    ended = driver.until("result")
    assert (ended["stop_reason"], ended["text"]) == ("stopped", "So far.")
    assert finish(driver.process).code == 0


def test_wrong_lines_are_told_by_number_and_the_rest_is_done(
    project: Path, tmp_path: Path, hello: str
) -> None:
    told = lines(
        "{",
        "[1]",
        {"type": "promt"},
        {"type": "prompt"},
        {"type": "cancel"},
        {"type": "prompt", "content": "hi"},
    )
    ran = aar(*DRIVEN, "--model", hello, cwd=project, stdin=told)
    wrong = [line for line in of_type(ran.lines, "notice") if line["code"] == "input"]
    assert [line["message"].split(" of ")[0] for line in wrong] == [f"Line {n}" for n in range(1, 6)]
    assert all(line["seq"] is None for line in wrong)
    assert (ran.code, ran.lines[-1]["text"]) == (0, "Hello there.")


def test_an_input_without_a_prompt_is_a_wrong_command_line(project: Path, hello: str) -> None:
    ran = aar(*DRIVEN, "--model", hello, cwd=project, stdin="")
    assert (ran.code, ran.lines[-1]["exit_code"]) == (2, 2)
    assert "No prompt" in ran.err
    assert stored() == [], "nothing to go on with is left behind"


def test_json_tells_the_last_run_and_text_every_answer(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "s.json", "First.", "Second.")
    told = lines({"type": "prompt", "content": "one"}, {"type": "prompt", "content": "two"})
    run = ["run", "--input", "stream-json", "--model", model]
    kept = tmp_path / "last.txt"
    last = ["--output-last-message", str(kept)]
    assert aar(*run, "--output", "json", *last, cwd=project, stdin=told).json["text"] == "Second."
    assert kept.read_text() == "Second."
    assert aar(*run, "-q", cwd=project, stdin=told).out == "First.\nSecond.\n"


def test_flags_that_do_not_go_with_lines_are_refused(project: Path, hello: str) -> None:
    for args in (["--approve-with", "true"], ["--image", "x.png"], ["-"]):
        ran = aar(*DRIVEN, "--model", hello, *args, cwd=project, stdin="")
        assert (ran.code, ran.lines[-1]["type"]) == (2, "result"), args


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_driver_that_waits(
    project: Path, hello: str, number: signal.Signals, code: int
) -> None:
    driver = Driver(project, "--model", hello)
    driver.send(type="prompt", content="hi")
    driver.until("result")
    driver.process.send_signal(number)
    ran = finish(driver.process)
    assert (ran.code, ran.lines[-1]["exit_code"]) == (code, code)


def test_a_signal_ends_the_run_and_no_other_begins(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "s.json", {"text": "slow", "first_delay_ms": 60_000}, "never")
    driver = Driver(project, "--model", model)
    driver.send(type="prompt", content="one")
    driver.send(type="prompt", content="two")
    driver.until("state", state="running")
    driver.process.send_signal(signal.SIGTERM)
    ran = finish(driver.process)
    assert ran.code == 143
    assert [line["exit_code"] for line in of_type(ran.lines, "result")] == [143]


def test_a_reader_that_goes_away_ends_it_quietly(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "s.json", {"text": "word " * 2000, "chunk_chars": 5, "chunk_delay_ms": 5})
    driver = Driver(project, "--model", model)
    driver.send(type="prompt", content="one")
    driver.until("stream_chunk")
    assert driver.process.stdout is not None
    assert driver.process.stderr is not None
    driver.process.stdout.close()
    driver.process.wait(30)
    assert driver.process.stderr.read() == b""
    driver.process.stderr.close()


def test_a_prompt_of_a_megabyte_comes_whole(project: Path, hello: str) -> None:
    told = lines({"type": "prompt", "content": "ü" * 500_000 + " end"})
    ran = aar(*DRIVEN, "--model", hello, cwd=project, stdin=told)
    assert of_type(ran.lines, "user_message")[0]["content"][0]["text"].endswith("ü end")
    assert os.environ["AAR_HOME"]


_JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=9), lambda x: st.lists(x, max_size=3), max_leaves=5
)
_FIELDS = st.dictionaries(
    st.sampled_from(("type", "content", "decision", "x")), st.sampled_from(KINDS) | _JSON
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.binary(max_size=99) | (_JSON | _FIELDS).map(lambda value: json.dumps(value).encode()))
def test_a_line_is_understood_or_refused_in_one_sentence(raw: bytes) -> None:
    try:
        told = parse_line(raw).type
    except UsageError as error:
        told = str(error)
    assert "\n" not in told
    assert told.endswith(".") or told in KINDS


def test_lines_are_parsed_to_what_they_say() -> None:
    assert parse_line(b'{"type":"prompt","content":"x"}') == PromptLine(type="prompt", content="x")
    answer = parse_line(b'{"type":"approval","request_id":"r","decision":"allow","scope":"session"}')
    assert answer == ApprovalLine(type="approval", request_id="r", decision="allow", scope="session")
    for wrong in (
        b'{"type":"prompt","content":""}',
        b'{"type":"cancel","x":1}',
        b'{"type":"prompt","content":[]}',
    ):
        with pytest.raises(UsageError):
            parse_line(wrong)
