"""Sessions over HTTP: prompts, events, questions, what may be tightened."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from aar.core.session import Session
from aar.transports.serve import house as house_module
from aar.transports.serve import openapi
from aar.transports.serve.app import ENDPOINTS
from tests.cli.support import call, script
from tests.serve.support import Served, served

EDIT = call("edit_file", "I change it.", path="notes.txt", old_text="milk", new_text="bread")


async def until(frames: Any, kind: str, **fields: Any) -> list[tuple[str | None, dict[str, Any]]]:
    """Take events up to the first of a kind."""
    seen: list[tuple[str | None, dict[str, Any]]] = []
    async with asyncio.timeout(60):
        async for frame in frames:
            seen.append(frame)
            if frame[1]["type"] == kind and all(
                frame[1].get(name) == value for name, value in fields.items()
            ):
                return seen
    raise AssertionError(f"no {kind} in {[event['type'] for _, event in seen]}")


async def prompt(server: Served, session_id: str, text: str, **more: Any) -> dict[str, Any]:
    return await server.post(f"/api/sessions/{session_id}/prompts", {"content": text, **more}, 202)


async def test_a_prompt_is_watched_asked_about_answered_and_done(project: Path, tmp_path: Path) -> None:
    async with served(project, script(tmp_path / "m.json", EDIT, "Done.")) as server:
        session_id = await server.session(title="Bread")
        async with server.watching(session_id) as frames:
            assert (await prompt(server, session_id, "Bread instead."))["taken"] == "run"
            seen = await until(frames, "approval_request")
            asked = await server.asked(session_id)
            assert asked["tool_name"] == "edit_file"
            assert "+remember the bread" in asked["diff"]
            assert asked["scopes"] == ["once", "session"]
            await server.post(
                f"/api/sessions/{session_id}/approvals/{asked['request_id']}", {"decision": "allow"}, 204
            )
            seen += await until(frames, "state", state="completed")
        assert (project / "notes.txt").read_text() == "remember the bread\n"
        ids = [int(name) for name, event in seen if name is not None]
        assert ids == list(range(1, ids[-1] + 1)), "each stored event once, in order"
        assert all((name is None) == (event["seq"] is None) for name, event in seen)
        assert any(event["type"] == "stream_chunk" for _, event in seen)
        state = await server.idle(session_id)
        assert (state["title"], state["last_stop_reason"], state["approvals"]) == ("Bread", "end_turn", [])
        late = await server.http.post(
            f"/api/sessions/{session_id}/approvals/{asked['request_id']}", json={"decision": "allow"}
        )
        assert late.status_code == 404


async def test_a_client_that_comes_back_misses_nothing_and_gets_nothing_twice(
    project: Path, tmp_path: Path
) -> None:
    async with served(project, script(tmp_path / "m.json", "One.", "Two.")) as server:
        session_id = await server.session()
        await prompt(server, session_id, "first")
        last = (await server.idle(session_id))["last_seq"]
        async with server.watching(session_id, last=3) as frames:
            again = await until(frames, "state", state="completed")
            assert [event["seq"] for _, event in again] == list(range(4, last + 1))
        async with server.watching(session_id, last=last) as frames:
            await prompt(server, session_id, "second")
            new = await until(frames, "assistant_message")
            assert next(event["seq"] for _, event in new if event["seq"]) == last + 1
            assert new[-1][1]["content"] == "Two."
        async with server.watching(session_id, follow="false", pieces="false") as frames:
            whole = [event["seq"] async for _, event in frames]
        assert whole == list(range(1, (await server.idle(session_id))["last_seq"] + 1))


async def test_who_begins_to_watch_in_the_middle_of_an_answer_gets_its_beginning(
    project: Path, tmp_path: Path
) -> None:
    slow = {"text": "One two three four five six seven eight nine ten. " * 20, "chunk_delay_ms": 2}
    async with served(project, script(tmp_path / "m.json", slow)) as server:
        session_id = await server.session()
        async with server.watching(session_id) as frames:
            await prompt(server, session_id, "Count.")
            await until(frames, "stream_chunk")
        async with server.watching(session_id) as frames:
            seen = await until(frames, "assistant_message")
        text = "".join(event["text"] for _, event in seen if event["type"] == "stream_chunk")
        assert text == slow["text"] == seen[-1][1]["content"]


async def test_a_run_is_steered_followed_and_cancelled(project: Path, tmp_path: Path) -> None:
    steps = (call("bash", command="touch x; sleep 30"), "Never said.", "After that.")
    async with served(project, script(tmp_path / "m.json", *steps)) as server:
        session_id = await server.session()
        await prompt(server, session_id, "Wait.")
        asked = await server.asked(session_id)
        assert (await prompt(server, session_id, "Hurry."))["taken"] == "steer"
        assert (await prompt(server, session_id, "Then this.", when="later"))["taken"] == "queue"
        await server.post(f"/api/sessions/{session_id}/cancel", status=202)
        state = await server.idle(session_id)
        assert state["last_stop_reason"] == "cancelled"
        assert asked["arguments"]["command"] == "touch x; sleep 30"
        await server.http.delete(f"/api/sessions/{session_id}")
        assert server.house.room(session_id) is None
        assert (await server.get(f"/api/sessions/{session_id}"))["open"] is False


async def test_a_question_of_the_model_is_answered_in_words(project: Path, tmp_path: Path) -> None:
    question = call("ask_user", question="Which bread?", options=["rye", "wheat"])
    async with served(project, script(tmp_path / "m.json", question, "I see.")) as server:
        session_id = await server.session()
        await prompt(server, session_id, "Buy bread.")
        asked = await server.asked(session_id)
        assert asked["question"] is True
        body = {"decision": "allow", "feedback": "spelt"}
        await server.post(f"/api/sessions/{session_id}/approvals/{asked['request_id']}", body, 204)
        await server.idle(session_id)
        async with server.watching(session_id, follow="false") as frames:
            results = [event["output"] async for _, event in frames if event["type"] == "tool_result"]
        assert "spelt" in results[0]


async def test_what_would_loosen_is_refused(project: Path, tmp_path: Path) -> None:
    wishes: list[tuple[dict[str, Any], str]] = [
        ({"mode": "auto"}, "mode: this server allows edit at most"),
        ({"steps": 9}, "steps: this server allows 8 at most"),
        ({"seconds": 1e9}, "seconds: this server allows 600 at most"),
        ({"tools": ["read_file", "bash"]}, "tools: this server does not offer bash"),
        ({"model": "other/model"}, "model"),
        ({"mode": "wild"}, "mode"),
        ({"agent": "nobody"}, "There is no agent"),
    ]
    sets = ("limits.steps=8", "limits.seconds=600", 'tools.enabled=["read_file", "edit_file"]')
    async with served(project, script(tmp_path / "m.json", "Hi."), mode="edit", sets=sets) as server:
        for wish, sentence in wishes:
            told = await server.post("/api/sessions", wish, 400)
            assert sentence in told["error"]["message"]


async def test_what_tightens_holds(project: Path, tmp_path: Path) -> None:
    sets = ("limits.steps=8",)
    steps = [call("read_file", path="notes.txt")] * 5
    async with served(project, script(tmp_path / "m.json", *steps), mode="edit", sets=sets) as server:
        session_id = await server.session(mode="plan", steps=2, tools=["read_file"])
        room = server.house.room(session_id)
        assert room is not None
        assert [spec.name for spec in room.conversation.runtime.tools()] == ["read_file"]
        await prompt(server, session_id, "Read.")
        state = await server.idle(session_id)
        assert (state["mode"], state["last_stop_reason"]) == ("plan", "max_steps")
        path = f"/api/sessions/{session_id}"
        assert (await server.http.patch(path, json={"mode": "edit"})).json()["mode"] == "edit"
        assert (await server.http.patch(path, json={"mode": "auto"})).status_code == 400
        assert (await server.http.patch(path, json={"title": "Named"})).json()["title"] == "Named"


async def test_sessions_of_other_projects_are_not_here(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    model = script(tmp_path / "m.json", "Hi.")
    async with served(other, model) as server:
        foreign = await server.session()
        await prompt(server, foreign, "secret words")
        await server.idle(foreign)
    async with served(project, model) as server:
        assert (await server.get("/api/sessions"))["sessions"] == []
        for path in (f"/api/sessions/{foreign}", f"/api/sessions/{foreign}/events", "/api/sessions/../x"):
            assert (await server.http.get(path)).status_code == 404, path
        answer = await server.http.post(f"/api/sessions/{foreign}/prompts", json={"content": "hi"})
        assert answer.status_code == 404


async def test_a_session_that_another_process_writes_is_followed_but_not_taken(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(house_module, "_LOOK_AGAIN_S", 0.02)
    async with served(project, script(tmp_path / "m.json", "Hi.")) as server:
        elsewhere = Session.create(server.house.base.store(), cwd=project, model="m")
        async with server.watching(elsewhere.session_id) as frames:
            await until(frames, "session", action="start")
            elsewhere.rename("Seen from far")
            seen = await until(frames, "session", action="rename")
            assert seen[-1][1]["title"] == "Seen from far"
        taken = await server.http.post(f"/api/sessions/{elsewhere.session_id}/prompts", json={"content": "x"})
        assert taken.status_code == 409
        elsewhere.close()
        await prompt(server, elsewhere.session_id, "Now I may.")
        assert (await server.idle(elsewhere.session_id))["last_stop_reason"] == "end_turn"


async def test_when_too_many_sessions_are_open_the_one_left_alone_longest_is_closed(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(house_module, "MAX_OPEN", 1)
    async with served(project, script(tmp_path / "m.json", call("bash", command="touch x"), "Hi.")) as server:
        first, second = await server.session(), await server.session()
        assert server.house.room(first) is None
        await prompt(server, second, "Ask me.")
        await server.asked(second)
        told = await server.post("/api/sessions", {}, 429)
        assert "at work" in told["error"]["message"]


async def test_a_body_that_is_wrong_is_told_what_is_wrong(project: Path, tmp_path: Path) -> None:
    bodies = (b"{", b"[]", b'{"content": ""}', b'{"contents": "x"}', b"\xff\xfe", b"[" * 100_000,
              b'{"content": [{"type": "video"}]}')  # fmt: skip
    async with served(project, script(tmp_path / "m.json", "Hi.")) as server:
        session_id = await server.session()
        path = f"/api/sessions/{session_id}/prompts"
        for body in bodies:
            answer = await server.http.post(path, content=body, headers={"content-type": "application/json"})
            assert answer.status_code == 400, body[:20]
            assert answer.json()["error"]["message"].endswith(".")
        plain = await server.http.post(path, content=b'{"content": "x"}')
        assert plain.status_code == 400, "a form of another site cannot send JSON"
        assert (await server.get(f"/api/sessions/{session_id}"))["last_seq"] == 1


def test_the_schema_names_every_endpoint_and_body() -> None:
    from jsonschema import Draft202012Validator

    told = openapi.schema(ENDPOINTS)
    assert told["openapi"].startswith("3.1")
    for endpoint in ENDPOINTS:
        operation = told["paths"][endpoint.path.replace(":path}", "}")][endpoint.method.lower()]
        assert operation["summary"].endswith(".")
        assert str(endpoint.status) in operation["responses"]
        if endpoint.body is not None:
            schema = told["components"]["schemas"][endpoint.body.__name__]
            Draft202012Validator.check_schema(schema)
    references = set(json.dumps(told).split("#/components/schemas/")[1:])
    names = {reference.partition('"')[0] for reference in references}
    assert names <= set(told["components"]["schemas"])
    page = openapi.page(ENDPOINTS)
    assert all(endpoint.path in page for endpoint in ENDPOINTS)
    assert "<script" not in page
