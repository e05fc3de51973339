"""Prompts: what an editor is told while they run, how they end, how they are cancelled."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.acp.support import FULL, Editor, choose, never
from tests.cli.support import call, script
from tests.support.waiting import until

SLOW = {"text": "word " * 400, "chunk_chars": 5, "chunk_delay_ms": 20}


async def ready(editor: Editor, project: Path, capabilities: dict[str, Any] | None = None) -> str:
    await editor.greet(capabilities)
    return await editor.new(project)


async def test_an_answer_comes_in_pieces_with_thoughts_usage_and_title(project: Path, tmp_path: Path) -> None:
    model = script(
        tmp_path / "m.json", {"reasoning": "Let me think about it.", "text": "Hello there, friend of mine."}
    )
    async with Editor.inside(model=model) as editor:
        session = await ready(editor, project)
        assert await editor.say(session, "Say hello.") == "end_turn"
        assert editor.text() == "Hello there, friend of mine."
        assert editor.text("agent_thought_chunk") == "Let me think about it."
        said = editor.told("agent_message_chunk")
        assert len(said) > 1
        assert len({update["messageId"] for update in said}) == 1
        usage = editor.told("usage_update")[-1]
        assert 0 < usage["used"] < usage["size"]
        assert editor.told("session_info_update")[-1]["title"] == "Say hello."
        assert not editor.told("user_message_chunk"), "a prompt that was just typed is not told again"


async def test_a_call_is_announced_once_and_ends_completed(project: Path, tmp_path: Path) -> None:
    model = script(
        tmp_path / "m.json", call("read_file", path="notes.txt", start_line=1), "Read.", after="last"
    )
    async with Editor.inside(model=model) as editor:
        session = await ready(editor, project)
        await editor.say(session, "Read it.")
        (told,) = editor.calls().values()
        assert (told["kind"], told["status"], told["title"]) == ("read", "completed", "Read notes.txt:1-")
        assert told["locations"] == [{"path": str(project / "notes.txt"), "line": 1}]
        assert told["rawInput"] == {"path": "notes.txt", "start_line": 1}
        assert "remember the milk" in told["rawOutput"]["output"]
        assert "remember the milk" in told["content"][0]["content"]["text"]
        assert not editor.asked


async def test_an_edit_shows_its_difference_before_it_is_allowed_and_after(
    project: Path, tmp_path: Path
) -> None:
    edit = call("edit_file", path="notes.txt", old_text="milk", new_text="bread")
    model = script(tmp_path / "m.json", edit, "Done.")
    async with Editor.inside(model=model) as editor:
        session = await ready(editor, project)
        await editor.say(session, "Edit it.")
        path = str(project / "notes.txt")
        (asked,) = editor.requests("session/request_permission")
        assert asked["toolCall"]["content"][0] == {
            "type": "diff",
            "path": path,
            "oldText": "remember the milk\n",
            "newText": "remember the bread\n",
        }
        assert [option["kind"] for option in asked["options"]][:1] == ["allow_once"]
        (told,) = editor.calls().values()
        assert told["content"] == [
            {
                "type": "diff",
                "path": path,
                "oldText": "remember the milk\n",
                "newText": "remember the bread\n",
            }
        ]
        assert told["locations"] == [{"path": path, "line": 1}]
        order = [message.get("method") or "answer" for message in editor.log]
        states = [u.get("status") for u in editor.told("tool_call", "tool_call_update")]
        assert states == ["pending", "in_progress", "completed"]
        asked_at = order.index("session/request_permission")
        running = next(
            i for i, m in enumerate(editor.log) if "in_progress" in str(m.get("params", {}).get("update"))
        )
        assert asked_at < running
        assert (project / "notes.txt").read_text() == "remember the bread\n"


async def test_a_rejected_call_does_not_run_and_the_turn_ends(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", call("write_file", path="new.txt", content="x"), "Never said.")
    async with Editor.inside(model=model) as editor:
        editor.answers["session/request_permission"] = choose("reject_once")
        session = await ready(editor, project)
        assert await editor.say(session, "Write it.") == "end_turn"
        (told,) = editor.calls().values()
        assert told["status"] == "failed"
        assert not (project / "new.txt").exists()


async def test_always_is_asked_once_and_holds_for_this_session_only(project: Path, tmp_path: Path) -> None:
    model = script(
        tmp_path / "m.json",
        call("bash", command="touch a"),
        call("bash", command="touch b"),
        "Done.",
        after="loop",
    )
    async with Editor.inside(model=model) as editor:
        editor.answers["session/request_permission"] = choose("allow_always")
        session = await ready(editor, project)
        assert await editor.say(session, "Go.") == "end_turn"
        first = editor.requests("session/request_permission")
        kinds = {option["kind"] for option in first[0]["options"]}
        assert kinds == {"allow_once", "allow_always", "reject_once", "reject_always"}
        assert len(first) == 1, "the second command is covered by the answer to the first"
        assert (project / "a").exists()
        assert (project / "b").exists()
        other = await editor.new(project)
        await editor.say(other, "Go.")
        assert len(editor.requests("session/request_permission")) == 2


async def test_never_is_not_asked_again(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", call("bash", command="touch a"), "Said.", after="loop")
    async with Editor.inside(model=model) as editor:
        editor.answers["session/request_permission"] = choose("reject_always")
        session = await ready(editor, project)
        await editor.say(session, "Go.")
        await editor.say(session, "Again.")
        await editor.say(session, "Again.")
        assert len(editor.requests("session/request_permission")) == 1
        assert not (project / "a").exists()


async def test_output_of_a_command_is_shown_while_it_runs(project: Path, tmp_path: Path) -> None:
    model = script(
        tmp_path / "m.json", call("bash", command="echo first; sleep 0.7; echo second; exit 3"), "Done."
    )
    async with Editor.inside(model=model) as editor:
        session = await ready(editor, project)
        turn = editor.prompt(session, "Run it.")
        shown = await editor.until(
            lambda: [u for u in editor.told("tool_call_update") if u.get("content") and "status" not in u]
        )
        assert "first" in shown[0]["content"][0]["content"]["text"]
        await asyncio.wait_for(turn, 60)
        (told,) = editor.calls().values()
        assert told["status"] == "failed"
        assert told["rawOutput"]["exitCode"] == 3
        assert told["title"].startswith("Run `echo first")


async def test_a_plan_is_told_whole_each_time(project: Path, tmp_path: Path) -> None:
    items = [
        {"title": "look", "status": "completed"},
        {"title": "write", "status": "in_progress"},
        {"title": "test"},
    ]
    model = script(tmp_path / "m.json", call("todo", items=items), "Done.")
    async with Editor.inside(model=model) as editor:
        session = await ready(editor, project)
        await editor.say(session, "Plan it.")
        (plan,) = editor.told("plan")
        assert [(e["content"], e["status"]) for e in plan["entries"]] == [
            ("look", "completed"), ("write", "in_progress"), ("test", "pending"),
        ]  # fmt: skip


# --- cancelling --------------------------------------------------------------------------------------------


async def test_a_turn_that_is_cancelled_while_it_speaks_ends_cancelled_and_says_no_more(
    project: Path, tmp_path: Path
) -> None:
    async with Editor.inside(model=script(tmp_path / "m.json", SLOW)) as editor:
        session = await ready(editor, project)
        turn = editor.prompt(session, "Speak.")
        await editor.until(lambda: editor.told("agent_message_chunk"))
        editor.tell("session/cancel", sessionId=session)
        answer = await asyncio.wait_for(turn, 60)
        assert answer["result"]["stopReason"] == "cancelled"
        end = editor.log.index(answer)
        await asyncio.sleep(0.2)
        assert not [m for m in editor.log[end + 1 :] if m.get("method") == "session/update"]


@pytest.mark.parametrize("wait_ms", [0, 1, 5, 20, 60])
async def test_no_cancel_is_lost_however_early_it_comes(project: Path, tmp_path: Path, wait_ms: int) -> None:
    async with Editor.inside(model=script(tmp_path / "m.json", SLOW)) as editor:
        session = await ready(editor, project)
        turn = editor.prompt(session, "Speak.")
        await asyncio.sleep(wait_ms / 1000)
        editor.tell("session/cancel", sessionId=session)
        assert (await asyncio.wait_for(turn, 60))["result"]["stopReason"] == "cancelled"


async def test_a_cancel_ends_a_command_with_its_children(project: Path, tmp_path: Path) -> None:
    command = "sleep 300 & echo $! > child.pid; sleep 300"
    model = script(tmp_path / "m.json", call("bash", command=command), "Never.")
    async with Editor.inside(model=model) as editor:
        session = await ready(editor, project)
        turn = editor.prompt(session, "Run it.")
        child = project / "child.pid"
        await until(lambda: child.exists() and child.read_text())
        editor.tell("session/cancel", sessionId=session)
        assert (await asyncio.wait_for(turn, 60))["result"]["stopReason"] == "cancelled"
        (told,) = editor.calls().values()
        assert told["status"] == "failed"


async def test_a_cancel_does_not_wait_for_an_editor_that_never_answers(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", call("write_file", path="new.txt", content="x"), "Never.")
    async with Editor.inside(model=model) as editor:
        editor.answers["session/request_permission"] = never
        session = await ready(editor, project)
        turn = editor.prompt(session, "Write it.")
        (asked,) = await editor.until(lambda: list(editor.asked))
        editor.tell("session/cancel", sessionId=session)
        assert (await asyncio.wait_for(turn, 60))["result"]["stopReason"] == "cancelled"
        taken_back = [m["params"] for m in editor.log if m.get("method") == "$/cancel_request"]
        assert taken_back == [{"requestId": asked["id"]}]
        late = {"outcome": {"outcome": "selected", "optionId": "allow:once"}}
        editor.send({"jsonrpc": "2.0", "id": asked["id"], "result": late})
        await asyncio.sleep(0.1)
        assert not (project / "new.txt").exists(), "a late answer runs nothing"


async def test_cancelling_a_permission_cancels_the_turn(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", call("write_file", path="new.txt", content="x"), "Never.")
    async with Editor.inside(model=model) as editor:
        editor.answers["session/request_permission"] = lambda _: {"outcome": {"outcome": "cancelled"}}
        session = await ready(editor, project)
        assert await editor.say(session, "Write it.") == "cancelled"


async def test_taking_back_the_request_cancels_the_turn(project: Path, tmp_path: Path) -> None:
    async with Editor.inside(model=script(tmp_path / "m.json", SLOW)) as editor:
        session = await ready(editor, project)
        turn = editor.prompt(session, "Speak.")
        await editor.until(lambda: editor.told("agent_message_chunk"))
        editor.tell("$/cancel_request", requestId=editor._next_id)
        assert (await asyncio.wait_for(turn, 60))["result"]["stopReason"] == "cancelled"


async def test_a_session_goes_on_after_a_cancel(project: Path, tmp_path: Path) -> None:
    async with Editor.inside(model=script(tmp_path / "m.json", SLOW, "Here again.")) as editor:
        session = await ready(editor, project)
        turn = editor.prompt(session, "Speak.")
        await editor.until(lambda: editor.told("agent_message_chunk"))
        editor.tell("session/cancel", sessionId=session)
        await turn
        assert await editor.say(session, "And now?") == "end_turn"
        assert editor.text().endswith("Here again.")


async def test_prompts_of_one_session_run_one_after_the_other(project: Path, tmp_path: Path) -> None:
    async with Editor.inside(model=script(tmp_path / "m.json", "One.", "Two.", "Three.")) as editor:
        session = await ready(editor, project)
        turns = [editor.prompt(session, f"Say {n}.") for n in range(3)]
        ended = await asyncio.wait_for(asyncio.gather(*turns), 60)
        assert [answer["result"]["stopReason"] for answer in ended] == ["end_turn"] * 3
        assert editor.text() == "One.Two.Three."


# --- how a turn ends -----------------------------------------------------------------------------------------


async def test_limits_and_refusals_have_stop_reasons_of_their_own(project: Path, tmp_path: Path) -> None:
    looks = script(tmp_path / "a.json", call("list_directory", path="."), after="last")
    async with Editor.inside(model=looks, sets=["limits.steps=2"]) as editor:
        session = await ready(editor, project)
        assert await editor.say(session, "Look for ever.") == "max_turn_requests"
        assert "limit of steps" in editor.text()


async def test_a_model_that_fails_is_an_error_with_a_sentence(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", {"status": 401, "error": "bad key"}, after="last")
    async with Editor.inside(model=model) as editor:
        session = await ready(editor, project)
        answer = await asyncio.wait_for(editor.prompt(session, "Go."), 60)
        assert answer["error"]["code"] == -32000
        assert answer["error"]["data"]["kind"] == "auth"


# --- questions of the model ----------------------------------------------------------------------------------


async def test_a_question_is_a_form_where_the_editor_has_forms(project: Path, tmp_path: Path) -> None:
    ask = call("ask_user", question="Tabs or spaces?", options=["tabs", "spaces"])
    async with Editor.inside(model=script(tmp_path / "m.json", ask, "Good.")) as editor:
        editor.answers["elicitation/create"] = lambda _: {"action": "accept", "content": {"choice": "tabs"}}
        session = await ready(editor, project, FULL)
        assert await editor.say(session, "Ask.") == "end_turn"
        (form,) = editor.requests("elicitation/create")
        assert form["message"] == "Tabs or spaces?"
        assert form["requestedSchema"]["properties"]["choice"]["enum"] == ["tabs", "spaces"]
        (told,) = editor.calls().values()
        assert told["rawOutput"]["output"] == "The user answered: tabs"


async def test_a_question_without_forms_is_a_choice(project: Path, tmp_path: Path) -> None:
    ask = call("ask_user", question="Tabs or spaces?", options=["tabs", "spaces"])
    async with Editor.inside(model=script(tmp_path / "m.json", ask, "Good.")) as editor:
        session = await ready(editor, project)
        await editor.say(session, "Ask.")
        assert not editor.requests("elicitation/create")
        (told,) = editor.calls().values()
        assert told["rawOutput"]["output"] == "The user answered: tabs"


async def test_an_open_question_without_forms_is_asked_in_the_chat(project: Path, tmp_path: Path) -> None:
    ask = call("ask_user", question="Which colour?")
    async with Editor.inside(model=script(tmp_path / "m.json", ask, "I wait.")) as editor:
        session = await ready(editor, project)
        assert await editor.say(session, "Ask.") == "end_turn"
        assert "Which colour?" in editor.text()
        assert not editor.asked


# --- slash commands ------------------------------------------------------------------------------------------


async def test_commands_are_offered_and_answered_without_a_model(project: Path, tmp_path: Path) -> None:
    async with Editor.inside(model=script(tmp_path / "m.json", "Said by the model.")) as editor:
        session = await ready(editor, project)
        (offered,) = await editor.until(lambda: editor.told("available_commands_update"))
        names = {command["name"] for command in offered["availableCommands"]}
        assert {"status", "mode", "compact", "undo", "context"} <= names
        assert not names & {"quit", "theme", "clear", "sessions", "fork"}
        assert await editor.say(session, "/status") == "end_turn"
        assert session in editor.text()
        assert not editor.told("usage_update"), "no request was made"
        await editor.say(session, "/statsu")
        assert "There is no command /statsu. Did you mean" in editor.text()
        await editor.say(session, "/clear")
        assert "own list of sessions" in editor.text()
