"""One step: the order of its events, and exactly one result for each call, whatever happens to it."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from aar.protocol.errors import SandboxError
from aar.protocol.messages import ToolUseBlock
from aar.protocol.state import StopReason
from aar.protocol.tool import SideEffect, ToolOutcome
from aar.safety.policy import RuleSet
from tests.support.fakes import Turn, World, call, check_messages, done, no_tasks_left, tool
from tests.support.waiting import until


async def test_events_of_a_step_come_in_the_order_of_the_design(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha\n")
    first = Turn(
        "Looking.",
        [call("read_file", path="a.txt"), call("write_file", path="b.txt", content="beta\n")],
        reasoning="hm",
    )
    world = World(tmp_path, [first, "Done."])
    result = await world.run()
    assert world.shape() == [
        *("reasoning", "assistant_message", "tool_call", "tool_call", "provider_meta"),
        *("tool_result", "approval", "tool_result"),
        *("assistant_message", "provider_meta"),
    ]
    assert [event.type for event in world.events][:5] == [
        "session",
        "state",
        "prompt",
        "user_message",
        "reasoning",
    ]
    assert (result.stop_reason, result.exit_code, result.steps, result.text) == ("end_turn", 0, 2, "Done.")
    assert [change.path for change in result.file_changes] == ["b.txt"]
    assert [event.step for event in world.of("provider_meta")] == [1, 2]
    assert {event.run_id for event in world.events[1:]} == {result.run_id}
    check_messages(world.session.messages())


async def test_state_tells_what_the_agent_does(tmp_path: Path) -> None:
    world = World(tmp_path, [Turn(calls=[call("list_directory", path=".")]), "Done."])
    await world.run()
    states = [str(event.state) for event in world.of("state")]
    assert states == ["running", "waiting_for_tool", "running", "completed"]


async def test_an_unknown_tool_gets_a_result_with_the_nearest_names(tmp_path: Path) -> None:
    world = World(tmp_path, [Turn(calls=[call("read_fil", path="a")]), "Done."])
    await world.run()
    (result,) = world.results
    assert result.category == "unknown_tool"
    assert result.output.startswith("Error [unknown_tool]:")
    assert "read_file" in result.output


async def test_arguments_that_are_too_large_are_refused(tmp_path: Path) -> None:
    world = World(tmp_path, [Turn(calls=[call("write_file", path="a", content="x" * 1_000_001)]), "Done."])
    await world.run()
    (result,) = world.results
    assert result.category == "invalid_arguments"
    assert "smaller pieces" in result.output
    assert not (tmp_path / "a").exists()


async def test_broken_arguments_get_a_result_and_do_not_run(tmp_path: Path) -> None:
    broken = ToolUseBlock(call_id="x", name="write_file", raw_arguments='{"path": "a", "content": "')
    wrong = call("write_file", path=7, content=["x"])
    world = World(tmp_path, [Turn(calls=[broken, wrong]), "Done."])
    await world.run()
    assert [result.category for result in world.results] == ["invalid_arguments"] * 2
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("error", "category", "words"),
    [
        (ValueError("boom"), "exception", "ValueError: boom"),
        (TimeoutError(), "exception", "TimeoutError"),
        (SandboxError("The wall fell."), "sandbox", "The wall fell."),
        (asyncio.CancelledError(), "cancelled", "from within"),
        (RecursionError("deep"), "exception", "deep"),
    ],
)
async def test_whatever_a_handler_raises_becomes_its_result(
    tmp_path: Path, error: BaseException, category: str, words: str
) -> None:
    async def fails(_arguments: Any, _context: Any) -> ToolOutcome:
        raise error

    world = World(tmp_path, [Turn(calls=[call("fails")]), "Done."], tools=[tool("fails", fails)])
    result = await world.run()
    assert result.stop_reason == "end_turn"
    assert world.results[0].category == category
    assert words in world.results[0].output


async def test_a_handler_that_returns_nonsense_is_a_failed_call(tmp_path: Path) -> None:
    async def nothing(_arguments: Any, _context: Any) -> Any:
        return None

    world = World(tmp_path, [Turn(calls=[call("nothing")]), "Done."], tools=[tool("nothing", nothing)])
    assert (await world.run()).stop_reason == "end_turn"
    assert world.results[0].category == "exception"


async def test_a_failing_policy_refuses_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, [Turn(calls=[call("write_file", path="a", content="x")]), "Done."])

    def decide(*_arguments: Any, **_more: Any) -> Any:
        raise RecursionError

    monkeypatch.setattr(world.policy, "decide", decide)
    assert (await world.run()).stop_reason == "end_turn"
    assert world.results[0].category == "blocked"
    assert not (tmp_path / "a").exists()
    assert isinstance(world.logged[0], RecursionError)


async def test_a_checkpoint_that_fails_keeps_the_call_from_running(tmp_path: Path) -> None:
    class Full:
        async def before(self, _call_id: str, _paths: Any) -> None:
            raise OSError(28, "No space left on device")

        def blob(self, _data: bytes) -> None:
            return None

    world = World(
        tmp_path, [Turn(calls=[call("write_file", path="a", content="x")]), "Done."], checkpointer=Full()
    )
    await world.run()
    assert world.results[0].is_error
    assert not (tmp_path / "a").exists()


async def test_a_tool_past_its_time_is_stopped_and_its_output_kept(tmp_path: Path) -> None:
    async def slow(_arguments: Any, context: Any) -> ToolOutcome:
        context.progress("half of it")
        await asyncio.sleep(30)
        return done()

    world = World(tmp_path, [Turn(calls=[call("slow")]), "Done."], tools=[tool("slow", slow, timeout_s=0.05)])
    await world.run()
    assert world.results[0].category == "timeout"
    assert "0.05 s" in world.results[0].output
    assert "half of it" in world.results[0].output


async def test_read_only_calls_overlap_and_their_results_keep_the_order(tmp_path: Path) -> None:
    running, most = 0, 0

    together, others = asyncio.Event(), asyncio.Event()

    async def read(arguments: dict[str, Any], _context: Any) -> ToolOutcome:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            together.set()
        await together.wait()
        if arguments["key"] == "0":
            await others.wait()
        await asyncio.sleep(0)
        if arguments["key"] == "5":
            others.set()
        running -= 1
        return done(arguments["key"])

    calls = [call("look", key=str(i)) for i in range(6)]
    world = World(tmp_path, [Turn(calls=calls), "Done."], tools=[tool("look", read)], parallel=3)
    await world.run()
    assert most == 3
    assert [result.output for result in world.results] == list("012345")


async def test_calls_with_effects_run_one_after_the_other_and_between_reads(tmp_path: Path) -> None:
    trace: list[str] = []

    async def step(arguments: dict[str, Any], _context: Any) -> ToolOutcome:
        trace.append(f"+{arguments['key']}")
        await asyncio.sleep(0.002)
        trace.append(f"-{arguments['key']}")
        return done()

    tools = [tool("look", step), tool("act", step, SideEffect.WRITE)]
    names = ["look", "act", "act", "look"]
    calls = [call(name, key=str(i)) for i, name in enumerate(names)]
    await World(tmp_path, [Turn(calls=calls), "Done."], tools=tools, mode="unsafe").run()
    assert trace == ["+0", "-0", "+1", "-1", "+2", "-2", "+3", "-3"]


async def test_calls_past_the_limit_of_a_step_are_refused_with_the_reason(tmp_path: Path) -> None:
    calls = [call("list_directory", path=".") for _ in range(5)]
    world = World(tmp_path, [Turn(calls=calls), "Done."], max_calls=2)
    await world.run()
    assert [result.is_error for result in world.results] == [False, False, True, True, True]
    assert "Only 2 tool calls" in world.results[4].output


async def test_equal_or_missing_call_ids_are_told_apart(tmp_path: Path) -> None:
    calls = [call("list_directory", "same", path="."), call("list_directory", "same", path=".")]
    world = World(tmp_path, [Turn(calls=calls), "Done."])
    await world.run()
    assert len({event.call_id for event in world.of("tool_call")}) == 2
    assert len({result.call_id for result in world.results}) == 2
    check_messages(world.session.messages())


async def test_a_step_is_judged_again_after_an_effect(tmp_path: Path) -> None:
    """A link made by the first call must not carry the second past a rule."""
    (tmp_path / "secret").mkdir()

    async def link(_arguments: Any, _context: Any) -> ToolOutcome:
        (tmp_path / "plain").symlink_to("secret")
        return done()

    calls = [call("link"), call("write_file", path="plain/x", content="x")]
    world = World(
        tmp_path,
        [Turn(calls=calls), "Done."],
        mode="unsafe",
        rules=[RuleSet.parse("user", deny=("write(secret/**)",))],
        tools=[tool("link", link, SideEffect.WRITE)],
    )
    await world.run()
    assert [result.category for result in world.results] == [None, "blocked"]
    assert not (tmp_path / "secret" / "x").exists()


async def test_long_output_is_cut_in_the_middle_and_kept(tmp_path: Path) -> None:
    async def long(_arguments: Any, _context: Any) -> ToolOutcome:
        return done("a" * 5000 + "z" * 5000)

    world = World(
        tmp_path / "w",
        [Turn(calls=[call("long")]), "Done."],
        tools=[tool("long", long)],
        max_output_chars=300,
    )
    await world.run()
    result = world.results[0]
    assert result.truncated
    assert len(result.output) < 450
    assert (result.output[0], result.output[-1]) == ("a", "z")
    assert (tmp_path / "outputs" / result.output_ref).read_text() == "a" * 5000 + "z" * 5000


# --- cancelling ------------------------------------------------------------------------------------------


async def test_cancel_in_a_tool_gives_every_call_a_result_and_keeps_its_output(tmp_path: Path) -> None:
    async def hang(_arguments: Any, context: Any) -> ToolOutcome:
        context.progress("so far")
        await asyncio.Event().wait()
        return done()

    calls = [call("list_directory", path="."), call("hang"), call("write_file", path="a", content="x")]
    world = World(tmp_path, [Turn(calls=calls)], tools=[tool("hang", hang, SideEffect.WRITE)], mode="unsafe")
    run = world.start()
    await until(lambda: any(event.type == "tool_progress" for event in world.live))
    world.agent.cancel()
    result = await run
    assert (result.stop_reason, result.exit_code) == ("cancelled", 130)
    assert [item.category for item in world.results] == [None, "cancelled", "cancelled"]
    assert "so far" in world.results[1].output
    assert not (tmp_path / "a").exists()
    assert str(world.of("state")[-1].state) == "cancelled"
    check_messages(world.session.messages())
    assert no_tasks_left() == []


async def test_cancel_ends_the_processes_of_a_command(tmp_path: Path) -> None:
    from aar.config.schema import SandboxConfig
    from aar.safety.spawn import ProcessSpawner

    root = tmp_path / "w"
    root.mkdir()
    spawner = ProcessSpawner(root, SandboxConfig(mode="none"))
    command = call("bash", command="echo $$ > pid; echo begun; sleep 60 & sleep 60")
    world = World(root, [Turn(calls=[command])], mode="unsafe", spawner=spawner)
    try:
        run = world.start()
        await until(lambda: (root / "pid").exists() and (root / "pid").read_text().strip())
        pid = int((root / "pid").read_text())
        await until(lambda: any(event.type == "tool_progress" for event in world.live))
        began = time.monotonic()
        world.agent.cancel()
        assert (await run).stop_reason == "cancelled"
        assert time.monotonic() - began < 30
        assert world.results[0].category == "cancelled"
        assert "begun" in world.results[0].output
        with pytest.raises(ProcessLookupError):
            os.killpg(pid, 0)
    finally:
        spawner.close()


async def test_an_effect_that_was_complete_when_the_run_was_cancelled_is_told(tmp_path: Path) -> None:
    world = World(tmp_path, [Turn(calls=[call("last")])], mode="unsafe")

    async def last(_arguments: Any, _context: Any) -> ToolOutcome:
        world.agent.cancel()
        return done("it is written")

    world.registry.register(tool("last", last, SideEffect.WRITE))
    assert (await world.run()).stop_reason == "cancelled"
    assert [item.output for item in world.results] == ["it is written"]


async def test_a_tool_that_ignores_a_cancel_does_not_keep_the_run_alive(tmp_path: Path) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def stubborn(_arguments: Any, _context: Any) -> ToolOutcome:
        begun.set()
        try:
            await release.wait()
        except asyncio.CancelledError:
            return done("I had no time for this")
        return done()

    world = World(tmp_path, [Turn(calls=[call("stubborn")]), "Never."], tools=[tool("stubborn", stubborn)])
    run = world.start()
    await begun.wait()
    world.agent.cancel()
    assert (await run).stop_reason == "cancelled"
    assert world.results[0].output == "I had no time for this"
    assert len(world.provider.requests) == 1


async def test_cancelling_twice_is_cancelling_once(tmp_path: Path) -> None:
    begun, ending, cancelled_again = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow_to_end(_arguments: Any, _context: Any) -> ToolOutcome:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await cancelled_again.wait()
        return done()

    world = World(tmp_path, [Turn(calls=[call("slow")])], tools=[tool("slow", slow_to_end)])
    run = world.start()
    await begun.wait()
    world.agent.cancel()
    await ending.wait()
    world.agent.cancel()
    cancelled_again.set()
    assert (await run).stop_reason == "cancelled"
    assert [item.category for item in world.results] == ["cancelled"]
    assert no_tasks_left() == []


async def test_cancel_in_a_stream_keeps_the_text_that_was_shown(tmp_path: Path) -> None:
    world = World(tmp_path, [Turn("I was about to", reasoning="think", hang=True)])
    run = world.start()
    await world.provider.speaking.wait()
    world.agent.cancel()
    assert (await run).stop_reason == "cancelled"
    (message,) = world.of("assistant_message")
    assert (message.content, message.partial) == ("I was about to", True)
    assert [event.content for event in world.of("reasoning")] == ["think"]
    assert world.finished_chunks == 1
    assert world.provider.closed == world.provider.streams == 1
    assert no_tasks_left() == []


async def test_cancel_before_anything_happened_keeps_the_prompt(tmp_path: Path) -> None:
    world = World(tmp_path, ["Never."])
    run = world.start("Remember me.")
    await asyncio.sleep(0)
    world.agent.cancel()
    assert (await run).stop_reason == "cancelled"
    assert [event.content[0].text for event in world.of("user_message")] == ["Remember me."]
    assert (await world.run()).stop_reason == "end_turn"


async def test_cancelling_the_callers_task_settles_the_session_and_goes_on_to_the_caller(
    tmp_path: Path,
) -> None:
    async def hang(_arguments: Any, _context: Any) -> ToolOutcome:
        await asyncio.Event().wait()
        return done()

    world = World(tmp_path, [Turn("Wait.", [call("hang")])], tools=[tool("hang", hang)])
    run = world.start()
    await until(lambda: world.of("tool_call"))
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert [item.category for item in world.results] == ["cancelled"]
    assert str(world.of("state")[-1].state) == "cancelled"
    assert not world.agent.running
    assert no_tasks_left() == []


async def test_a_timeout_around_a_run_is_a_timeout_to_its_caller(tmp_path: Path) -> None:
    world = World(tmp_path, [Turn("Wait", hang=True)])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await world.agent.run("x", world.session)
    assert world.of("state")[-1].stop_reason == StopReason.CANCELLED


async def test_a_second_run_at_the_same_time_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, [Turn(hang=True)])
    run = world.start()
    await world.provider.speaking.wait()
    with pytest.raises(RuntimeError, match="queue"):
        await world.agent.run("again", world.session)
    world.agent.cancel()
    await run


async def test_the_session_is_durable_before_an_effect(tmp_path: Path) -> None:
    order: list[str] = []

    async def sync() -> None:
        order.append("sync")

    async def act(_arguments: Any, _context: Any) -> ToolOutcome:
        order.append("act")
        return done()

    tools = [tool("act", act, SideEffect.WRITE), tool("look", act)]
    calls = [call("look"), call("act")]
    await World(tmp_path, [Turn(calls=calls), "Done."], tools=tools, mode="unsafe", sync=sync).run()
    assert order == ["act", "sync", "act"]


async def test_fsync_does_not_block_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from aar.memory.session_store import SessionStore

    world = World(
        tmp_path / "w",
        [Turn(calls=[call("list_directory", path=".")]), "Done."],
        store=SessionStore(tmp_path / "s"),
    )
    ticks = 0
    went_on: list[bool] = []

    def fsync(_fd: int) -> None:
        before, end = ticks, time.monotonic() + 20
        while ticks < before + 2 and time.monotonic() < end:
            time.sleep(0.005)
        went_on.append(ticks >= before + 2)

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1

    monkeypatch.setattr("aar.memory.session_file.os.fsync", fsync)
    ticking = asyncio.create_task(tick())
    await world.run()
    ticking.cancel()
    assert went_on
    assert all(went_on)
    world.session.close()
