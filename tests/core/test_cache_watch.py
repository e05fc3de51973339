"""The prefix of a request stays the same bytes, and a cache that was not used is told, with the reason."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from aar.core.cache_watch import CacheWatch
from aar.protocol.messages import Message, TextBlock
from aar.protocol.tool import SideEffect, ToolSpec
from aar.protocol.usage import Usage
from aar.providers.base import ProviderRequest
from aar.runtime import open_runtime
from tests.support.fakes import Turn, World, call
from tests.support.model_server import ModelServer, Reply
from tests.support.work import calls_made


def message(text: str, role: Any = "user") -> Message:
    return Message(role=role, content=(TextBlock(text=text),))


def tool(name: str) -> ToolSpec:
    return ToolSpec(name, "A tool.", {"type": "object"}, frozenset({SideEffect.READ}), lambda *_: None)


FIRST = ProviderRequest(
    "m", "You are.", [message("one"), message("two", "assistant"), message("three")], (tool("a"),)
)
NEXT = replace(FIRST, messages=[*FIRST.messages, message("four", "assistant"), message("five")])
CACHED, MISSED = Usage(input=10, cache_read=9000, cache_write=1000), Usage(input=10_500)


def look(request: ProviderRequest, usage: Usage, *, model: str = "v/m", idle_s: float = 1) -> str | None:
    now = [0.0]
    watch = CacheWatch(lambda: now[0])
    assert watch.look("v/m", FIRST, CACHED) is None
    now[0] += idle_s
    return watch.look(model, request, usage)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (replace(NEXT, system="You were."), "the system prompt changed"),
        (replace(NEXT, tools=(tool("a"), tool("b"))), "the tools changed (+ b)"),
        (replace(NEXT, tools=()), "the tools changed (- a)"),
        (replace(NEXT, reasoning="high"), "the reasoning level changed"),
        (replace(NEXT, messages=[message("uno"), *NEXT.messages[1:]]), "message 1 of 3 is not what it was"),
        (replace(NEXT, messages=[message("Summary"), message("five")]), "message 1 of 3 is not what it was"),
        (replace(NEXT, messages=NEXT.messages[:1]), "message 2 of 3 is not what it was"),
        (NEXT, "the vendor let it go"),
    ],
)
def test_what_broke_the_prefix_is_told(request_: ProviderRequest, words: str) -> None:
    assert (
        look(request_, MISSED) == f"The prompt cache was not used (10,000 tokens were read again): {words}."
    )


def test_another_model_and_a_long_pause_are_reasons_too() -> None:
    told = look(NEXT, MISSED, model="w/n")
    assert told is not None
    assert told.endswith("the model changed from v/m to w/n.")
    told = look(NEXT, MISSED, idle_s=600)
    assert told is not None
    assert told.endswith("the last request was 10 minutes ago.")


@pytest.mark.parametrize(
    "usage",
    [Usage(input=500, cache_read=10_000), Usage(input=3000, cache_read=7500), Usage(input=9, estimated=True)],
)
def test_where_the_vendor_read_its_cache_nothing_is_told(usage: Usage) -> None:
    assert look(replace(NEXT, system="You were."), usage) is None


def test_vendors_without_a_cache_are_not_spoken_of() -> None:
    watch = CacheWatch()
    for request in (FIRST, NEXT, replace(NEXT, system="Other.")):
        assert watch.look("v/m", request, Usage(input=9000)) is None


def test_a_last_message_that_grew_is_no_change() -> None:
    grown = [*FIRST.messages[:2], message("three and more")]
    told = look(replace(FIRST, messages=grown), MISSED)
    assert told is not None
    assert "let it go" in told


def test_a_vendor_that_forgets_again_and_again_is_told_three_times() -> None:
    watch = CacheWatch()
    told = [watch.look("v/m", NEXT, usage) for usage in [CACHED, MISSED] * 6]
    assert sum(note is not None for note in told) == 3


def test_a_request_costs_the_same_after_a_thousand_messages() -> None:
    def work(messages: int) -> int:
        history = [message(str(place)) for place in range(messages)]
        watch = CacheWatch()
        watch.look("v/m", replace(FIRST, messages=history), CACHED)
        longer = replace(FIRST, messages=[*history, message("new")])
        return calls_made(lambda: watch.look("v/m", longer, CACHED))

    assert work(10) == work(1000) > 0


async def test_the_user_hears_of_it(tmp_path: Path) -> None:
    turns = [
        Turn(calls=[call("list_directory", path=".")], usage=CACHED),
        Turn(calls=[call("list_directory", path=".")], usage=MISSED),
        "Done.",
    ]
    world = World(tmp_path, turns)
    assert (await world.run()).exit_code == 0
    (notice,) = world.of("notice")
    assert (notice.code, notice.level) == ("cache_broken", "info")
    assert "10,000 tokens were read again" in notice.message


async def test_what_was_sent_stays_the_same_bytes_from_step_to_step_and_after_resume(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha\n")
    looks = Reply(text="I look.", tool_calls=[("read_file", {"path": "a.txt"})])
    async with ModelServer([looks, Reply(text="Done."), looks, Reply(text="Again.")]) as server:
        options: dict[str, Any] = {
            "cwd": tmp_path,
            "model": "openai-compatible/m",
            "base_url": server.base_url,
        }
        session_id = None
        for prompt in ("Read a.txt. Grüße, 世界", "Once more."):
            runtime = open_runtime(**options)
            session = runtime.open_session(session_id=session_id)
            assert (await runtime.agent(session).run(prompt, session)).exit_code == 0
            session_id = session.session_id
            await session.aclose()
            await runtime.aclose()
        sent = server.requests
    assert len(sent) == 4
    for before, after in pairwise(sent):
        assert after.messages[: len(before.messages)] == before.messages
        assert messages_in(after.raw).startswith(messages_in(before.raw))
        assert {**after.body, "messages": 0} == {**before.body, "messages": 0}


def messages_in(raw: bytes) -> str:
    """Return the bytes of a request's messages without the bracket that closes them."""
    text = raw.decode()
    start = text.index('"messages":') + len('"messages":')
    return text[start : json.JSONDecoder().raw_decode(text, start)[1] - 1]
