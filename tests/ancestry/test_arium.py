"""The example of the Arium document, from prompt to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands.support import desk

pytestmark = pytest.mark.usefixtures("clean_environment")


def typed(words: str, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return an answer that is nothing but words with a call in the document's form."""
    return {"text": words + json.dumps({"tool": tool, "arguments": arguments}, indent=1)}


async def test_its_own_example_of_a_call_is_read_and_run(tmp_path: Path) -> None:
    answers = [
        typed("", "read_file", path="main.ts"),
        typed(
            "Here is the updated content...\n", "write_file", path="main.ts", content="class HelloWorld {}\n"
        ),
        {"text": "The class has been added."},
    ]
    sets = ("model.dialect='text'",)
    async with desk(tmp_path, *answers, mode="edit", sets=sets) as at:
        file = at.context.runtime.workspace / "main.ts"
        file.write_text("// begin\n")
        await at.say("Add a HelloWorld class to main.ts")
        assert file.read_text() == "class HelloWorld {}\n"
        result = at.talk.last_result
        assert result is not None
        assert (result.stop_reason, result.text) == ("end_turn", "The class has been added.")
        calls = [event for event in at.talk.session.events() if event.type == "tool_call"]
        assert [call.tool_name for call in calls] == ["read_file", "write_file"]
