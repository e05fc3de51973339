"""The exchanges in docs/editors.md are of the protocol, and one of each kind is there."""

from __future__ import annotations

import json
import re
from pathlib import Path

from aar.transports.cli.acp import _EDITORS
from tests.acp import oracle

PAGE = (Path(__file__).parents[2] / "docs" / "editors.md").read_text(encoding="utf-8")
SOURCE = Path(__file__).parents[2] / "aar" / "transports" / "acp"


def recorded() -> list[dict[str, object]]:
    return [
        json.loads(line)
        for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
        for line in block.splitlines()
    ]


def test_every_recorded_message_of_aar_is_one_of_the_protocol() -> None:
    judged = 0
    for message in recorded():
        if message.get("method") in oracle._SENT:
            oracle.judge_sent(message)
            judged += 1
    assert judged > 15


def test_every_kind_of_update_and_request_is_recorded() -> None:
    code = "".join(path.read_text() for path in SOURCE.glob("*.py"))
    kinds = set(re.findall(r'"sessionUpdate": "(\w+)"', code)) | {
        "agent_message_chunk",
        "agent_thought_chunk",
    }
    assert {"tool_call", "usage_update", "plan"} <= kinds
    told = {
        message["params"]["update"]["sessionUpdate"]
        for message in recorded()
        if message.get("method") == "session/update"
    }  # type: ignore[index]
    assert kinds - told == set()
    asked = {message.get("method") for message in recorded()}
    assert {
        "session/request_permission",
        "fs/read_text_file",
        "fs/write_text_file",
        "elicitation/create",
        "terminal/create",
        "terminal/wait_for_exit",
        "terminal/output",
        "terminal/release",
    } <= asked


def test_every_editor_is_in_the_table() -> None:
    for editor in _EDITORS:
        assert f"`aar acp --print-config {editor}`" in PAGE
