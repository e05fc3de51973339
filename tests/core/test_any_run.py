"""Whatever a model does and whenever a run is cancelled, the session can be sent, and gone on with."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aar.core.session import Session
from aar.memory.memory_store import MemoryStore
from aar.protocol.errors import ErrorKind, ProviderError
from aar.protocol.messages import ToolUseBlock
from aar.protocol.tool import SideEffect, ToolOutcome
from tests.support.fakes import Turn, World, check_messages, done, no_tasks_left, tool

CALLS = st.builds(
    ToolUseBlock,
    call_id=st.sampled_from(["", "same", "a", "b"]),
    name=st.sampled_from(["look", "act", "fails", "slow", "ask", "nope", "write_file"]),
    arguments=st.sampled_from([{}, {"key": "x"}, {"path": "f", "content": "x"}, {"key": 7}]),
    raw_arguments=st.sampled_from([None, None, None, "{broken"]),
)
FAILURES = st.sampled_from([ErrorKind.NETWORK, ErrorKind.AUTH, ErrorKind.RATE_LIMIT])
TURNS = st.builds(
    Turn,
    text=st.sampled_from(["", "words", "two words", " "]),
    calls=st.lists(CALLS, max_size=4),
    reasoning=st.sampled_from(["", "", "hm hm"]),
    stop=st.sampled_from([None, None, None, "max_tokens", "refusal"]),
    hang=st.sampled_from([False, False, False, False, True]),
    fail=st.one_of(st.none(), st.none(), st.none(), FAILURES.map(lambda kind: ProviderError(kind, "broken"))),
)
ENDS = st.one_of(
    st.none(), st.tuples(st.sampled_from(["cancel", "stop", "steer", "outer"]), st.integers(0, 40))
)


class Moody:
    """Answers some questions, and never the others."""

    def __init__(self, answers: list[str]) -> None:
        self._answers = answers

    async def decide(self, request: Any) -> Any:
        from aar.protocol.events import Approval

        answer = self._answers.pop() if self._answers else "reject"
        if answer == "never":
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        return Approval(
            call_id=request.call_id, decision=answer, feedback="no" if answer == "reject" else None
        )


async def _look(_arguments: Any, context: Any) -> ToolOutcome:
    context.progress("…")
    await asyncio.sleep(0)
    return done()


async def _fails(_arguments: Any, _context: Any) -> ToolOutcome:
    raise ValueError("broken")


async def _slow(_arguments: Any, _context: Any) -> ToolOutcome:
    await asyncio.sleep(30)
    return done()


TOOLS = [
    tool("look", _look),
    tool("act", _look, SideEffect.WRITE),
    tool("fails", _fails, SideEffect.WRITE),
    tool("slow", _slow, timeout_s=0.002),
    tool("ask", _look, SideEffect.EXTERNAL),
]


async def _interfere(world: World, end: tuple[str, int] | None, run: asyncio.Task[Any]) -> None:
    what, when = end or ("cancel", 200)
    for _ in range(when):
        if run.done():
            return
        await asyncio.sleep(0)
    if what == "outer":
        run.cancel()
    elif what == "steer":
        world.agent.steer("Look here.")
    else:
        getattr(world.agent, what)()
    for _ in range(40):
        if run.done():
            return
        await asyncio.sleep(0.0005)
    world.agent.cancel()


async def _scenario(root: Path, runs: list[Any], answers: list[str], stream: bool) -> None:
    store = MemoryStore()
    world = World(root, ["."], store=store, tools=TOOLS, person=Moody(answers), stream=stream, retries=2)
    for turns, end in runs:
        world.provider.turns = [*turns, Turn("Done.")]
        world.provider.requests.clear()
        run = asyncio.create_task(world.agent.run("Go on.", world.session))
        await _interfere(world, end, run)
        await asyncio.wait({run}, timeout=60)
        assert run.done()
        assert run.cancelled() or run.exception() is None
        _check(world)
    before = world.session.messages()
    world.session.close()
    again = Session.resume(store, world.session.session_id)
    assert again.messages() == before
    assert again.totals.open_calls() == []


def _check(world: World) -> None:
    calls = [event.call_id for event in world.of("tool_call")]
    results = [event.call_id for event in world.results]
    assert sorted(calls) == sorted(results)
    places = {}
    for event in world.events:
        if event.type == "tool_call":
            places[(event.run_id, event.step, event.call_id)] = 0
        elif event.type == "tool_result":
            places[(event.run_id, event.step, event.call_id)] += 1
    assert set(places.values()) <= {1}
    requests = [event.request_id for event in world.of("approval_request")]
    answered = [event.request_id for event in world.of("approval") if event.request_id]
    assert sorted(requests) == sorted(answered)
    check_messages(world.session.messages())
    assert str(world.of("state")[-1].state) not in {"running", "waiting_for_tool", "waiting_for_input"}
    assert [event.seq for event in world.events] == list(range(1, len(world.events) + 1))
    assert world.provider.closed == world.provider.streams
    assert [task for task in no_tasks_left() if not task.done()] == []


@settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    runs=st.lists(st.tuples(st.lists(TURNS, min_size=1, max_size=5), ENDS), min_size=1, max_size=3),
    answers=st.lists(st.sampled_from(["allow", "reject", "cancelled", "never"]), max_size=4),
    stream=st.booleans(),
)
def test_any_run_leaves_a_session_that_can_be_sent_and_resumed(
    runs: list[Any], answers: list[str], stream: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_scenario(Path(folder).resolve(), runs, answers, stream))
