"""What every interactive door does with a session: prompts, questions, modes, models, other sessions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from aar.config.paths import paths
from aar.core.session import Session
from aar.protocol.errors import ConfigurationError, UsageError
from aar.protocol.events import ApprovalRequest, ContextEvent, Event, Notice, Setting, ToolResult, UserMessage
from aar.runtime import Runtime, open_runtime
from aar.runtime.conversation import Conversation
from aar.safety.spawn import ProcessSpawner

pytestmark = pytest.mark.usefixtures("clean_environment")
T = TypeVar("T", bound=Event)


@asynccontextmanager
async def opened(tmp_path: Path, *steps: dict[str, Any], mode: str = "ask") -> AsyncIterator[Conversation]:
    """Open a conversation with a scripted model in a project of its own."""
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    (project / "a.txt").write_text("one\n")
    scenario = tmp_path / "model.json"
    scenario.write_text(json.dumps({"steps": list(steps)}))
    runtime = open_runtime(cwd=project, model=f"scripted/{scenario}", mode=mode, interactive=True)
    talk = Conversation(runtime, runtime.open_session())
    try:
        yield talk
    finally:
        await talk.aclose()


async def until(talk: Conversation, test: Callable[[Event], bool]) -> Event:
    """Wait for an event."""
    found: asyncio.Future[Event] = asyncio.get_running_loop().create_future()

    def look(event: Event) -> None:
        if not found.done() and test(event):
            found.set_result(event)

    talk.watch(look)
    async with asyncio.timeout(60):
        return await found


def said(talk: Conversation) -> list[tuple[str, str]]:
    """Return source and text of everything the user said."""
    return [
        (event.source, "".join(getattr(block, "text", "") for block in event.content))
        for event in talk.session.events()
        if isinstance(event, UserMessage)
    ]


WRITE = {"tool_calls": [{"name": "write_file", "arguments": {"path": "b.txt", "content": "b\n"}}]}


async def test_a_prompt_starts_a_run_and_its_result_is_told(tmp_path: Path) -> None:
    async with opened(tmp_path, {"text": "Hello."}) as talk:
        told = []
        talk.watch(lambda event: None, on_result=told.append)
        assert talk.submit("hi") == "run"
        await talk.wait()
        assert [result.text for result in told] == ["Hello."]
        assert not talk.running


async def test_words_during_a_run_steer_it_and_queued_ones_follow(tmp_path: Path) -> None:
    async with opened(tmp_path, WRITE, {"text": "done"}, {"text": "next done"}) as talk:
        asked = asyncio.ensure_future(until(talk, lambda event: isinstance(event, ApprovalRequest)))
        talk.submit("write b")
        request = await asked
        assert isinstance(request, ApprovalRequest)
        assert talk.submit("and be quick") == "steer"
        talk.enqueue("then this")
        talk.answer(request.request_id, "allow")
        await talk.wait()
        assert said(talk) == [("prompt", "write b"), ("steer", "and be quick"), ("queue", "then this")]
        assert (talk.runtime.workspace / "b.txt").read_text() == "b\n"


async def test_an_interrupt_keeps_the_queue_and_go_on_takes_it_up(tmp_path: Path) -> None:
    async with opened(tmp_path, WRITE, {"text": "second"}) as talk:
        asked = asyncio.ensure_future(until(talk, lambda event: isinstance(event, ApprovalRequest)))
        talk.submit("write b")
        await asked
        talk.enqueue("later")
        talk.interrupt()
        await talk.wait()
        assert talk.last_result is not None
        assert talk.last_result.stop_reason == "cancelled"
        assert len(talk.agent.queue.prompts) == 1
        assert talk.go_on()
        await talk.wait()
        assert talk.last_result.text == "second"


async def test_an_interrupt_before_the_first_step_ends_the_run_and_keeps_the_prompt(tmp_path: Path) -> None:
    async with opened(tmp_path, {"text": "never said"}) as talk:
        talk.submit("hi")
        talk.interrupt()
        await talk.wait()
        assert talk.last_result is not None
        assert talk.last_result.stop_reason == "cancelled"
        assert said(talk) == [("prompt", "hi")]


async def test_a_question_of_the_model_is_answered_by_the_door(tmp_path: Path) -> None:
    ask = {"tool_calls": [{"name": "ask_user", "arguments": {"question": "Red?", "options": ["yes", "no"]}}]}
    async with opened(tmp_path, ask, {"text": "ok"}) as talk:
        asked = asyncio.ensure_future(until(talk, lambda event: isinstance(event, ApprovalRequest)))
        talk.submit("go")
        request = await asked
        assert isinstance(request, ApprovalRequest)
        assert request.tool_name == "ask_user"
        assert request.arguments["question"] == "Red?"
        talk.answer(request.request_id, "allow", feedback="blue, please")
        await talk.wait()
        results = [event for event in talk.session.events() if isinstance(event, ToolResult)]
        assert "blue, please" in results[0].output


async def test_a_mode_holds_from_the_next_call_and_the_system_prompt_stays(tmp_path: Path) -> None:
    async with opened(tmp_path, WRITE, {"text": "done"}) as talk:
        before = talk.runtime.prompt(talk.runtime.tools()).text
        talk.set_mode("edit")
        talk.submit("write b")
        await talk.wait()
        assert (talk.runtime.workspace / "b.txt").exists(), "mode edit does not ask for edits"
        assert talk.runtime.prompt(talk.runtime.tools()).text == before
        events = list(talk.session.events())
        changed = next(event for event in events if isinstance(event, Setting))
        assert (changed.key, changed.from_, changed.to) == ("mode", "ask", "edit")
        assert any(isinstance(event, ContextEvent) and event.label == "mode" for event in events)


async def test_modes_that_cannot_be_had_are_refused(tmp_path: Path) -> None:
    async with opened(tmp_path, {"text": "x"}) as talk:
        with pytest.raises(UsageError, match="modes are plan"):
            talk.set_mode("wild")
        with pytest.raises(UsageError, match="--mode unsafe"):
            talk.set_mode("unsafe")
        assert talk.mode == "ask"


async def test_another_model_goes_on_with_the_same_session(tmp_path: Path) -> None:
    async with opened(tmp_path, {"text": "first"}) as talk:
        talk.submit("one")
        await talk.wait()
        other = tmp_path / "other.json"
        other.write_text(json.dumps({"steps": [{"text": "from the other"}]}))
        talk.set_model(f"scripted/{other}")
        talk.submit("two")
        await talk.wait()
        assert talk.last_result is not None
        assert talk.last_result.text == "from the other"
        assert len(talk.session.messages()) == 4
        with pytest.raises(ConfigurationError):
            talk.set_model("nobody")
        assert talk.runtime.active.name == f"scripted/{other}"


async def test_other_sessions_take_the_place_and_the_watcher_follows(tmp_path: Path) -> None:
    async with opened(tmp_path, {"text": "one"}, {"text": "two"}, {"text": "three"}) as talk:
        seen: list[Event] = []
        opened_sessions = []
        talk.watch(seen.append, on_session=opened_sessions.append)
        first = talk.session.session_id
        talk.submit("in the first")
        await talk.wait()
        await talk.fork()
        copy = talk.session.session_id
        assert copy != first
        talk.submit("in the copy")
        await talk.wait()
        assert [text for _, text in said(talk)] == ["in the first", "in the copy"]
        await talk.resume(first)
        assert [text for _, text in said(talk)] == ["in the first"]
        await talk.new_session("fresh")
        assert said(talk) == []
        assert [session.session_id for session in opened_sessions][:2] == [copy, first]
        assert any(event.session_id == copy for event in seen)


@asynccontextmanager
async def gone_on(tmp_path: Path, **options: Any) -> AsyncIterator[tuple[Runtime, Session]]:
    """Open the newest session of the project again, as `--continue` of every door does."""
    runtime = open_runtime(cwd=tmp_path / "project", **options)
    session = await asyncio.to_thread(runtime.open_session, continue_latest=True)
    try:
        yield runtime, session
    finally:
        await session.aclose()
        await runtime.aclose()


def told_of(session: Session, kind: type[T]) -> list[T]:
    """Return the stored events of a kind since the session was opened again."""
    return [event for event in session.events(session.opened_seq) if isinstance(event, kind)]


def test_a_runtime_that_cannot_be_opened_leaves_no_process_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[ProcessSpawner] = []
    made: list[ProcessSpawner] = []
    close = ProcessSpawner.close
    monkeypatch.setattr(ProcessSpawner, "close", lambda self: (closed.append(self), close(self))[1])
    monkeypatch.setattr(ProcessSpawner, "keep_from", lambda self, _: made.append(self))
    (tmp_path / "model.json").write_text('{"steps": [{"text": "Hi."}]}')
    with pytest.raises(ConfigurationError, match="no agent 'nobody'"):
        open_runtime(cwd=tmp_path, model=f"scripted/{tmp_path}/model.json", agent="nobody")
    assert len(made) == 1
    assert made[0] in closed


async def test_a_session_goes_on_with_its_own_model_and_not_with_the_usual_one(tmp_path: Path) -> None:
    own, usual = f"scripted/{tmp_path / 'model.json'}", f"scripted/{tmp_path / 'usual.json'}"
    (tmp_path / "usual.json").write_text('{"steps": [{"text": "Hello."}]}')
    async with opened(tmp_path, {"text": "Hello."}) as talk:
        talk.submit("hi")
        await talk.wait()
    config = paths().user_config
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f"[model]\nname = {json.dumps(usual)}\n")
    async with gone_on(tmp_path) as (runtime, session):
        assert runtime.active.name == own
        assert told_of(session, Setting) == []
    async with gone_on(tmp_path, model=usual) as (runtime, session):
        assert runtime.active.name == usual
        assert [(event.from_, event.to) for event in told_of(session, Setting)] == [(own, usual)]
    async with gone_on(tmp_path, sets=[f"model.name={own}"]) as (runtime, _):
        assert runtime.active.name == own


async def test_a_session_whose_model_is_gone_goes_on_with_the_usual_one_and_says_so(tmp_path: Path) -> None:
    usual = f"scripted/{tmp_path / 'usual.json'}"
    (tmp_path / "usual.json").write_text('{"steps": [{"text": "Hello."}]}')
    async with opened(tmp_path, {"text": "Hello."}) as talk:
        talk.submit("hi")
        await talk.wait()
    (tmp_path / "model.json").unlink()
    config = paths().user_config
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f"[model]\nname = {json.dumps(usual)}\n")
    async with gone_on(tmp_path) as (runtime, session):
        assert runtime.active.name == usual
        (notice,) = told_of(session, Notice)
        assert "model.json" in notice.message
        assert f"{usual} answers" in notice.message


async def test_why_a_model_was_chosen_is_told_no_more_when_another_one_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, {"text": "Hello."}) as talk:
        talk.submit("hi")
        await talk.wait()
    monkeypatch.setenv("GEMINI_API_KEY", "k" * 39)
    chosen = open_runtime(cwd=tmp_path / "project")
    assert any(chosen.active.name in told for told in chosen.notices)
    chosen.set_model(f"scripted/{tmp_path / 'model.json'}")
    assert chosen.why_model is None
    assert not any("Using" in told for told in chosen.notices)
    await chosen.aclose()
    async with gone_on(tmp_path) as (runtime, _):
        assert runtime.active.name == f"scripted/{tmp_path / 'model.json'}"
        assert not any("Using" in told for told in runtime.notices)
