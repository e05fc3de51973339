"""New sessions are titled by the small model, beside the conversation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aar.protocol.events import ProviderMeta, SessionEvent
from aar.runtime import open_runtime
from aar.runtime.conversation import Conversation
from tests.support.model_server import ModelServer, Reply

pytestmark = pytest.mark.usefixtures("clean_environment")


def small(server: ModelServer) -> list[str]:
    """Return settings that make ``server`` the small model, at a price."""
    return [
        'model.small="mistral/small-one"',
        f'providers.mistral.base_url="{server.base_url}"',
        "providers.mistral.models.small-one.price_input=1",
        "providers.mistral.models.small-one.price_output=2",
    ]


@asynccontextmanager
async def opened(tmp_path: Path, sets: Sequence[str] = ()) -> AsyncIterator[Conversation]:
    """Open a conversation whose main model answers anything with a word."""
    scenario = tmp_path / "model.json"
    scenario.write_text(json.dumps({"steps": [{"text": "done"}], "after": "last"}))
    runtime = open_runtime(cwd=tmp_path, model=f"scripted/{scenario}", interactive=True, sets=sets)
    talk = Conversation(runtime, runtime.open_session())
    try:
        yield talk
    finally:
        await talk.aclose()


async def say(talk: Conversation, prompt: str) -> None:
    talk.submit(prompt)
    async with asyncio.timeout(60):
        await talk.wait()


async def titled(talk: Conversation) -> str:
    async with asyncio.timeout(60):
        await talk.titles.wait()
    return talk.session.title


async def test_the_first_run_is_followed_by_a_title_whose_cost_counts(tmp_path: Path) -> None:
    async with (
        ModelServer([Reply(text='"Parser mended"')]) as server,
        opened(tmp_path, small(server)) as talk,
    ):
        await say(talk, "please mend the parser of ours")
        assert await titled(talk) == "Parser mended"
        metas = [event for event in talk.session.events() if isinstance(event, ProviderMeta)]
        cost = pytest.approx((10 * 1 + 5 * 2) / 1e6)
        assert [meta.cost_usd for meta in metas if meta.agent_id == "title"] == [cost]
        assert talk.session.totals.cost_usd == cost
        assert talk.agent.budget is not None
        assert talk.agent.budget.lines()[1].spent == cost
        assert [message.role for message in talk.session.messages()] == ["user", "assistant"]
        await say(talk, "and another thing")
        assert await titled(talk) == "Parser mended"
        assert len(server.requests) == 1


async def test_without_a_small_model_nobody_is_asked(tmp_path: Path) -> None:
    async with opened(tmp_path) as talk:
        await say(talk, "mend it")
        assert await titled(talk) == "mend it"
        metas = [event for event in talk.session.events() if isinstance(event, ProviderMeta)]
        assert [meta.agent_id for meta in metas] == ["main"]


async def test_a_small_model_that_fails_is_told_in_the_log_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with ModelServer([Reply(status=401)]) as server, opened(tmp_path, small(server)) as talk:
        await say(talk, "mend it")
        assert await titled(talk) == "mend it"
        assert not [e for e in talk.session.events() if isinstance(e, SessionEvent) and e.action == "rename"]
        assert talk.session.totals.errors == 0
        assert talk.last_result is not None
        assert talk.last_result.exit_code == 0
        assert "gave no title" in caplog.text


async def test_a_small_model_that_cannot_be_opened_is_told_in_the_log_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path, ['model.small="nobody/nothing"']) as talk:
        await say(talk, "mend it")
        assert await titled(talk) == "mend it"
        assert "got no title" in caplog.text


async def test_a_slow_title_holds_up_neither_the_next_prompt_nor_the_end(tmp_path: Path) -> None:
    slow = [Reply(text="Too late", delay_s=30)]
    async with ModelServer(slow) as server:
        async with asyncio.timeout(60), opened(tmp_path, small(server)) as talk:
            await say(talk, "mend it")
            await say(talk, "go on")
            first = talk.session
            await talk.new_session()
        assert first.title == "mend it"


async def test_a_name_given_while_the_model_thinks_stays(tmp_path: Path) -> None:
    late = [Reply(text="By the model", delay_s=0.3)]
    async with ModelServer(late) as server, opened(tmp_path, small(server)) as talk:
        await say(talk, "mend it")
        talk.session.rename("Mine")
        assert await titled(talk) == "Mine"
        assert server.requests


async def test_a_session_that_is_taken_up_again_is_not_titled_anew(tmp_path: Path) -> None:
    async with ModelServer([Reply(text="A"), Reply(text="B")]) as server:
        async with opened(tmp_path, small(server)) as talk:
            await say(talk, "mend it")
            assert await titled(talk) == "A"
            first = talk.session.session_id
            await talk.new_session()
            await talk.resume(first)
            await say(talk, "go on")
            assert await titled(talk) == "A"
        assert len(server.requests) == 1
