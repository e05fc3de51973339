"""Compaction as the doors reach it: through a conversation with a scripted model, and through ``aar run``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from aar.protocol.errors import UsageError
from aar.runtime import open_runtime
from aar.runtime.conversation import Conversation
from tests.cli.support import aar
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("clean_environment")

NOTES = "## Goal\n- Look around.\n## Facts worth keeping\n- The port is 48151.\n## Next step\n- Stop."


def scenario(path: Path, *steps: dict[str, Any], **fields: Any) -> str:
    path.write_text(json.dumps({"steps": list(steps), **fields}))
    return f"scripted/{path}"


def reads(project: Path, count: int) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for number in range(count):
        (project / f"f{number}.txt").write_text(f"words of file {number}\n" * 250)
        steps.append({"tool_calls": [{"name": "read_file", "arguments": {"path": f"f{number}.txt"}}]})
    return [*steps, {"text": "Done."}]


@asynccontextmanager
async def opened(tmp_path: Path, *steps: dict[str, Any], **more: Any) -> AsyncIterator[Conversation]:
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    small = scenario(tmp_path / "small.json", {"text": NOTES}, {"text": "NOTHING MISSING"}, after="loop")
    model = scenario(tmp_path / "model.json", *(steps or reads(project, 4)))
    runtime = open_runtime(
        cwd=project, model=model, mode="ask", interactive=True, sets=[f"model.small={small}"]
    )
    talk = Conversation(runtime, runtime.open_session())
    try:
        yield talk
    finally:
        await talk.aclose()


async def test_a_conversation_is_compacted_by_the_small_model(tmp_path: Path) -> None:
    async with opened(tmp_path) as talk:
        talk.submit("Read all.")
        await talk.wait()
        before = {part.name: part.tokens for part in talk.context()}
        event = await asyncio.wait_for(talk.compact("ports"), 60)
        assert event is not None
        assert event.notes["facts"] == ("The port is 48151.",)
        assert event.trigger == "manual"
        after = {part.name: part.tokens for part in talk.context()}
        assert after["outputs"] < before["outputs"]
        assert after["free"] > before["free"]
        assert talk.session.totals.agents["compaction"].requests == 2
        assert not talk.running
        assert talk.submit("Go on.") == "run"
        await talk.wait()


async def test_no_prompt_gets_between_a_compaction_and_its_end(tmp_path: Path) -> None:
    async with opened(tmp_path) as talk:
        talk.submit("Read all.")
        await talk.wait()
        work = asyncio.create_task(talk.compact())
        await asyncio.sleep(0)
        assert talk.running
        with pytest.raises(UsageError, match="under way"):
            await talk.compact()
        assert await asyncio.wait_for(work, 60) is not None
        assert not talk.running


async def test_an_interrupted_compaction_leaves_the_conversation_as_it_was(tmp_path: Path) -> None:
    async with opened(tmp_path) as talk:
        talk.submit("Read all.")
        await talk.wait()
        before = talk.session.messages()
        work = asyncio.create_task(talk.compact())
        await until(lambda: talk.agent.running)
        talk.interrupt()
        assert await asyncio.wait_for(work, 60) is None
        assert talk.session.messages() == before
        assert str(talk.session.totals.state()) == "idle"


def test_a_run_in_a_small_window_ends_well_and_tells_its_compactions(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    model = scenario(
        tmp_path / "m.json", *reads(project, 12), context_window=24_000, select="counter", side_reply=NOTES
    )
    done = aar("run", "--model", model, "--output", "stream-json", "Read all.", cwd=project)
    assert done.code == 0, done.err
    events = done.lines
    compactions = [event for event in events if event["type"] == "compaction"]
    assert compactions
    assert all(event["tokens_after"] < event["tokens_before"] for event in compactions)
    assert [event["state"] for event in events if event["type"] == "state"].count("compacting") == len(
        compactions
    )
    assert events[-1]["stop_reason"] == "end_turn"
