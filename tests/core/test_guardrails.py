"""Help for a model that is stuck, and the checks that end a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aar.config.schema import GuardrailsConfig
from aar.core.guardrails import LoopGuardrails, Nudge
from aar.protocol.events import ToolCall, ToolResult
from aar.protocol.tool import FileChange, SideEffect, ToolOutcome
from tests.support.fakes import Turn, World, call, check_messages, done, tool
from tests.support.waiting import until


def labels(world: World) -> list[str]:
    return [event.label for event in world.of("context")]


async def test_a_cut_answer_goes_on_and_is_one_text(tmp_path: Path) -> None:
    world = World(tmp_path, [Turn("The answer", stop="max_tokens"), Turn(" is", stop="max_tokens"), " 42."])
    result = await world.run()
    assert (result.stop_reason, result.text) == ("end_turn", "The answer is 42.")
    assert len(labels(world)) == 2


async def test_a_cut_answer_is_continued_up_to_the_limit(tmp_path: Path) -> None:
    world = World(tmp_path, [Turn("more", stop="max_tokens")], guardrails={"max_tokens_recoveries": 2})
    result = await world.run()
    assert (result.stop_reason, result.exit_code) == ("max_tokens", 1)
    assert len(world.provider.requests) == 3


async def test_a_call_that_was_cut_never_runs_also_when_its_json_was_closed(tmp_path: Path) -> None:
    calls = [call("write_file", path="whole", content="x"), call("write_file", path="half", content="x")]
    world = World(tmp_path, [Turn(calls=calls, stop="max_tokens"), "Done."])
    assert (await world.run()).stop_reason == "end_turn"
    assert (tmp_path / "whole").exists()
    assert not (tmp_path / "half").exists()
    assert [item.category for item in world.results] == [None, "invalid_arguments"]


@pytest.mark.parametrize("empty", [0, 1, 2])
async def test_an_empty_answer_is_asked_again(tmp_path: Path, empty: int) -> None:
    world = World(tmp_path, [*["  "] * empty, "Here."])
    result = await world.run()
    assert (result.stop_reason, result.text) == ("end_turn", "Here.")
    assert labels(world) == ["empty answer"] * empty
    check_messages(world.session.messages())


async def test_empty_answers_come_to_an_end(tmp_path: Path) -> None:
    world = World(tmp_path, [""])
    result = await world.run()
    assert (result.stop_reason, result.exit_code) == ("empty", 1)
    assert len(world.provider.requests) == 3


async def test_a_refusal_ends_the_run_and_its_calls_do_not_run(tmp_path: Path) -> None:
    turn = Turn("No.", [call("write_file", path="a", content="x")], refusal=True)
    world = World(tmp_path, [turn])
    result = await world.run()
    assert (result.stop_reason, result.exit_code) == ("refusal", 1)
    assert world.of("assistant_message")[0].refusal
    assert [item.category for item in world.results] == ["blocked"]
    assert not (tmp_path / "a").exists()


async def test_unreadable_calls_are_asked_again_at_most_twice(tmp_path: Path) -> None:
    said = '```json\n{"name": "read_file", "arguments": {"path": }}\n```'
    world = World(tmp_path, [said], dialect="text")
    assert (await world.run()).stop_reason == "end_turn"
    assert labels(world) == ["unreadable answer"] * 2
    assert len(world.provider.requests) == 3
    assert "read_file" in world.of("assistant_message")[0].content


async def test_a_call_in_plain_text_runs_and_its_text_is_no_prose(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha\n")
    said = 'I look.\n```json\n{"name": "read_file", "arguments": {"path": "a.txt"}}\n```'
    world = World(tmp_path, [said, "It says alpha."], dialect="text")
    result = await world.run()
    assert result.text == "It says alpha."
    assert "alpha" in world.results[0].output
    shown = "".join(event.text for event in world.live if event.type == "stream_chunk")
    assert "arguments" not in shown
    assert shown.startswith("I look.")


async def test_repeated_steps_are_warned_about_then_stopped(tmp_path: Path) -> None:
    world = World(tmp_path, [Turn(calls=[call("list_directory", path=".")])])
    result = await world.run()
    assert (result.stop_reason, result.exit_code) == ("repetition", 1)
    assert labels(world) == ["repetition", "last answer"]
    assert [bool(request.tools) for request in world.provider.requests] == [True, True, True, False]


async def test_repetition_is_counted_for_a_run(tmp_path: Path) -> None:
    look = Turn(calls=[call("list_directory", path=".")])
    world = World(tmp_path, [look, look, "One.", look, look, "Two."])
    assert (await world.run()).stop_reason == "end_turn"
    assert (await world.run()).stop_reason == "end_turn"


async def test_a_changed_file_resets_the_count(tmp_path: Path) -> None:
    looks = [Turn(calls=[call("read_file", path="missing")])] * 2
    turns: list[Turn | str] = []
    for i in range(3):
        turns += [*looks, Turn(calls=[call("write_file", path="out", content=str(i))])]
    assert (await World(tmp_path, [*turns, "Done."]).run()).stop_reason == "end_turn"


def outcome(guard: LoopGuardrails, name: str, *, output: str = "same", changed: bool = False) -> Any:
    made = ToolCall(call_id="c", tool_name=name)
    changes = (FileChange(path="p", action="modify"),) if changed else ()
    verdict = guard.after_tools(
        [made], [ToolResult(call_id="c", tool_name=name, output=output, file_changes=changes)]
    )
    return "warn" if isinstance(verdict, Nudge) else verdict


@pytest.mark.parametrize(
    ("steps", "verdicts"),
    [
        ("AAA", [None, "warn", "repetition"]),
        ("AAB", [None, "warn", None]),
        ("AABBB", [None, "warn", None, "warn", "repetition"]),
        ("ABABAB", [None, None, None, "warn", None, "repetition"]),
        ("ABCABC", [None] * 6),
        ("AAXAA", [None, "warn", None, None, "warn"]),
    ],
)
def test_patterns_of_steps(steps: str, verdicts: list[str | None]) -> None:
    guard = LoopGuardrails(GuardrailsConfig())
    assert [outcome(guard, name, changed=name == "X") for name in steps] == verdicts


def test_other_results_are_no_repetition() -> None:
    guard = LoopGuardrails(GuardrailsConfig())
    assert [outcome(guard, "A", output=str(i)) for i in range(5)] == [None] * 5


def test_one_step_alone_is_never_a_repetition() -> None:
    guard = LoopGuardrails(GuardrailsConfig(max_repeated_tool_steps=1))
    assert [outcome(guard, "A"), outcome(guard, "A")] == [None, "repetition"]


# --- checks ----------------------------------------------------------------------------------------------


async def test_a_failing_check_goes_back_to_the_model_until_it_passes(tmp_path: Path) -> None:
    fix = Turn("Fixing.", [call("write_file", path="fixed", content="x")])
    world = World(
        tmp_path, ["I am done.", fix, "Now."], verify=["test -e fixed || { echo it is not fixed; exit 3; }"]
    )
    result = await world.run()
    assert (result.stop_reason, result.exit_code, result.text) == ("verified", 0, "Now.")
    (told,) = world.of("context")
    assert (told.source, told.trusted) == ("verify", False)
    assert "it is not fixed" in told.content[0].text
    assert "exit code 3" in told.content[0].text
    check_messages(world.session.messages())


async def test_the_same_failure_three_times_earns_a_nudge_and_once_more_ends_the_run(tmp_path: Path) -> None:
    world = World(tmp_path, ["I am done."], verify=["false"])
    result = await world.run()
    assert (result.stop_reason, result.exit_code) == ("repetition", 1)
    labels = [event.label for event in world.of("context")]
    assert labels == [*["The check fails"] * 3, "another approach", "The check fails", "last answer"]
    assert len(world.provider.requests) == 5


async def test_changes_between_equal_failures_let_the_run_go_on(tmp_path: Path) -> None:
    turns: list[Turn | str] = []
    for i in range(5):
        turns += [Turn(calls=[call("write_file", path="f", content=str(i))]), "Done?"]
    world = World(
        tmp_path,
        [*turns, Turn(calls=[call("write_file", path="ok", content="")]), "Done."],
        verify=["test -e ok"],
    )
    assert (await world.run()).stop_reason == "verified"


async def test_commands_count_as_changes_though_they_do_not_tell_files(tmp_path: Path) -> None:
    count = 0

    async def act(_arguments: Any, _context: Any) -> ToolOutcome:
        nonlocal count
        count += 1
        if count == 4:
            (tmp_path / "ok").touch()
        return done(str(count))

    turns: list[Turn | str] = [part for _ in range(4) for part in (Turn(calls=[call("act")]), "Done?")]
    world = World(
        tmp_path, turns, verify=["test -e ok"], mode="unsafe", tools=[tool("act", act, SideEffect.WRITE)]
    )
    assert (await world.run()).stop_reason == "verified"


async def test_a_limit_ends_checks_too(tmp_path: Path) -> None:
    turns: list[Turn | str] = []
    for i in range(5):
        turns += [Turn(calls=[call("write_file", path="f", content=str(i))]), "Done?"]
    world = World(tmp_path, turns, verify=["false"], limits={"steps": 4})
    assert (await world.run()).stop_reason == "max_steps"


async def test_cancel_in_a_check(tmp_path: Path) -> None:
    from tests.support.plain_spawner import PlainSpawner

    world = World(tmp_path, ["Done."], verify=["sleep 3"], spawner=PlainSpawner())
    run = world.start()
    await until(lambda: world.spawner.requests)
    world.agent.cancel()
    assert (await run).stop_reason == "cancelled"
    assert str(world.of("state")[-1].state) == "cancelled"
