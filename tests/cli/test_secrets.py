"""A key in the environment goes to its server and appears nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

from tests.cli.support import aar
from tests.support.model_server import Reply, model_server

KEY = "sk-proj-T3stK3yThatMustNeverShow0123456789abcdef"


def test_a_key_appears_in_no_output_no_session_and_no_log(project: Path) -> None:
    shown = {"command": "env; printenv OPENAI_API_KEY; cat /proc/self/environ"}
    replies = [
        Reply(text="I look.", tool_calls=[("bash", shown)]),
        Reply(status=401, error=f"Incorrect API key provided: {KEY}. It ends in abcdef."),
    ]
    seen = ""
    with model_server(replies, models=["m"]) as server:
        env = {"OPENAI_API_KEY": KEY, "AAR_PROVIDERS__OPENAI_COMPATIBLE__API_KEY_ENV": "OPENAI_API_KEY"}
        args = ["--model", "openai-compatible/m"]
        base = ["--base-url", server.base_url]
        trace = ["--debug", "--set", 'log.trace=["llm"]']
        for output in ("text", "stream-json"):
            ran = aar("run", "--output", output, *args, *base, *trace, "hi", cwd=project, env=env)
            assert ran.code == 4
            seen += ran.out + ran.err
        for command in (
            ["models", "list", "--json", *args, *base],
            ["models", "show", "openai/gpt-5"],
            ["doctor", "--json"],
            ["config", "show", "--origin"],
            ["prompt", "show", *args, *base],
            ["logs", "-n", "1000"],
        ):
            ran = aar(*command, cwd=project, env=env)
            seen += ran.out + ran.err
        sent = [request.headers.get("authorization") for request in server.requests]
    assert f"Bearer {KEY}" in sent
    assert KEY not in seen
    files = [path for path in Path(os.environ["AAR_HOME"]).rglob("*") if path.is_file()]
    assert any(path.suffix == ".jsonl" for path in files)
    for path in files:
        assert KEY.encode() not in path.read_bytes(), path
