"""What users of other tools complain about when conversations are compacted, each as a test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aar.core.compaction.facts import failed_tests, gather
from aar.core.compaction.render import render_summary
from aar.core.context_parts import PARTS, context_breakdown
from aar.core.fold import fold_messages
from aar.core.session import Session
from aar.memory.memory_store import MemoryStore
from aar.protocol.events import (
    Compaction,
    ContextEvent,
    Event,
    PlanEvent,
    PlanItem,
    Rewind,
    ToolCall,
    ToolResult,
    UserMessage,
)
from aar.protocol.messages import TextBlock
from aar.protocol.state import AgentState
from tests.compaction.support import SmallWorld, everything, good_notes
from tests.compaction.test_runs import reading
from tests.session.sequences import check
from tests.support.fakes import Turn, call


def numbered(*events: Event) -> list[Event]:
    return [event.model_copy(update={"seq": seq}) for seq, event in enumerate(events, 1)]


def user(text: str, **more: Any) -> UserMessage:
    return UserMessage(content=(TextBlock(text=text),), **more)


def ran(number: int, command: str, output: str = "", code: int = 0) -> list[Event]:
    place: dict[str, Any] = {"run_id": "R", "step": number}
    return [
        ToolCall(call_id=f"c{number}", tool_name="bash", arguments={"command": command}, **place),
        ToolResult(
            call_id=f"c{number}", tool_name="bash", output=output, exit_code=code, is_error=code != 0, **place
        ),
    ]


def summary_of(*events: Event, budget: int = 4000) -> str:
    return render_summary(gather(numbered(*events)).facts, {}, budget)


async def compacted_world(root: Path, **more: Any) -> SmallWorld:
    """Return a world that has been compacted to a summary at least once."""
    world = SmallWorld(root, [*reading(root, 8, words=900), "Done."], **more)
    await world.run("Keep Python 3.11; do the work.")
    assert any(event.summary for event in world.compactions)
    return world


def test_no_cut_size_leaves_an_orphan_result_or_loses_the_task() -> None:
    history: list[Event] = [user("The task is to mend it.")]
    for step in range(1, 66):
        history += [*ran(step, f"make {step}", "out")]
    events = numbered(*history)
    for first in range(1, len(events) + 2):
        cut = Compaction(seq=len(events) + 1, summary="s", first_kept_seq=first, kept_seqs=(1,))
        messages = fold_messages([*events, cut])
        check(messages)
        assert "The task is to mend it." in everything(messages)


async def test_the_gauge_does_not_read_zero_after_a_compaction(tmp_path: Path) -> None:
    world = await compacted_world(tmp_path / "p")
    assert all(0 < event.tokens_after < event.tokens_before for event in world.compactions)
    parts = {part.name: part for part in context_breakdown(world.session, world.agent.view_of(world.session))}
    assert tuple(parts) == PARTS
    assert parts["history"].tokens > 100
    assert sum(part.tokens for part in parts.values()) == 20_000
    assert sum(part.share for part in parts.values()) == pytest.approx(1)
    assert parts["system"].tokens > 100 < parts["tools"].tokens


async def test_a_resumed_session_sends_the_same_bytes_so_that_its_cache_holds(tmp_path: Path) -> None:
    store = MemoryStore()
    world = await compacted_world(tmp_path / "p", store=store)
    before = world.session.messages()
    world.session.close()
    again = Session.resume(store, world.session.session_id)
    assert again.messages() == before
    assert [m.model_dump_json() for m in again.messages()] == [m.model_dump_json() for m in before]


async def test_a_fork_after_a_compaction_knows_what_its_origin_knew(tmp_path: Path) -> None:
    store = MemoryStore()
    world = await compacted_world(tmp_path / "p", store=store)
    fork = Session.fork(store, world.session.session_id)
    assert fork.messages() == world.session.messages()


async def test_a_crash_in_the_middle_of_a_compaction_leaves_a_session_that_opens(tmp_path: Path) -> None:
    store = MemoryStore()
    session = Session.create(store, cwd=tmp_path, model="told/m")
    session.append(user("Work."))
    session.set_state(AgentState.RUNNING)
    session.set_state(AgentState.COMPACTING)
    session.close()
    again = Session.resume(store, session.session_id)
    assert str(again.totals.state()) == "cancelled"
    assert [message.text for message in again.messages()] == ["Work."]
    world = SmallWorld(tmp_path / "p", ["Done."], store=store, session=again)
    assert (await world.run("Go on.")).stop_reason == "end_turn"


async def test_going_back_to_before_a_compaction_brings_every_turn_back(tmp_path: Path) -> None:
    world = await compacted_world(tmp_path / "p")
    first = world.compactions[0]
    assert first.seq is not None
    world.session.append(Rewind(to_seq=first.seq - 1, scope="conversation"))
    assert "put aside" not in world.texts()
    assert "Keep Python 3.11; do the work." in world.texts()


async def test_a_switch_to_a_smaller_window_compacts_before_the_next_request(tmp_path: Path) -> None:
    root = tmp_path / "p"
    world = SmallWorld(root, [*reading(root, 8, words=200), "Done."], window=200_000)
    await world.run("Read.")
    assert world.compactions == []
    small = replace(world.active, name="told/small", model="small", capabilities=replace(
        world.active.capabilities, context_window=20_000))  # fmt: skip
    world.agent.runner.switch(small, world.session)
    world.script.requests.clear()
    world.script.turns = [Turn("Done.")]
    result = await world.run("Go on.")
    assert result.stop_reason == "end_turn"
    assert len(world.compactions) >= 1
    world.check_requests()


async def test_summaries_are_not_summed_up_again(tmp_path: Path) -> None:
    count = 0

    def notes(prompt: str) -> str:
        nonlocal count
        if "What is missing" in prompt:
            return good_notes(prompt)
        count += 1
        return f"## Goal\n- Goal {count}.\n## Decisions\n- Decision number {count}.\n## Next step\n- Step {count}."

    root = tmp_path / "p"
    world = SmallWorld(root, ["x"], notes=notes)
    for phase in range(4):
        world.script.turns, world.script.requests = [*reading(root, 8, words=900), Turn("Done.")], []
        await world.run(f"Part {phase}.")
    last = [event for event in world.compactions if event.summary][-1]
    assert count >= 3
    assert last.notes["decisions"] == tuple(f"Decision number {number}." for number in range(1, count + 1))
    assert last.notes["goal"] == (f"Goal {count}.",)
    for number in range(1, count + 1):
        assert f"Decision number {number}." in world.texts()
    for phase in range(4):
        assert f"Part {phase}." in world.texts()


def test_rules_of_the_user_stay_word_for_word() -> None:
    rule = "Rules:\n  1. never  use `eval`\n  2. ## keep headings ##"
    assert rule in summary_of(user("hi"), user(rule), user("go"))


def test_of_very_many_words_the_first_and_the_last_stay_whole() -> None:
    first, last = "FIRST " * 50 + "one", "LAST " * 50 + "one"
    said = [user(first), *(user(f"middle {number} " + "blah " * 300) for number in range(200)), user(last)]
    summary = summary_of(*said, budget=3000)
    assert first in summary
    assert last in summary
    assert "were left out" in summary
    assert len(summary) < 20_000


def test_todos_and_the_mode_survive() -> None:
    plan = PlanEvent(items=(PlanItem(id="1", title="Migrate tables", status="in_progress"),))
    mode = ContextEvent(
        source="nudge", label="mode", content=(TextBlock(text="Mode: plan. You may only read."),)
    )
    summary = summary_of(user("go"), plan, mode)
    assert "[in_progress] Migrate tables" in summary
    assert "Mode: plan." in summary


def test_an_open_failing_test_is_named_and_a_mended_one_is_not() -> None:
    failing = "FAILED tests/test_a.py::test_x - assert 1 == 2"
    broken = summary_of(user("go"), *ran(1, "pytest -q tests/test_a.py", failing, 1))
    assert "tests/test_a.py::test_x" in broken.split("## Fails now")[1]
    again = [
        user("go"),
        *ran(1, "pytest -q tests/test_a.py", failing, 1),
        *ran(2, "pytest -q tests/test_a.py", "ok"),
    ]
    assert "## Fails now" not in summary_of(*again)
    wider = [user("go"), *ran(1, "pytest -q tests/test_a.py", failing, 1), *ran(2, "pytest -q", "ok")]
    assert "## Fails now" not in summary_of(*wider)
    other = [user("go"), *ran(1, "pytest -q tests/test_a.py", failing, 1), *ran(2, "ls", "ok")]
    assert "## Fails now" in summary_of(*other)


def test_what_was_undone_is_no_fact() -> None:
    events = numbered(user("go"), *ran(1, "make wrong", "boom", 2), user("next"))
    undone = [*events, Rewind(seq=5, to_seq=1, scope="both"), user("other way").model_copy(update={"seq": 6})]
    facts = gather(undone).facts
    assert [words.text for words in facts.words] == ["go", "other way"]
    assert facts.failing == []
    redone = [*undone, Rewind(seq=7, to_seq=4, scope="both")]
    assert [words.text for words in gather(redone).facts.words] == ["go", "next"]


@pytest.mark.parametrize(
    ("output", "names"),
    [
        ("FAILED tests/a.py::test_b[x-1] - no\n1 failed", ("tests/a.py::test_b[x-1]",)),
        ("FAIL: test_sum (tests.Calc.test_sum)", ("test_sum (tests.Calc.test_sum)",)),
        ("--- FAIL: TestAdd (0.00s)\n    --- FAIL: TestAdd/neg (0.00s)", ("TestAdd", "TestAdd/neg")),
        ("test tests::adds ... FAILED\ntest other ... ok", ("tests::adds",)),
        ("  ✕ adds numbers (3 ms)\n  ✓ works", ("adds numbers (3 ms)",)),
        ("not ok 3 - parses dates\nok 4", ("parses dates",)),
        ("all good", ()),
    ],
)
def test_failing_tests_are_known_by_name_in_many_runners(output: str, names: tuple[str, ...]) -> None:
    assert failed_tests(output) == names


async def test_old_words_of_a_shrunk_result_are_not_kept_twice(tmp_path: Path) -> None:
    root = tmp_path / "p"
    world = SmallWorld(root, [Turn("", [call("read_file", path="x")]), "Done."])
    world.script.turns = [*reading(root, 20, words=60), Turn("Done.")]
    await world.run("Read.")
    references = [item.output_ref for event in world.compactions for item in event.shrunk]
    kept = list((tmp_path / "outputs").iterdir())
    assert len(kept) == len({reference for reference in references if reference}) > 0
