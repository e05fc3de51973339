"""Standard output holds the answer, one object, or one event a line, and nothing else."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.support import aar, call, finish, script, start, stored
from tests.support.model_server import Reply, model_server

FIELDS = {
    "session_id", "stop_reason", "exit_code", "text", "usage",
    "cost_usd", "steps", "duration_ms", "file_changes", "error",
}  # fmt: skip


def test_text_mode_writes_the_answer_to_standard_output_and_everything_else_to_standard_error(
    project: Path, tmp_path: Path
) -> None:
    model = script(
        tmp_path / "s.json",
        call("write_file", "I write it.", path="new.txt", content="one\n"),
        "    indented\nDone: the file is there.\n\n",
    )
    ran = aar("run", "--model", model, "write it", cwd=project)
    assert (ran.code, ran.out) == (0, "    indented\nDone: the file is there.\n")
    assert "+one" in ran.err
    assert "\x1b" not in ran.err


def test_quiet_leaves_standard_error_empty(project: Path, hello: str) -> None:
    ran = aar("run", "-q", "--model", hello, "hi", cwd=project)
    assert (ran.code, ran.out, ran.err) == (0, "Hello there.\n", "")


def test_json_is_one_object_with_the_fields_of_the_contract(project: Path, tmp_path: Path) -> None:
    model = script(
        tmp_path / "s.json",
        call("write_file", path="new.txt", content="one\n"),
        "Done: \u00fc \u4f60.",
        price={"input": 1, "output": 2},
    )
    ran = aar("run", "--model", model, "--output=json", "x", cwd=project)
    told = ran.json
    assert set(told) == FIELDS
    assert told["exit_code"] == ran.code == 0
    assert (told["stop_reason"], told["text"], told["steps"]) == ("end_turn", "Done: \u00fc \u4f60.", 2)
    assert told["cost_usd"] > 0
    assert told["duration_ms"] > 0
    assert told["usage"]["output"] > 0
    assert [(change["path"], change["action"]) for change in told["file_changes"]] == [("new.txt", "create")]
    assert told["session_id"] == stored()[0].stem


def test_json_is_utf_8_whatever_the_locale_says(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "s.json", "Done: \u00fc \u4f60.")
    run = start(
        "run", "--model", model, "--output", "json", "x", cwd=project, env={"PYTHONIOENCODING": "ascii"}
    )
    assert finish(run).json["text"] == "Done: \u00fc \u4f60."
    text = start("run", "--model", model, "x", cwd=project, env={"PYTHONIOENCODING": "ascii"})
    assert finish(text).out == "Done: \\xfc \\u4f60.\n"


def test_stream_json_begins_with_the_session_event_and_ends_with_the_result(
    project: Path, hello: str
) -> None:
    lines = aar("run", "--model", hello, "--output", "stream-json", "--title", "T", "hi", cwd=project).lines
    assert (lines[0]["type"], lines[0]["seq"], lines[0]["action"]) == ("session", 1, "start")
    assert lines[0]["title"] == "T"
    seqs = [line["seq"] for line in lines if line["seq"] is not None]
    assert seqs == list(range(1, len(seqs) + 1))
    assert "stream_chunk" in {line["type"] for line in lines}
    assert set(lines[-1]) == {"type", "seq", *FIELDS}
    assert (lines[-1]["type"], lines[-1]["seq"], lines[-1]["text"]) == ("result", None, "Hello there.")
    assert [json.loads(line) for line in stored()[0].read_text().splitlines()] == [
        line for line in lines if line["seq"] is not None
    ]


def test_a_resumed_stream_begins_with_the_event_of_the_resume_and_does_not_repeat_the_past(
    project: Path, hello: str
) -> None:
    first = aar("run", "--model", hello, "--output", "stream-json", "hi", cwd=project).lines
    last_seq = max(line["seq"] or 0 for line in first)
    again = aar("run", "--model", hello, "--output", "stream-json", "--continue", "more", cwd=project).lines
    assert (again[0]["type"], again[0]["action"], again[0]["seq"]) == ("session", "resume", last_seq + 1)
    fork = ["--fork", first[0]["session_id"]]
    forked = aar("run", "--model", hello, "--output", "stream-json", *fork, "more", cwd=project).lines
    assert (forked[0]["action"], forked[0]["forked_from"]["session_id"]) == ("fork", first[0]["session_id"])
    assert forked[0]["session_id"] != first[0]["session_id"]


def test_each_line_of_the_stream_is_flushed_when_it_happens(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "s.json", {"text": "slow", "first_delay_ms": 60_000})
    process = start(
        "run", "--model", model, "--output", "stream-json", "hi", cwd=project, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    try:
        seen = [json.loads(process.stdout.readline())["type"] for _ in range(4)]
    finally:
        process.kill()
        process.communicate()
    assert seen[0] == "session"
    assert "user_message" in seen


@pytest.mark.parametrize(
    ("args", "code", "kind"),
    [
        (["--set", "limits.steps=many"], 3, "configuration"),
        (["--max-steps", "many"], 2, "configuration"),
        (["--modle", "x"], 2, "configuration"),
        (["--model", "nonsense"], 3, "configuration"),
        (
            [
                "--model",
                "openai-compatible/m",
                "--base-url",
                "http://127.0.0.1:9/v1",
                "--set",
                "model.retries=1",
            ],
            4,
            "network",
        ),
        (["--session", "01NOSUCH"], 3, "configuration"),
    ],
)
def test_json_tells_every_failure_as_one_object(
    project: Path, hello: str, args: list[str], code: int, kind: str
) -> None:
    given = args if "--model" in args else ["--model", hello, *args]
    ran = aar("run", "--output", "json", *given, "hi", cwd=project)
    told = ran.json
    assert set(told) == FIELDS
    assert ran.code == told["exit_code"] == code
    assert (told["stop_reason"], told["error"]["kind"]) == ("error", kind)
    assert told["error"]["message"]


def test_a_failing_stream_still_ends_with_a_result(project: Path) -> None:
    ran = aar("run", "--output", "stream-json", "--model", "nonsense", "hi", cwd=project)
    assert [line["type"] for line in ran.lines] == ["result"]
    assert ran.code == ran.lines[0]["exit_code"] == 3


def test_a_denied_run_is_one_object_too(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "s.json", call("bash", command="touch x"), "never said")
    ran = aar("run", "--output", "json", "--mode", "ask", "--model", model, "hi", cwd=project)
    assert (ran.code, ran.json["stop_reason"]) == (6, "denied")


@pytest.mark.parametrize(
    "reply",
    [
        Reply(body=b"<html><body>It works!</body></html>", content_type="text/html"),
        Reply(body=b""),
        Reply(text="a long answer that is never finished", cut_after=200),
        Reply(body=b'{"choices": "none"}'),
    ],
    ids=["html", "empty", "cut", "other-json"],
)
def test_a_lying_server_ends_in_one_object_and_exit_code_4(project: Path, reply: Reply) -> None:
    with model_server([reply]) as server:
        args = ["--model", "openai-compatible/m", "--base-url", server.base_url, "--set", "model.retries=1"]
        ran = aar("run", "--output", "json", *args, "hi", cwd=project)
    assert (ran.code, ran.json["stop_reason"]) == (4, "error")
    assert ran.json["error"]["kind"] in {
        "malformed_response",
        "incomplete_stream",
        "invalid_request",
        "network",
    }
