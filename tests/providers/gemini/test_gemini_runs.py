"""Gemini through the command line: ends that are no ends, refusals, and a session that is resumed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.support import Ran, aar, of_type
from tests.providers.gemini.bodies import answers, call, piece, sse
from tests.support.model_server import ModelServer, Reply, model_server

DONE = sse(piece({"text": "That is all."}, finish="STOP"))
QUICK = ("--set", "model.retries=1", "--mode", "ask")


def run(server: ModelServer, cwd: Path, *flags: str) -> Ran:
    address = f"http://127.0.0.1:{server.port}"
    return aar(
        "run", "--model", "gemini/gemini-3-pro-preview", "--base-url", address, "--output", "stream-json",
        *QUICK, *flags, "go on", cwd=cwd,
    )  # fmt: skip


WRITE = call("write_file", "c2ln", args={"path": "a.txt", "content": "x"})


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(body=sse(piece(WRITE)), content_type="text/event-stream"), "incomplete_stream"),
        (Reply(body=sse(piece(WRITE, finish="STOP")), cut_after=150), "incomplete_stream"),
        (Reply(body=sse(piece(WRITE), {"error": {"code": 503, "message": "busy"}})), "overloaded"),
        (Reply(body=b"<html><title>Sign in</title></html>"), "malformed_response"),
    ],
)
def test_no_call_of_an_answer_that_failed_is_run(reply: Reply, kind: str, tmp_path: Path):
    with model_server([reply]) as server:
        ran = run(server, tmp_path, "--mode", "edit")
    assert ran.code == 4
    assert [event["kind"] for event in of_type(ran.lines, "error")] == [kind]
    assert of_type(ran.lines, "tool_call") == []
    assert not (tmp_path / "a.txt").exists()


def test_a_resumed_session_sends_the_signatures_and_the_same_bytes_as_before(tmp_path: Path):
    (tmp_path / "a.txt").write_text("hello")
    look = sse(
        piece({"text": "I look.", "thought": True}),
        piece(call("read_file", "c2ln", id="s1", args={"path": "a.txt"}), finish="STOP"),
    )
    with model_server([*answers(look, DONE, DONE)]) as server:
        assert run(server, tmp_path).code == 0
        assert run(server, tmp_path, "--continue").code == 0
        first, second, resumed = server.requests
    parts = resumed.body["contents"][1]["parts"]
    assert parts == [
        {"text": "I look.", "thought": True},
        {
            "functionCall": {"name": "read_file", "args": {"path": "a.txt"}, "id": "s1"},
            "thoughtSignature": "c2ln",
        },
    ]
    answer = resumed.body["contents"][2]["parts"][0]["functionResponse"]
    assert (answer["id"], answer["name"]) == ("s1", "read_file")
    for before, after in ((first, second), (second, resumed)):
        stem = before.raw[: before.raw.index(b'],"generationConfig"')]
        assert after.raw.startswith(stem)


def test_a_blocked_prompt_ends_the_run_as_a_refusal(tmp_path: Path):
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3}}
    with model_server([Reply(body=json.dumps(blocked).encode())]) as server:
        ran = run(server, tmp_path)
    assert (ran.code, ran.lines[-1]["stop_reason"]) == (1, "refusal")


def test_without_key_and_address_the_run_ends_with_a_sentence(tmp_path: Path):
    none: dict[str, str | None] = {"GEMINI_API_KEY": None, "GOOGLE_API_KEY": None}
    ran = aar("run", "--model", "gemini", "--output", "json", *QUICK, "hi", cwd=tmp_path, env=none)
    assert ran.code == 4
    assert ran.json["error"]["kind"] == "auth"
    assert "GEMINI_API_KEY" in ran.json["error"]["message"]
