"""Measure the session store: ``python -m tests.benchmarks.session_store [SIZE…]``, or ``detail [SIZE]``.

Each cell of the table is the time on the clock and, in parentheses, of the processor, of one process that does
nothing else. On a machine that does other things the second is the one to trust.
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from aar.core.session import Session
from aar.memory.session_store import SessionStore
from aar.protocol.events import (
    AssistantMessage,
    ProviderMeta,
    StreamChunk,
    ToolCall,
    ToolResult,
    UserMessage,
)
from aar.protocol.messages import TextBlock
from aar.protocol.usage import Usage

_OUTPUT = "a line of output of a command that ran\n" * 20


def _fill(session: Session, events: int) -> tuple[float, int]:
    """Append steps of four events; return seconds in append and characters of text."""
    spent, characters = 0.0, 0
    run = session.scope("01K" + "R" * 23)
    run.append(UserMessage(content=(TextBlock(text="Do the work"),)))
    for step in range(1, events // 4 + 1):
        run.step = step
        answer = AssistantMessage(content=f"Step {step}: I look at the next file and change what is wrong.")
        call = ToolCall(
            call_id=f"call_{step}", tool_name="bash", arguments={"command": f"sed -n {step}p a.py"}
        )
        meta = ProviderMeta(provider="p", model="m", usage=Usage(input=900, output=40), cost_usd=0.001)
        result = ToolResult(call_id=f"call_{step}", tool_name="bash", output=_OUTPUT)
        characters += len(answer.content) + len(str(call.arguments)) + len(result.output)
        began = time.perf_counter()
        run.append(answer, call, meta)
        run.append(result)
        spent += time.perf_counter() - began
    return spent, characters


def _timed(label: str, work: Callable[[], object]) -> None:
    began, used = time.perf_counter(), time.process_time()
    work()
    wall, cpu = (time.perf_counter() - began) * 1000, (time.process_time() - used) * 1000
    print(f"{label:<50} {wall:9.1f} ms ({cpu:.1f} ms of CPU)")


def _memory_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def _stream(session: Session, tokens: int) -> float:
    run = session.scope("R")
    run.step = 1
    chunk = StreamChunk(text="token ")
    began = time.perf_counter()
    for _ in range(tokens):
        run.publish(chunk)
    return (time.perf_counter() - began) / tokens


async def _sync_cost(session: Session, rounds: int) -> float:
    spent = 0.0
    for _ in range(rounds):
        session.append(UserMessage(content=(TextBlock(text="x"),)))
        began = time.perf_counter()
        await session.sync()
        spent += time.perf_counter() - began
    return spent / rounds


def detail(events: int) -> None:
    """Fill a session with ``events`` events and time what is done with it."""
    with tempfile.TemporaryDirectory() as folder:
        store = SessionStore(Path(folder))
        session = Session.create(store, cwd=Path(folder), model="p/m")
        spent, characters = _fill(session, events)
        path = store.path(session.session_id)
        size = path.stat().st_size
        print(f"{'append, per event (batches of 3 and 1)':<50} {spent / events * 1e6:9.1f} µs")
        print(f"{'file size':<50} {size / 1e6:9.1f} MB, {size / events:.0f} bytes an event")
        print(f"{'file size against text':<50} {size / characters:9.2f} times")
        _timed("messages(), all of them built for the first time", session.messages)
        began = time.perf_counter()
        for _ in range(100):
            session.messages()
        print(f"{'messages(), again':<50} {(time.perf_counter() - began) * 1e4:9.1f} µs")
        print(f"{'publish a token, no subscriber':<50} {asyncio.run(_stream(session, 20_000)) * 1e6:9.1f} µs")
        print(f"{'append + sync to disk':<50} {asyncio.run(_sync_cost(session, 20)) * 1e3:9.2f} ms")
        session.close()


_WORK: dict[str, Callable[[SessionStore, str], object]] = {
    "tail": lambda store, name: store.tail(name, 100),
    "resume": lambda store, name: Session.resume(store, name),
    "messages": lambda store, name: Session.resume(store, name).messages(),
    "whole": lambda store, name: _whole(store, name),
    "append": lambda store, name: _append(store, name),
    "fork": lambda store, name: Session.fork(store, name),
    "list": lambda store, name: store.list(),
    "relist": lambda store, name: store.list(),
    "search": lambda store, name: store.search("look next file"),
    "research": lambda store, name: store.search("look next file"),
}
"""In this order: the second list and the second search find what the first have left in the index."""


def _whole(store: SessionStore, name: str) -> None:
    """Resume with nothing but the file."""
    (store.path(name).with_suffix(".d") / "folded").unlink(missing_ok=True)
    Session.resume(store, name).messages()


def _append(store: SessionStore, name: str) -> float:
    session = Session.resume(store, name)
    began = time.process_time()
    for _ in range(1000):
        session.append(UserMessage(content=(TextBlock(text="and one more"),)))
    spent = time.process_time() - began
    session.close()
    return spent


def one(work: str, root: str, name: str) -> None:
    """Do one thing, in this process alone; print seconds on the clock and of the processor, and peak MiB."""
    store = SessionStore(Path(root))
    clock, began = time.perf_counter(), time.process_time()
    result = _WORK[work](store, name)
    spent = result if work == "append" else time.process_time() - began
    print(time.perf_counter() - clock, spent, _memory_mib())


def table(sizes: list[int]) -> None:
    """Print a table: what each thing costs at each size."""
    names = "tail | resume | and messages | memory | from the file alone | append | fork"
    print(f"| events | {names} | first list | list | first search | search |")
    print("|---" * 12 + "|")
    for events in sizes:
        with tempfile.TemporaryDirectory() as folder:
            store = SessionStore(Path(folder))
            session = Session.create(store, cwd=Path(folder), model="p/m")
            _fill(session, events)
            session.close()
            found = {work: _alone(work, folder, session.session_id) for work in _WORK}
            cells = [f"{found[work][0] * 1000:.1f} ms ({found[work][1] * 1000:.1f})" for work in _WORK]
            cells[4] = f"{found['append'][1] * 1000:.0f} µs"
            cells.insert(3, f"{found['messages'][2]:.0f} MiB")
            print(f"| {events:,} | {' | '.join(cells)} |", flush=True)


def _alone(work: str, root: str, name: str) -> tuple[float, float, float]:
    """Return seconds on the clock and of the processor, and peak MiB."""
    argv = [sys.executable, "-m", "tests.benchmarks.session_store", "one", work, root, name]
    clock, seconds, memory = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    return float(clock), float(seconds), float(memory)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["one", work, root, name]:
            one(work, root, name)
        case ["detail", *rest]:
            detail(int(rest[0]) if rest else 50_000)
        case rest:
            table([int(size) for size in rest] or [100, 1_000, 10_000, 50_000])
