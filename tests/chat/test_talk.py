"""The conversation in line mode: prompts, answers, questions, commands, interruptions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aar.protocol.events import AssistantMessage, PlanItem, ToolCall, ToolResult, UserMessage
from aar.runtime.plan import set_down
from tests.chat.support import CTRL_C, CTRL_D, DECIDE, ENTER, ESCAPE, Chat, chatting
from tests.support.waiting import until

WRITE = {"tool_calls": [{"name": "write_file", "arguments": {"path": "b.txt", "content": "b\n"}}]}
BOTH = {
    "tool_calls": [
        {"name": "write_file", "arguments": {"path": "b.txt", "content": "b\n"}},
        {"name": "write_file", "arguments": {"path": "c.txt", "content": "c\n"}},
    ]
}
DONE = {"text": "All done."}
HOSTILE = "safe \x1b]0;owned\x07\x1b[2J\x1b[31mred\u202e \x9b31m end"


def said(chat: Chat) -> list[str]:
    """Return what the user said."""
    return [
        "".join(getattr(block, "text", "") for block in event.content)
        for event in chat.conversation.session.events()
        if isinstance(event, UserMessage)
    ]


def results(chat: Chat) -> list[ToolResult]:
    """Return the results of calls."""
    return [event for event in chat.conversation.session.events() if isinstance(event, ToolResult)]


def exists(chat: Chat, name: str) -> bool:
    """Tell whether there is a file in the project."""
    return (chat.conversation.runtime.workspace / name).exists()


@asynccontextmanager
async def asked(tmp_path: Path, *steps: dict[str, Any]) -> AsyncIterator[Chat]:
    """Chat with a model that does ``steps`` and is done then; the first of them is asked about."""
    async with chatting(tmp_path, *steps, DONE) as chat:
        await chat.say("write", "? Write b.txt")
        yield chat


async def test_an_answer_streams_and_the_end_tells_what_it_used(tmp_path: Path) -> None:
    async with chatting(tmp_path, {"text": "# Title\nHello there."}) as chat:
        told = await chat.say("hi", "tokens")
        assert told.index("# Title\nHello there.\n") < told.index("(1 step")
        assert "\x1b" not in chat.screen
    assert chat.code == 0


async def test_a_first_prompt_is_sent_at_once(tmp_path: Path) -> None:
    async with chatting(tmp_path, {"text": "hello"}, first="go") as chat:
        await chat.shows("hello\n")
        assert said(chat) == ["go"]


async def test_yes_runs_the_call_after_all_of_it_was_shown(tmp_path: Path) -> None:
    async with chatting(tmp_path, WRITE, DONE) as chat:
        await chat.say("write b", "? Write b.txt", "  +b", "why:", "wall")
        assert not exists(chat, "b.txt")
        await chat.decide("y")
        await chat.shows("* Write b.txt (+1 -0", "    +b", "All done.")
        assert exists(chat, "b.txt")


async def test_no_ends_the_run_and_a_reason_lets_it_go_on(tmp_path: Path) -> None:
    async with chatting(tmp_path, WRITE, WRITE, DONE) as chat:
        await chat.say("write b", "? Write")
        await chat.decide("n")
        await chat.shows("not allowed", "a call was not allowed")
        start = len(chat.screen)
        await chat.say("again", "? Write")
        await chat.decide("f")
        await chat.at("instead?", "use another name" + ENTER)
        await until(lambda: "All done." in chat.screen[start:], told=lambda: chat.screen)
        assert "They said: use another name" in results(chat)[-1].output
        assert not exists(chat, "b.txt")


async def test_a_rule_for_the_session_settles_the_next_question_too(tmp_path: Path) -> None:
    async with asked(tmp_path, BOTH) as chat:
        await chat.decide("s")
        await chat.at("for the session:", "\x15write(*.txt)" + ENTER)
        await chat.shows("All done.")
        assert exists(chat, "b.txt")
        assert exists(chat, "c.txt")
        assert "? Write c.txt" not in chat.screen
        table = await chat.say("/permissions", "write(*.txt)")
        assert "session" in table


async def test_a_rule_that_is_none_is_told_and_asked_again(tmp_path: Path) -> None:
    async with asked(tmp_path, WRITE) as chat:
        await chat.decide("s")
        await chat.at("for the session:", "\x15nonsense((" + ENTER)
        await until(lambda: chat.screen.count("? Write b.txt") == 2, told=lambda: chat.screen)
        told = chat.screen.split("? Write b.txt")[1]
        assert "! " in told
        assert "nonsense((" in told
        assert not exists(chat, "b.txt")
        await chat.decide("y")
        await chat.shows("All done.")
        assert exists(chat, "b.txt")


async def test_two_calls_are_asked_one_after_the_other_and_each_gets_its_answer(tmp_path: Path) -> None:
    async with asked(tmp_path, BOTH) as chat:
        await chat.decide("f")
        await chat.at("instead?", "not this" + ENTER)
        await chat.shows("? Write c.txt")
        await chat.decide("y")
        await chat.shows("All done.")
        assert not exists(chat, "b.txt")
        assert exists(chat, "c.txt")


async def test_arguments_are_edited_before_they_are_allowed(tmp_path: Path) -> None:
    async with asked(tmp_path, WRITE) as chat:
        await chat.decide("e")
        await chat.at("JSON:", "\x15not json" + ENTER)
        await chat.shows("This is not JSON")
        await chat.decide("e")
        await chat.at("JSON:", "\x15" + json.dumps({"path": "d.txt", "content": "d"}) + ENTER)
        await chat.shows("All done.")
        assert exists(chat, "d.txt")
        assert not exists(chat, "b.txt")


async def test_what_was_typed_before_a_question_answers_nothing_and_is_kept(tmp_path: Path) -> None:
    step = {**WRITE, "first_delay_ms": 600}
    async with chatting(tmp_path, step, DONE, {"text": "third"}) as chat:
        chat.type("write b" + ENTER)
        await until(lambda: chat.conversation.running, told=lambda: chat.screen)
        chat.type("yes please")
        await chat.shows("? Write b.txt")
        await chat.at(DECIDE, "")
        assert not exists(chat, "b.txt"), "the y of yes was typed before"
        chat.type("y")
        await chat.shows("All done.")
        await chat.at("> yes please", ENTER)
        await until(lambda: said(chat)[-1:] == ["yes please"], told=lambda: chat.screen)


async def test_a_question_of_the_model_takes_a_number_or_words(tmp_path: Path) -> None:
    ask: dict[str, Any] = {
        "tool_calls": [{"name": "ask_user", "arguments": {"question": "Which?", "options": ["red", "blue"]}}]
    }
    async with chatting(tmp_path, ask, ask, DONE) as chat:
        await chat.say("paint", "? Which?", "2. blue")
        await chat.at("own words]", "2" + ENTER)
        await until(lambda: chat.screen.count("? Which?") == 2, told=lambda: chat.screen)
        await chat.at("own words]", "green" + ENTER)
        await chat.shows("All done.")
        assert [("blue" in one.output, "green" in one.output) for one in results(chat)] == [
            (True, False),
            (False, True),
        ]


async def test_an_interrupt_keeps_what_was_shown(tmp_path: Path) -> None:
    slow = {"text": "word ", "text_repeat": 2000, "chunk_delay_ms": 20}
    async with chatting(tmp_path, slow, {"text": "second"}) as chat:
        await chat.say("tell me", "word word")
        chat.talk.interrupt()
        await chat.shows("The answer was cut here", "! Cancelled.")
        answer = next(
            event for event in chat.conversation.session.events() if isinstance(event, AssistantMessage)
        )
        assert answer.partial
        assert answer.content.startswith("word word")
        await chat.say("go on", "second")


async def test_ctrl_c_at_a_question_ends_the_run(tmp_path: Path) -> None:
    async with asked(tmp_path, WRITE) as chat:
        await chat.decide(CTRL_C)
        await chat.shows("! Cancelled.")
        assert not exists(chat, "b.txt")
        calls = [event for event in chat.conversation.session.events() if isinstance(event, ToolCall)]
        assert len(results(chat)) == len(calls) == 1


async def test_ctrl_c_clears_the_line_and_ctrl_d_leaves(tmp_path: Path) -> None:
    async with chatting(tmp_path, {"text": "ok"}) as chat:
        await chat.at(">", "half a thought" + CTRL_C)
        await chat.say("whole", "ok\n")
        assert said(chat) == ["whole"]
        chat.type(CTRL_C)
        await chat.shows("(hint)")
        chat.type(CTRL_D)
    assert chat.code == 0


async def test_several_lines_are_typed_with_backslash_and_with_escape_enter(tmp_path: Path) -> None:
    async with chatting(tmp_path, {"text": "ok"}) as chat:
        await chat.at(">", "one\\" + ENTER + "two" + ESCAPE + ENTER + "three\\\\" + ENTER)
        await chat.shows("ok\n")
        assert said(chat) == ["one\ntwo\nthree\\\\"]


async def test_a_paste_of_several_lines_is_one_prompt(tmp_path: Path) -> None:
    async with chatting(tmp_path, {"text": "ok"}) as chat:
        await chat.at(">", "\x1b[200~one\ntwo\x1b[201~" + ENTER)
        await chat.shows("ok\n")
        assert said(chat) == ["one\ntwo"]


async def test_commands_are_answered_as_lines_and_never_sent(tmp_path: Path) -> None:
    async with chatting(tmp_path, {"text": "ok"}) as chat:
        assert "branch" in await chat.say("/status", "wall")
        assert "Choose the model that answers." in await chat.say("/help", "/why")
        assert "/status" in await chat.say("/statsu", "Did you mean")
        assert "cannot be used here" in await chat.say("/theme", "here")
        await chat.say("/etc/hosts is what?", "ok\n")
        assert said(chat) == ["/etc/hosts is what?"]
        chat.type("/quit" + ENTER)
    assert chat.code == 0


async def test_a_choice_takes_a_number(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.say("/mode", " 3. edit", "*2. ask")
        await chat.at("leave it:", "3" + ENTER)
        await chat.shows("Mode edit")
        assert chat.conversation.mode == "edit"
        await chat.say("/mode", "*3. edit")
        await chat.at("leave it:", "9" + ENTER)
        await chat.shows("the numbers go from 1 to 5")


async def test_a_file_is_attached_to_the_next_prompt(tmp_path: Path) -> None:
    async with chatting(tmp_path, {"text": "ok"}) as chat:
        await chat.at(">", "/attach a.txt" + ENTER)
        await chat.at("> @a.txt", "what is it?" + ENTER)
        await chat.shows("ok\n")
        assert said(chat)[0].endswith("@a.txt what is it?")


async def test_what_was_dictated_waits_in_the_line(tmp_path: Path) -> None:
    async with chatting(tmp_path, {"text": "ok"}, sets=("voice.stt_command=echo mend the parser",)) as chat:
        await chat.at(">", "/voice" + ENTER)
        await chat.at("> mend the parser", ", please" + ENTER)
        await chat.shows("ok\n")
        assert said(chat) == ["mend the parser, please"]


async def test_a_plan_is_edited_in_the_line_and_comes_back_where_it_is_wrong(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        set_down(chat.conversation.session, "Greet", [PlanItem(id="a", title="Say hi")], "test")
        await chat.at(">", "/plan edit" + ENTER)
        await chat.at("## a. Say hi", "after: b" + ENTER)
        await chat.shows("depends on b")
        await chat.at("after: b", "\x7f" * len("after: b") + "agent: coder" + ENTER)
        await chat.shows("· a. Say hi")
        assert chat.conversation.session.totals.task_plan.items[0].agent == "coder"


async def test_a_command_that_submits_runs_the_agent(tmp_path: Path) -> None:
    async with chatting(tmp_path, {"text": "Looked around."}) as chat:
        told = await chat.say("/init", "Writing AGENTS.md", "Looked around.")
        assert told.index("Writing AGENTS.md") < told.index("Looked around.")
        (prompt,) = said(chat)
        assert "AGENTS.md" in prompt
        assert not prompt.startswith("/")


async def test_hostile_text_is_made_visible_everywhere(tmp_path: Path) -> None:
    call = {"tool_calls": [{"name": "write_file", "arguments": {"path": f"x{HOSTILE}", "content": HOSTILE}}]}
    async with chatting(tmp_path, {"text": HOSTILE, **call, "chunk_chars": 1}, DONE, colour=False) as chat:
        await chat.say("hi", "? Write")
        await chat.decide("f")
        await chat.at("instead?", "no" + ENTER)
        await chat.shows("All done.")
        assert not [
            char for char in chat.screen if char != "\n" and (ord(char) < 32 or 127 <= ord(char) < 160)
        ]
        assert "\u202e" not in chat.screen
        assert "␛]0;owned" in chat.screen


async def test_errors_come_with_advice_and_the_talk_goes_on(tmp_path: Path) -> None:
    async with chatting(tmp_path, {"status": 401, "error": "No key."}, {"text": "fine now"}) as chat:
        told = await chat.say("hi", "No key", "aar auth set")
        assert told.count("! ") == 1
        assert "fine now" not in told
        await chat.say("again", "fine now")
        assert said(chat) == ["hi", "again"]
    assert chat.code == 0
