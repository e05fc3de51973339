"""One model request: retries, waits, failures, streaming and not."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aar.core.session import Session
from aar.memory.memory_store import MemoryStore
from aar.protocol.errors import (
    AarError,
    ConfigurationError,
    ErrorKind,
    InternalError,
    ProviderError,
    SandboxError,
    StorageError,
)
from aar.protocol.events import Event
from aar.providers.scripted import ScriptedProvider
from tests.support.fakes import Turn, World, call, check_messages, no_tasks_left
from tests.support.waiting import until


def error(kind: ErrorKind, **fields: Any) -> ProviderError:
    return ProviderError(kind, f"The server said {kind}.", **fields)


def scripted(folder: Path, steps: Sequence[dict[str, Any]], **more: Any) -> ScriptedProvider:
    path = folder.with_suffix(".json")
    path.write_text(json.dumps({"steps": list(steps), "chunk": None, **more}))
    return ScriptedProvider(path)


async def test_a_wait_that_the_server_asks_for_is_kept(tmp_path: Path) -> None:
    limited = Turn(fail=error(ErrorKind.RATE_LIMIT, retry_after_s=0.08, status=429))
    world = World(tmp_path, [limited, "Done."])
    began = time.monotonic()
    result = await world.run()
    assert result.stop_reason == "end_turn"
    assert time.monotonic() - began >= 0.08
    (retry,) = world.of("retry")
    assert (retry.attempt, retry.delay_s, retry.error_kind, retry.discard) == (1, 0.08, "rate_limit", False)
    assert world.of("provider_meta")[0].attempts == 2
    assert result.steps == 1


async def test_scripted_failures_are_tried_again(tmp_path: Path) -> None:
    steps = [
        {"status": 429, "headers": {"retry-after": "0.01"}},
        {"status": 500},
        {"text": "I was about to say", "drop_after_chars": 8, "chunk_chars": 4},
        {"text": "Done."},
    ]
    world = World(tmp_path, scripted(tmp_path, steps))
    result = await world.run()
    assert (result.stop_reason, result.text) == ("end_turn", "Done.")
    retries = world.of("retry")
    assert [retry.error_kind for retry in retries] == ["rate_limit", "provider_internal", "incomplete_stream"]
    assert [retry.discard for retry in retries] == [False, False, True]
    assert world.of("provider_meta")[0].attempts == 4
    assert world.finished_chunks == 4
    assert [event.content for event in world.of("assistant_message")] == ["Done."]


async def test_thoughts_alone_that_were_shown_are_discarded_too(tmp_path: Path) -> None:
    broken = Turn(reasoning="I think", fail=error(ErrorKind.NETWORK))
    world = World(tmp_path, [broken, "Done."])
    await world.run()
    assert world.of("retry")[0].discard
    assert world.of("reasoning") == []


async def test_calls_of_a_stream_that_broke_do_not_run(tmp_path: Path) -> None:
    broken = Turn("x", [call("write_file", path="a", content="x")], fail=error(ErrorKind.INCOMPLETE_STREAM))
    world = World(tmp_path, [broken, "Done."])
    await world.run()
    assert world.of("tool_call") == []
    assert not (tmp_path / "a").exists()


async def test_the_attempts_are_counted_in_all(tmp_path: Path) -> None:
    world = World(tmp_path, [Turn("half of", fail=error(ErrorKind.NETWORK))], retries=3)
    result = await world.run()
    assert (result.stop_reason, result.exit_code) == ("error", 4)
    assert len(world.provider.requests) == 3
    assert len(world.of("retry")) == 2
    assert result.error == {"kind": "network", "message": "The server said network."}
    (last,) = world.of("assistant_message")
    assert (last.content, last.partial) == ("half of", True)
    assert world.finished_chunks == 3
    (told,) = world.of("error")
    assert (told.kind, told.stage, told.retryable) == ("network", "model", True)
    assert str(world.of("state")[-1].state) == "error"
    assert world.of("state")[-1].detail == "The server said network."
    assert world.provider.closed == 3


async def test_a_wait_past_the_deadline_ends_the_run_at_once(tmp_path: Path) -> None:
    limited = Turn(fail=error(ErrorKind.RATE_LIMIT, retry_after_s=60))
    world = World(tmp_path, [limited], limits={"seconds": 5})
    began = time.monotonic()
    result = await world.run()
    assert time.monotonic() - began < 30
    assert (result.stop_reason, result.exit_code) == ("error", 4)
    assert world.of("retry") == []


async def test_hours_are_not_waited_for(tmp_path: Path) -> None:
    world = World(tmp_path, [Turn(fail=error(ErrorKind.RATE_LIMIT, retry_after_s=7200))])
    assert (await world.run()).exit_code == 4


@pytest.mark.parametrize(
    "kind", [ErrorKind.AUTH, ErrorKind.QUOTA, ErrorKind.INVALID_REQUEST, ErrorKind.UNKNOWN_MODEL]
)
async def test_failures_that_cannot_pass_are_not_tried_again(tmp_path: Path, kind: ErrorKind) -> None:
    world = World(tmp_path, [Turn(fail=error(kind))])
    result = await world.run()
    assert (result.exit_code, len(world.provider.requests)) == (4, 1)
    assert world.of("error")[0].kind == kind
    assert world.finished_chunks == 1


async def test_an_overflow_is_an_error_of_the_context(tmp_path: Path) -> None:
    world = World(tmp_path, [Turn(fail=error(ErrorKind.CONTEXT_OVERFLOW))])
    assert (await world.run()).exit_code == 4
    assert world.of("error")[0].stage == "context"


@pytest.mark.parametrize(
    ("failure", "code", "kind"),
    [
        (ConfigurationError("The key is missing."), 3, "configuration"),
        (SandboxError("There is no wall."), 3, "sandbox"),
        (StorageError("No."), 7, "storage"),
        (InternalError("No."), 7, "internal"),
        (KeyError("defect"), 7, "internal"),
        (TimeoutError(), 7, "internal"),
    ],
)
async def test_other_failures_have_their_own_exit_codes(
    tmp_path: Path, failure: Exception, code: int, kind: str
) -> None:
    world = World(tmp_path, [Turn("So far", fail=failure)])
    result = await world.run()
    assert (result.stop_reason, result.exit_code) == ("error", code)
    assert result.error is not None
    assert result.error["kind"] == kind
    assert world.of("assistant_message")[0].partial
    assert world.finished_chunks == 1
    assert isinstance(failure, AarError) or world.logged == [failure]
    assert (await World(tmp_path, ["Fine."], store=world.store, session=world.session).run()).exit_code == 0


async def test_a_failing_last_answer_leaves_the_reason_as_it_is(tmp_path: Path) -> None:
    turns = [Turn(calls=[call("list_directory", path=".")]), Turn(fail=error(ErrorKind.AUTH))]
    world = World(tmp_path, turns, limits={"steps": 2})
    result = await world.run()
    assert (result.stop_reason, result.exit_code, result.error) == ("max_steps", 5, None)
    assert world.of("error")[0].kind == "auth"


async def test_cancel_in_a_wait_ends_it(tmp_path: Path) -> None:
    world = World(tmp_path, [Turn("said", fail=error(ErrorKind.RATE_LIMIT, retry_after_s=60))])
    run = world.start()
    await until(lambda: world.of("retry"))
    world.agent.cancel()
    assert (await run).stop_reason == "cancelled"
    assert world.of("assistant_message") == []
    assert world.finished_chunks == 1
    assert no_tasks_left() == []


async def test_usage_is_estimated_where_the_server_tells_none(tmp_path: Path) -> None:
    world = World(tmp_path, [Turn("word " * 100, usage=None)])
    result = await world.run()
    assert result.usage.estimated
    assert result.usage.input > 500
    assert 100 <= result.usage.output <= 250


def stored(world: World) -> list[dict[str, Any]]:
    volatile = {"id", "ts", "session_id", "run_id", "trace_id", "parent_id", "duration_ms", "first_token_ms"}
    return [
        {key: value for key, value in event.model_dump(mode="json").items() if key not in volatile}
        for event in world.events
        if event.type not in {"session", "prompt"}
    ]


async def test_streamed_or_not_the_stored_events_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "a.txt").write_text("alpha\n")
    steps = [
        {
            "reasoning": "Let me see.",
            "text": "I read it first.",
            "tool_calls": [
                {"name": "read_file", "arguments": {"path": "a.txt"}},
                {"name": "write_file", "arguments": {"path": "a.txt", "content": "beta\n"}},
            ],
        },
        {"text": "Broken", "status": 500},
        {"text": "", "tool_calls": [{"name": "nope", "arguments": "{broken"}]},
        {"text": "Done."},
    ]
    worlds = []
    for stream in (True, False):
        (tmp_path / "w" / "a.txt").write_text("alpha\n")
        world = World(tmp_path / "w", scripted(tmp_path / "s", steps), stream=stream)
        assert (await world.run()).text == "Done."
        worlds.append(world)
    streamed, whole = worlds
    for events in (streamed, whole):
        assert len(events.results) == 3
    assert stored(streamed) == stored(whole)
    assert streamed.finished_chunks == whole.finished_chunks == 4
    texts = ["".join(event.text for event in world.live if event.type == "stream_chunk") for world in worlds]
    assert texts[0] == texts[1] == "I read it first.Done."


async def test_text_that_the_parser_held_back_is_kept_at_a_cancel(tmp_path: Path) -> None:
    world = World(tmp_path, [Turn('See this: {"a": 1, "b"', hang=True)])
    run = world.start()
    await world.provider.speaking.wait()
    world.agent.cancel()
    await run
    (message,) = world.of("assistant_message")
    assert message.content.startswith("See this:")
    assert message.partial


async def test_a_session_that_cannot_take_events_is_an_error_of_the_caller(tmp_path: Path) -> None:
    world = World(tmp_path, ["Never."])
    world.session.close()
    with pytest.raises(StorageError, match="closed"):
        await world.agent.run("x", world.session)
    assert not world.agent.running


async def test_messages_hold_after_errors(tmp_path: Path) -> None:
    store = MemoryStore()
    world = World(tmp_path, [Turn("Half", fail=error(ErrorKind.AUTH))], store=store)
    await world.run()
    world.session.close()
    again = Session.resume(store, world.session.session_id)
    check_messages(again.messages())
    events: list[Event] = list(again.events())
    assert events[-1].type == "session"


async def test_progress_of_a_provider_is_shown_and_not_stored(tmp_path: Path) -> None:
    world = World(tmp_path, [Turn("Hello.", progress="loading the model")])
    assert (await world.run()).stop_reason == "end_turn"
    shown = [event for event in world.live if event.type == "notice"]
    assert [(event.message, event.code, event.seq) for event in shown] == [
        ("loading the model", "provider_progress", None)
    ]
    assert world.of("notice") == []
