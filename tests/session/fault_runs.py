"""One random fault: a real process writes a session, dies, and what is left of it is judged."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from aar.core.session import Session
from aar.memory.session_store import SessionStore
from aar.protocol.events import AssistantMessage, Event, ProviderMeta, StreamChunk, ToolCall, ToolResult
from aar.protocol.state import AgentState
from aar.protocol.usage import Usage
from tests.session.sequences import check
from tests.session.support import in_child, new_session, read_all, texts, user

KINDS = ("kill", "power", "blank", "full")
"""``kill``: the process dies. ``power``: what was not synced is lost from some byte on. ``blank``: it is zeros
instead, as file systems leave it. ``full``: the disk takes no more at some byte, and the process dies later."""


@dataclass
class Outcome:
    """What became of one session.

    Attributes:
        kind: Of `KINDS`.
        told: Events that had been shown (of a power cut: that had been synced).
        lost: Of those, the ones that are not there any more.
        problem: What else is wrong.
    """

    kind: str
    told: int = 0
    lost: list[int] = field(default_factory=list[int])
    problem: str = ""

    @property
    def good(self) -> bool:
        """Whether nothing was lost and the session goes on."""
        return not self.lost and not self.problem


def _say(out: int, **fact: object) -> None:
    os.write(out, json.dumps(fact).encode() + b"\n")


async def _write_for_ever(root: Path, out: int, sizes: int, limit: int | None) -> None:
    store, session = new_session(root)
    path = store.path(session.session_id)
    _say(out, id=session.session_id)
    session.on_event(lambda event: _say(out, seq=event.seq) if event.seq and not session.degraded else None)
    if limit is not None:
        sys.dont_write_bytecode = True  # half a compiled module would be kept for the next process
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    run = session.scope("R")
    run.append(user("go on for ever"))
    session.set_state(AgentState.RUNNING, emit=run)
    for step in range(1, 1_000_000):
        run.step = step
        for word in ("some ", "words ", "日本 "):
            run.publish(StreamChunk(text=word))
        calls = [ToolCall(call_id=f"c{step}-{n}", tool_name="t") for n in range(step % 3)]
        text = AssistantMessage(content="wörd " * (step * 7 % sizes))
        run.append(text, *calls, ProviderMeta(provider="p", model="m", usage=Usage(input=1)))
        await session.sync()
        _say(out, synced=session.last_seq, bytes=path.stat().st_size)
        for call in calls:
            run.append(ToolResult(call_id=call.call_id, tool_name="t", output="ok\n" * (step % 50)))


def fault(root: Path, chance: random.Random) -> Outcome:
    """Let one process write below ``root``, have it die, damage the file as ``chance`` has it, and judge."""
    outcome = Outcome(chance.choice(KINDS))
    limit = chance.randint(2_000, 60_000) if outcome.kind == "full" else None
    sizes = chance.choice((5, 300, 3000))
    pid, out = in_child(lambda end: asyncio.run(_write_for_ever(root, end, sizes, limit)))
    facts = _told_until(out, time.monotonic() + chance.uniform(0, 0.08))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    facts += read_all(out)
    told = [json.loads(line) for line in facts.split(b"\n")[:-1]]
    store = SessionStore(root / "sessions")
    name = next(fact["id"] for fact in told if "id" in fact)
    if outcome.kind in ("power", "blank"):
        shown = _lose_power(store.path(name), told, outcome.kind, chance)
    else:
        shown = {fact["seq"] for fact in told if "seq" in fact}
    outcome.told = len(shown)
    try:
        _judge(outcome, store, name, shown)
    except Exception as error:
        outcome.problem = f"{type(error).__name__}: {error}"
    return outcome


def _told_until(out: int, deadline: float) -> bytes:
    facts = bytearray()
    while not facts.count(b"\n"):
        facts += os.read(out, 1)
    os.set_blocking(out, False)
    while time.monotonic() < deadline:
        with contextlib.suppress(BlockingIOError):
            facts += os.read(out, 1 << 20)
    os.set_blocking(out, True)
    return bytes(facts)


def _lose_power(path: Path, told: Iterable[dict[str, int]], kind: str, chance: random.Random) -> set[int]:
    """Damage what was not synced; return the events that had been."""
    synced = [fact for fact in told if "synced" in fact]
    last = synced[-1] if synced else {"synced": 0, "bytes": 0}
    size = path.stat().st_size
    at = chance.randint(last["bytes"], size)
    with path.open("r+b") as file:
        file.truncate(at)
        if kind == "blank":
            file.truncate(size)
    return set(range(1, last["synced"] + 1))


def _judge(outcome: Outcome, store: SessionStore, name: str, shown: set[int]) -> None:
    session = Session.resume(store, name)
    try:
        events = list(session.events())
        seqs = [event.seq for event in events]
        outcome.lost = sorted(shown - set(seqs))
        assert seqs == sorted(set(filter(None, seqs))), "seqs are out of order"
        assert not session.totals.agents_with_open_calls(), "a call has no result"
        _check_pairs(events)
        session.append(user("and on"))
        check(session.messages())
    finally:
        session.close()
    again = Session.resume(store, name)
    assert texts(list(again.events()))[-1] == "and on"
    again.close()
    assert store.list()[0].id == name


def _check_pairs(events: list[Event]) -> None:
    calls = [event.call_id for event in events if isinstance(event, ToolCall)]
    results = [event.call_id for event in events if isinstance(event, ToolResult)]
    assert sorted(calls) == sorted(results), "calls and results do not pair"
