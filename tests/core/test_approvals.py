"""Questions about calls: each answer reaches its own call, edits are judged again, nobody means no."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from aar.core.approvals import PermissionManager
from aar.protocol.errors import UsageError
from aar.protocol.events import Approval, ApprovalRequest
from aar.safety.policy import RuleSet
from tests.support.fakes import Person, Turn, World, call, no_tasks_left
from tests.support.waiting import until


def writes(*names: str) -> Turn:
    return Turn(calls=[call("write_file", path=name, content=name) for name in names])


@pytest.mark.parametrize("seed", range(4))
async def test_u3_five_questions_answered_in_any_order_reach_their_own_calls(
    tmp_path: Path, seed: int
) -> None:
    names = ["a", "b", "c", "d", "e"]
    world = World(tmp_path, [writes(*names), "Done."], mode="ask", person="door")
    run = world.start()
    await until(lambda: len(world.agent.approvals.pending) == 5)
    assert len(world.of("approval_request")) == 5
    open_questions = list(world.agent.approvals.pending)
    random.Random(seed).shuffle(open_questions)
    for request in open_questions:
        if request.arguments["path"] in "ace":
            world.agent.answer(request.request_id, "allow")
        else:
            world.agent.answer(request.request_id, "reject", feedback=f"not {request.arguments['path']}")
        await asyncio.sleep(0)
    result = await run
    assert result.stop_reason == "end_turn"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "c", "e"]
    outputs = [item.output for item in world.results]
    assert [item.category for item in world.results] == [None, "denied", None, "denied", None]
    assert "They said: not b" in outputs[1]
    assert "They said: not d" in outputs[3]
    assert "not b" in str(world.provider.requests[1].messages[-1])
    asked = {event.call_id: event.request_id for event in world.of("approval_request")}
    assert {event.call_id: event.request_id for event in world.of("approval")} == asked
    assert no_tasks_left() == []


async def test_an_answer_is_recorded_when_it_is_given(tmp_path: Path) -> None:
    world = World(tmp_path, [writes("a", "b"), "Done."], mode="ask", person="door")
    run = world.start()
    await until(lambda: len(world.agent.approvals.pending) == 2)
    first, second = world.agent.approvals.pending
    world.agent.answer(second.request_id, "allow")
    await until(lambda: world.of("approval"))
    assert [event.request_id for event in world.of("approval")] == [second.request_id]
    assert str(world.of("state")[-1].state) == "waiting_for_input"
    world.agent.answer(first.request_id, "allow")
    await run
    states = [str(event.state) for event in world.of("state")]
    assert states == [
        "running",
        "waiting_for_tool",
        "waiting_for_input",
        "waiting_for_tool",
        "running",
        "completed",
    ]


async def test_a_no_without_a_word_ends_the_run_after_the_step(tmp_path: Path) -> None:
    person = Person(lambda request: {"decision": "reject" if request.arguments["path"] == "a" else "allow"})
    world = World(tmp_path, [writes("a", "b"), "Never."], mode="ask", person=person)
    result = await world.run()
    assert (result.stop_reason, result.exit_code) == ("denied", 6)
    assert (tmp_path / "b").exists()
    assert len(world.provider.requests) == 1


async def test_edited_arguments_are_used_and_stand_in_the_record(tmp_path: Path) -> None:
    person = Person(lambda _request: {"edited_arguments": {"path": "mine", "content": "edited"}})
    world = World(tmp_path, [writes("a"), "Done."], mode="ask", person=person)
    await world.run()
    assert (tmp_path / "mine").read_text() == "edited"
    assert world.of("approval")[0].edited_arguments == {"path": "mine", "content": "edited"}


async def test_edited_arguments_are_validated(tmp_path: Path) -> None:
    person = Person(lambda _request: {"edited_arguments": {"content": "no path"}})
    world = World(tmp_path, [writes("a"), "Done."], mode="ask", person=person)
    await world.run()
    assert world.results[0].category == "invalid_arguments"


async def test_an_edit_does_not_lead_past_a_deny_rule(tmp_path: Path) -> None:
    person = Person(lambda _request: {"edited_arguments": {"path": "locked/x", "content": "x"}})
    rules = [RuleSet.parse("user", deny=("write(locked/**)",))]
    world = World(tmp_path, [writes("a"), "Done."], mode="ask", person=person, rules=rules)
    result = await world.run()
    assert result.stop_reason == "end_turn"
    assert world.results[0].category == "blocked"
    assert not (tmp_path / "locked").exists()


async def test_an_edit_into_a_hard_stop_is_asked_about_again(tmp_path: Path) -> None:
    answers = iter(
        [{"edited_arguments": {"command": "git reset --hard"}}, {"decision": "reject", "feedback": "no!"}]
    )
    person = Person(lambda _request: next(answers))
    world = World(
        tmp_path, [Turn(calls=[call("bash", command="touch x")]), "Done."], mode="ask", person=person
    )
    await world.run()
    assert [request.arguments["command"] for request in person.asked] == ["touch x", "git reset --hard"]
    assert person.asked[1].scopes == ("once",)
    assert world.results[0].category == "denied"
    assert world.spawner.requests == []


async def test_an_edit_to_something_that_needs_no_question_runs(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("hello\n")
    person = Person(lambda _request: {"edited_arguments": {"command": "cat f"}})
    world = World(
        tmp_path, [Turn(calls=[call("bash", command="touch x")]), "Done."], mode="ask", person=person
    )
    await world.run()
    assert len(person.asked) == 1
    assert world.results[0].output.startswith("hello")


async def test_u16_an_answer_for_the_session_covers_its_rule_and_no_more(tmp_path: Path) -> None:
    world = World(
        tmp_path,
        [
            Turn(calls=[call("bash", command="touch one")]),
            Turn(calls=[call("bash", command="touch one")]),
            Turn(calls=[call("bash", command="mkdir two")]),
            "Done.",
        ],
        mode="ask",
        person="door",
    )
    run = world.start()
    await until(lambda: world.agent.approvals.pending)
    (first,) = world.agent.approvals.pending
    assert first.proposed_rule is not None
    assert "session" in first.scopes
    world.agent.answer(first.request_id, "allow", scope="session")
    await until(lambda: world.agent.approvals.pending)
    (second,) = world.agent.approvals.pending
    assert second.arguments["command"] == "mkdir two"
    world.agent.answer(second.request_id, "allow")
    await run
    approvals = world.of("approval")
    assert [event.by for event in approvals] == ["user", "policy", "user"]
    assert approvals[1].rule == first.proposed_rule


async def test_a_rule_settles_equal_questions_that_are_open(tmp_path: Path) -> None:
    same = [call("bash", command="touch one") for _ in range(3)]
    world = World(tmp_path, [Turn(calls=same), "Done."], mode="ask", person="door")
    run = world.start()
    await until(lambda: len(world.agent.approvals.pending) == 3)
    world.agent.answer(world.agent.approvals.pending[1].request_id, "allow", scope="session")
    assert (await run).stop_reason == "end_turn"
    assert [item.is_error for item in world.results] == [False] * 3
    requests = {event.request_id for event in world.of("approval_request")}
    assert {event.request_id for event in world.of("approval")} == requests
    assert str(world.of("state")[-1].state) == "completed"


async def test_a_scope_that_was_not_offered_is_refused(tmp_path: Path) -> None:
    world = World(
        tmp_path, [Turn(calls=[call("bash", command="git reset --hard")]), "Done."], mode="ask", person="door"
    )
    run = world.start()
    await until(lambda: world.agent.approvals.pending)
    (request,) = world.agent.approvals.pending
    with pytest.raises(UsageError, match="once"):
        world.agent.answer(request.request_id, "allow", scope="session", rule="bash(git *)")
    world.agent.answer(request.request_id, "reject")
    await run
    with pytest.raises(UsageError, match="No question"):
        world.agent.answer(request.request_id, "allow")


async def test_cancel_while_a_question_is_open_closes_question_and_call(tmp_path: Path) -> None:
    world = World(tmp_path, [writes("a", "b")], mode="ask", person="door")
    run = world.start()
    await until(lambda: len(world.agent.approvals.pending) == 2)
    world.agent.cancel()
    assert (await run).stop_reason == "cancelled"
    assert [item.category for item in world.results] == ["cancelled"] * 2
    assert [event.decision for event in world.of("approval")] == ["cancelled"] * 2
    assert world.agent.approvals.pending == ()
    assert list(tmp_path.iterdir()) == []
    assert no_tasks_left() == []


async def test_cancel_does_not_answer_a_question_twice(tmp_path: Path) -> None:
    world = World(tmp_path, [writes("a", "b")], mode="ask", person="door")
    run = world.start()
    await until(lambda: len(world.agent.approvals.pending) == 2)
    first, second = world.agent.approvals.pending
    world.agent.answer(second.request_id, "allow")
    await until(lambda: world.of("approval"))
    world.agent.cancel()
    assert (await run).stop_reason == "cancelled"
    decisions = {event.request_id: event.decision for event in world.of("approval")}
    assert decisions == {second.request_id: "allow", first.request_id: "cancelled"}
    assert len(world.of("approval")) == 2
    assert list(tmp_path.iterdir()) == []


async def test_headless_a_question_is_a_denial_that_ends_the_run(tmp_path: Path) -> None:
    world = World(tmp_path, [writes("a"), "Never."], mode="ask")
    result = await world.run()
    assert (result.stop_reason, result.exit_code) == ("denied", 6)
    assert world.results[0].category == "denied"
    assert world.of("approval_request") == []
    assert [event.decision for event in world.of("approval")] == ["reject"]
    assert len(world.provider.requests) == 1


async def test_a_denial_by_policy_is_told_to_the_model_and_the_run_goes_on(tmp_path: Path) -> None:
    world = World(tmp_path, [writes("a"), "I see."], mode="plan")
    result = await world.run()
    assert (result.stop_reason, result.text) == ("end_turn", "I see.")
    assert world.results[0].category == "blocked"
    assert not (tmp_path / "a").exists()


async def test_an_approver_that_fails_means_no(tmp_path: Path) -> None:
    class Broken:
        async def decide(self, _request: ApprovalRequest) -> Approval:
            raise OSError("the pipe is gone")

    world = World(tmp_path, [writes("a"), "Never."], mode="ask", person=Broken())
    assert (await world.run()).stop_reason == "denied"
    assert "the pipe is gone" in world.of("notice")[0].message
    assert not (tmp_path / "a").exists()


async def test_a_failing_rule_leaves_the_question_open() -> None:
    def refuse(_rule: str, _scope: Any) -> None:
        raise UsageError("not a rule")

    manager = PermissionManager(refuse)
    request = ApprovalRequest(
        request_id="r",
        call_id="c",
        tool_name="t",
        arguments={},
        proposed_rule="x",
        scopes=("once", "session"),
    )
    waiting = asyncio.create_task(manager.decide(request))
    await asyncio.sleep(0)
    with pytest.raises(UsageError):
        manager.answer("r", "allow", scope="session")
    assert [item.request_id for item in manager.pending] == ["r"]
    manager.answer("r", "allow")
    assert (await waiting).scope == "once"


async def test_a_question_shows_what_the_file_would_become_and_nothing_changes_before_the_answer(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    calls = [
        call("write_file", path="a.txt", content="one\n2\nthree\n"),
        call("edit_file", path="a.txt", old_text="three", new_text="3"),
        call("write_file", path="new.txt", content="x\n"),
        call("edit_file", path="a.txt", old_text="not there", new_text="y"),
    ]
    world = World(tmp_path, [Turn(calls=calls), "Done."], mode="ask", person="door")
    run = world.start()
    await until(lambda: len(world.agent.approvals.pending) == 4)
    write, edit, new, wrong = world.agent.approvals.pending
    assert "-two\n+2" in str(write.diff)
    assert "-three\n+3" in str(edit.diff)
    assert str(new.diff).startswith("--- /dev/null\n+++ b/new.txt")
    assert wrong.diff is None, "what would fail has no difference to show"
    assert (tmp_path / "a.txt").read_text() == "one\ntwo\nthree\n"
    assert not (tmp_path / "new.txt").exists()
    for request in (write, edit, new, wrong):
        world.agent.answer(request.request_id, "allow")
    await run
    assert (tmp_path / "a.txt").read_text() == "one\n2\n3\n"


async def test_nobody_is_asked_about_a_change_that_does_not_fit_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\none\n")
    turns = [
        Turn(calls=[call("edit_file", path="a.txt", old_text="one", new_text="1")]),
        Turn(calls=[call("edit_file", path="a.txt", old_text="two", new_text="2")]),
        "Done.",
    ]
    world = World(tmp_path, turns, mode="ask", person="door")
    result = await world.start()
    assert result.stop_reason == "end_turn"
    assert [item.category for item in world.results] == ["ambiguous", "not_found"]
    assert world.of("approval_request") == []


async def test_of_a_file_that_may_not_be_read_unasked_nothing_is_told_before_the_answer(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.txt").write_text("one\none\n")
    edit = call("edit_file", path="a.txt", old_text="one", new_text="1")
    rules = RuleSet.parse("user", ask=("read(a.txt)",))
    world = World(tmp_path, [Turn(calls=[edit]), "Done."], mode="ask", person="door", rules=[rules])
    run = world.start()
    await until(lambda: len(world.agent.approvals.pending) == 1)
    world.agent.answer(world.agent.approvals.pending[0].request_id, "reject", feedback="no")
    await run
    assert [item.category for item in world.results] == ["denied"]


async def test_looking_ahead_does_not_count_as_having_read_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    world = World(
        tmp_path,
        [
            Turn(calls=[call("read_file", path="a.txt")]),
            Turn(calls=[call("edit_file", path="a.txt", old_text="one", new_text="1")]),
            "Done.",
        ],
        mode="ask",
        person="door",
    )
    run = world.start()
    await until(lambda: len(world.agent.approvals.pending) == 1)
    (tmp_path / "a.txt").write_text("one and more\n")
    world.agent.answer(world.agent.approvals.pending[0].request_id, "allow")
    await run
    assert world.results[-1].category == "stale_file"
    assert (tmp_path / "a.txt").read_text() == "one and more\n"
