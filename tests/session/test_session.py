"""A session: stamping, states, forks, those who watch it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aar.core.session import Session
from aar.core.subscribers import MAX_PROGRESS_CHARS
from aar.memory import session_file, stream_journal
from aar.protocol.errors import InternalError, StorageError, ToolCategory
from aar.protocol.events import (
    AssistantMessage,
    ErrorEvent,
    Event,
    ModelSwitch,
    Notice,
    PlanEvent,
    PlanItem,
    ProviderMeta,
    Retry,
    SessionEvent,
    Setting,
    StreamChunk,
    ToolCall,
    ToolProgress,
    ToolResult,
)
from aar.protocol.state import AgentState, StopReason
from aar.protocol.usage import Usage
from tests.session.support import new_session, path_of, texts, user
from tests.support.waiting import until


async def _tick(times: int = 5) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


def test_the_first_event_tells_what_the_session_is(tmp_path: Path) -> None:
    _, session = new_session(tmp_path, title="Mine")
    first = next(session.events())
    assert isinstance(first, SessionEvent)
    assert (first.action, first.schema_version, first.cwd) == ("start", 1, str(tmp_path.resolve()))
    assert (first.model, first.title, session.title) == ("scripted/x", "Mine", "Mine")
    assert first.aar_version
    session.close()


def test_a_scope_stamps_run_step_and_agent_and_keeps_what_is_given(tmp_path: Path) -> None:
    _, session = new_session(tmp_path)
    run = session.scope("R1", "sub-1")
    run.step = 4
    plain, given = run.append(user("a"), user("b").model_copy(update={"step": 9, "agent_id": "other"}))
    assert (plain.run_id, plain.step, plain.agent_id) == ("R1", 4, "sub-1")
    assert (given.run_id, given.step, given.agent_id) == ("R1", 9, "other")
    assert (plain.seq, given.seq) == (2, 3)
    assert plain.session_id == session.session_id
    assert plain.trace_id == session.trace_id
    assert plain.ts.endswith("Z")
    session.close()


def test_what_is_shown_and_what_is_stored_cannot_be_mixed_up(tmp_path: Path) -> None:
    _, session = new_session(tmp_path)
    with pytest.raises(InternalError):
        session.append(StreamChunk(text="x"))
    with pytest.raises(InternalError):
        session.publish(user("x"))
    assert session.last_seq == 1
    session.close()


def test_a_state_that_may_not_follow_is_refused(tmp_path: Path) -> None:
    _, session = new_session(tmp_path)
    run = session.scope("R")
    session.set_state(AgentState.RUNNING, emit=run)
    with pytest.raises(InternalError, match="cannot go from running to running"):
        session.set_state(AgentState.RUNNING, emit=run)
    event = session.set_state(AgentState.COMPLETED, StopReason.END_TURN, emit=run)
    assert event.run_id == "R"
    assert session.totals.stop_reason is StopReason.END_TURN
    sub = session.scope("R", "sub")
    session.set_state(AgentState.RUNNING, emit=sub)
    assert (session.totals.state("sub"), session.totals.state()) == (AgentState.RUNNING, AgentState.COMPLETED)
    session.close()


def test_totals_count_every_agent_and_know_what_they_do_not_know(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    run, sub = session.scope("R1"), session.scope("R1", "sub")
    run.step = sub.step = 1
    meta = ProviderMeta(provider="p", model="m", usage=Usage(input=10, output=5), cost_usd=0.5)
    run.append(user("Fix it\nnow"), AssistantMessage(content="a"), ToolCall(call_id="1", tool_name="t"), meta)
    run.append(
        ToolResult(call_id="1", tool_name="t", output="no", is_error=True),
        ErrorEvent(kind="network", message="x"),
    )
    assert session.totals.cost_known
    sub.append(meta.model_copy(update={"cost_usd": None}), ToolCall(call_id="1", tool_name="t"))
    plan = (PlanItem(id="1", title="look"),)
    session.append(PlanEvent(items=plan), Setting(key="mode", to="plan"))
    session.append(ModelSwitch(from_model="a", to_model="b", reason="r"))
    session.close()
    for at in (session, Session.resume(store, session.session_id)):
        totals = at.totals
        assert (totals.usage.input, totals.cost_usd, totals.cost_known) == (20, 0.5, False)
        assert (totals.steps, totals.tool_calls, totals.errors, totals.all.tool_errors >= 1) == (
            2,
            2,
            1,
            True,
        )
        assert (totals.run("R1").requests, totals.agents["main"].cost_known) == (2, True)
        assert (at.title, at.model, totals.mode, at.plan) == ("Fix it", "b", "plan", plan)
        at.close()


def test_resuming_closes_the_open_calls_of_every_agent_once(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    main, sub = session.scope("R"), session.scope("R", "sub-1")
    main.step = sub.step = 2
    session.set_state(AgentState.RUNNING, emit=main)
    call = main.append(user("go"), ToolCall(call_id="a", tool_name="task"))[1]
    sub.append(user("do"), ToolCall(call_id="b", tool_name="bash"))
    session.close()
    again = Session.resume(store, session.session_id)
    closed = {event.call_id: event for event in again.events() if isinstance(event, ToolResult)}
    assert set(closed) == {"a", "b"}
    assert (closed["a"].category, closed["a"].parent_id, closed["a"].step) == ("interrupted", call.id, 2)
    assert closed["a"].output.startswith("Error [interrupted]: ")
    assert closed["b"].agent_id == "sub-1"
    assert again.messages("sub-1")[-1].content[0].output.startswith("Error [interrupted]: ")
    assert again.totals.state() is AgentState.CANCELLED
    again.set_state(AgentState.RUNNING)
    again.append(user("more").model_copy(update={"agent_id": "sub-1"}))
    assert again.to_messages("sub-1")[-1].text == "more"
    last = again.last_seq
    again.close()
    third = Session.resume(store, session.session_id)
    assert len([event for event in third.events(last + 1) if isinstance(event, ToolResult)]) == 0
    third.close()


def test_close_open_calls_tells_the_reason_it_is_given(tmp_path: Path) -> None:
    _, session = new_session(tmp_path)
    run = session.scope("R")
    run.append(user("go"), ToolCall(call_id="a", tool_name="t"))
    [result] = session.close_open_calls(run, category=ToolCategory.CANCELLED, message="The user stopped.")
    assert isinstance(result, ToolResult)
    assert result.output == "Error [cancelled]: The user stopped."
    assert session.close_open_calls(run) == ()
    session.close()


def test_a_fork_copies_up_to_a_point_and_leaves_the_original_alone(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    session.append(user("one"), ToolCall(call_id="a", tool_name="t"), user("two"))
    before = path_of(store, session).read_bytes()
    fork = Session.fork(store, session.session_id, 3, cwd=tmp_path / "copy")
    events = list(fork.events())
    assert texts(events) == ["one"]
    assert {event.session_id for event in events} == {fork.session_id}
    assert {event.trace_id for event in events} == {fork.trace_id} != {session.trace_id}
    marker = events[3]
    assert isinstance(marker, SessionEvent)
    assert marker.forked_from is not None
    assert (marker.action, marker.forked_from.session_id, marker.forked_from.seq) == (
        "fork",
        session.session_id,
        3,
    )
    assert fork.cwd == tmp_path / "copy"
    assert isinstance(events[4], ToolResult)
    assert path_of(store, session).read_bytes() == before
    with pytest.raises(StorageError, match="nothing to copy"):
        Session.fork(store, session.session_id, 0)
    fork.close()
    session.close()


def test_a_fork_of_many_events_is_whole(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    session.append(*(user(str(number)) for number in range(1234)))
    fork = Session.fork(store, session.session_id)
    assert texts(list(fork.events())) == [str(number) for number in range(1234)]
    fork.rename("Other")
    assert (fork.title, session.title) == ("Other", "0")
    fork.close()
    session.close()


async def test_a_slow_subscriber_gets_joined_pieces_and_every_stored_event_in_order(tmp_path: Path) -> None:
    _, session = new_session(tmp_path)
    run = session.scope("R")
    run.step = 1
    slow = session.subscribe("slow")
    run.append(user("go"))
    run.publish(StreamChunk(reasoning_text="hm"))
    for piece in ("a", "b", "c"):
        run.publish(StreamChunk(text=piece))
    run.publish(StreamChunk(tool_call_fragment={"index": 0, "name": "bash", "arguments": '{"'}))
    run.publish(StreamChunk(tool_call_fragment={"index": 0, "arguments": 'x":'}))
    run.publish(StreamChunk(tool_call_fragment={"index": 1, "name": "grep", "arguments": "{}"}))
    run.publish(StreamChunk(finished=True))
    run.append(AssistantMessage(content="abc"), ToolCall(call_id="1", tool_name="t"))
    for number in range(100):
        run.publish(ToolProgress(call_id="1", text=f"{number} "))
        run.publish(ToolProgress(call_id="2", text="."))
    run.append(ToolResult(call_id="1", tool_name="t", output="ok"))
    assert slow.backlog == 10
    session.close()
    seen = [event async for event in slow]
    chunks = [event for event in seen if isinstance(event, StreamChunk)]
    assert [(chunk.reasoning_text, chunk.text, chunk.finished) for chunk in chunks] == [
        ("hm", "abc", False),
        ("", "", False),
        ("", "", False),
        ("", "", True),
    ]
    assert chunks[1].tool_call_fragment == {"index": 0, "name": "bash", "arguments": '{"x":'}
    progress = {event.call_id: event.text for event in seen if isinstance(event, ToolProgress)}
    assert progress == {"1": "".join(f"{number} " for number in range(100)), "2": "." * 100}
    assert [event.seq for event in seen if event.stored] == [2, 3, 4, 5]


async def test_the_output_that_waits_for_a_slow_subscriber_is_bounded(tmp_path: Path) -> None:
    _, session = new_session(tmp_path)
    slow = session.subscribe("slow")
    for _ in range(200):
        session.publish(ToolProgress(call_id="1", text="y" * 10_000))
    session.publish(ToolProgress(call_id="1", text="end"))
    session.close()
    [event] = [event async for event in slow]
    assert isinstance(event, ToolProgress)
    assert len(event.text) == MAX_PROGRESS_CHARS
    assert event.text.endswith("end")


async def test_a_failing_subscriber_is_told_once_and_harms_nobody(tmp_path: Path) -> None:
    _, session = new_session(tmp_path)
    good: list[Event] = []

    async def bad_handler(event: Event) -> None:
        raise ValueError("handler broke")

    def bad_callback(event: Event) -> None:
        raise KeyError("callback broke")

    async def good_handler(event: Event) -> None:
        await asyncio.sleep(0)
        good.append(event)

    session.on_event(bad_callback)
    session.subscribe("bad", bad_handler)
    session.subscribe("good", good_handler)
    for number in range(20):
        session.append(user(str(number)))
        await _tick()
    await session.aclose()
    notices = [event.message for event in good if isinstance(event, Notice)]
    assert len(notices) == 2
    assert any("handler broke" in message for message in notices)
    assert any("callback broke" in message for message in notices)
    assert texts(good) == [str(number) for number in range(20)]
    assert [event.seq for event in good] == list(range(2, 24))


async def test_what_a_callback_appends_comes_after_for_everybody(tmp_path: Path) -> None:
    _, session = new_session(tmp_path)
    seen: list[int | None] = []

    def echo(event: Event) -> None:
        if isinstance(event, AssistantMessage):
            session.append(Notice(message="echo"))

    session.on_event(echo)
    remove = session.on_event(lambda event: seen.append(event.seq))
    session.append(AssistantMessage(content="1"), AssistantMessage(content="2"))
    assert seen == [2, 3, 4, 5]
    remove()
    remove()
    session.append(user("x"))
    assert seen == [2, 3, 4, 5]
    session.close()


async def test_a_closed_subscription_ends_and_gets_nothing_more(tmp_path: Path) -> None:
    _, session = new_session(tmp_path)
    subscription = session.subscribe("one")
    reader = asyncio.create_task(_collect(subscription))
    await _tick()
    session.append(user("a"))
    await _tick()
    subscription.close()
    session.append(user("b"))
    assert texts(await reader) == ["a"]
    session.close()


async def _collect(events: object) -> list[Event]:
    return [event async for event in events]  # type: ignore[attr-defined]


async def test_syncs_at_the_same_time_share_one_fsync_and_a_clean_session_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, session = new_session(tmp_path)
    calls: list[int] = []
    monkeypatch.setattr(session_file.os, "fsync", calls.append)
    await asyncio.gather(*(session.sync() for _ in range(10)))
    await session.sync()
    assert len(calls) == 1
    session.append(user("x"))
    await session.sync()
    assert len(calls) == 2
    session.close()


async def test_the_journal_holds_the_last_of_a_stream_until_its_answer_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_journal, "FLUSH_S", 0.01)
    store, session = new_session(tmp_path)
    journal = path_of(store, session).with_suffix(".d") / "stream"
    run = session.scope("R")
    run.step = 1
    run.publish(StreamChunk(text="void"))
    await until(lambda: journal.exists() and "void" in journal.read_text())
    run.append(Retry(attempt=1, delay_s=0, error_kind="network", message="m", discard=True))
    assert not journal.exists()
    run.publish(StreamChunk(text="good"))
    await until(lambda: journal.exists() and "good" in journal.read_text())
    left = stream_journal.take_left_over(journal.parent)
    assert left == stream_journal.LeftOver("R", 1, "good", "")
    run.append(AssistantMessage(content="good"))
    assert not journal.parent.exists()
    session.close()


async def test_a_quick_answer_never_touches_the_journal(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    run = session.scope("R")
    run.publish(StreamChunk(text="quick"))
    run.append(AssistantMessage(content="quick"))
    assert not path_of(store, session).with_suffix(".d").exists()
    session.close()


def test_a_resumed_session_counts_on_after_events_that_no_fold_needs(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    session.append(user("go"), *(Notice(message=str(number)) for number in range(3)))
    session.close()
    again = Session.resume(store, session.session_id)
    assert [event.seq for event in again.events()] == [1, 2, 3, 4, 5, 6]
    skipped = store.read(session.session_id, 2, skip=frozenset({"notice"}))
    assert [event.type for event in skipped] == ["user_message", "session"]
    again.close()
