"""`--output-schema`: the answer is one JSON document of the schema, or the exit code tells that it is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import aar
from tests.support.model_server import Reply, model_server

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "size": {"type": "integer", "minimum": 1}},
    "required": ["name", "size"],
    "additionalProperties": False,
}
GOOD = '{"name": "a", "size": 2}'
BAD = '{"name": "a", "size": 0, "more": 1}'


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA))
    return file


def run(project: Path, schema: Path, model: str, replies: list[Reply], *more: str) -> tuple[Any, list[Any]]:
    with model_server(replies) as server:
        args = ["run", "--model", model, "--base-url", server.base_url, "--output", "json"]
        ran = aar(*args, "--output-schema", schema, *more, "describe it", cwd=project)
        return ran, server.requests


def test_a_server_without_the_mode_is_told_in_words_and_repaired_once_without_tools(
    project: Path, schema: Path
) -> None:
    replies = [Reply(text=f"Here it is: {BAD}"), Reply(text=f"```json\n{GOOD}\n```")]
    ran, requests = run(project, schema, "openai-compatible/m", replies)
    assert (ran.code, ran.json["text"], ran.json["steps"]) == (0, GOOD, 2)
    assert ran.json["usage"]["input"] == 20
    first, second = (json.dumps(request.body) for request in requests)
    assert "JSON Schema" in first
    assert requests[0].body["tools"]
    assert "not one JSON document" in second
    assert "tools" not in requests[1].body
    assert "response_format" not in requests[0].body


def test_an_answer_that_stays_wrong_ends_with_one_and_says_what_is_wrong(project: Path, schema: Path) -> None:
    ran, requests = run(project, schema, "openai-compatible/m", [Reply(text=BAD)])
    assert (ran.code, ran.json["exit_code"], len(requests)) == (1, 1, 2)
    assert "$.size" in ran.err
    assert "more" in ran.err


def test_the_repair_keeps_the_limit_of_requests(project: Path, schema: Path) -> None:
    ran, requests = run(project, schema, "openai-compatible/m", [Reply(text=BAD)], "--max-steps", "1")
    assert (ran.code, len(requests)) == (1, 1)


def test_the_vendors_own_mode_is_used_beside_tools_and_needs_no_words(project: Path, schema: Path) -> None:
    replies = [Reply(tool_calls=[("list_directory", {"path": "."})]), Reply(text=GOOD)]
    ran, requests = run(project, schema, "openai/gpt-5", replies, "--set", "model.api=chat")
    assert (ran.code, ran.json["text"], len(requests)) == (0, GOOD, 2)
    for request in requests:
        assert request.body["response_format"]["json_schema"]["schema"] == SCHEMA
        assert request.body["tools"]
    assert "JSON Schema:" not in json.dumps(requests[0].body)


def test_a_failure_stays_what_it_is(project: Path, schema: Path) -> None:
    ran, _ = run(project, schema, "openai-compatible/m", [Reply(status=401)])
    assert ran.code == 4


@pytest.mark.parametrize(
    ("content", "told"),
    [(None, "cannot be read"), ("{", "not JSON"), ("[]", "an object"), ('{"type": 7}', "no JSON Schema")],
)
def test_a_wrong_schema_is_told_before_anything_is_sent(
    project: Path, tmp_path: Path, content: str | None, told: str
) -> None:
    file = tmp_path / "s.json"
    if content is not None:
        file.write_text(content)
    ran, requests = run(project, file, "openai-compatible/m", [Reply(text=GOOD)])
    assert (ran.code, requests) == (3, [])
    assert told in ran.json["error"]["message"] if ran.json["error"] else told in ran.err
