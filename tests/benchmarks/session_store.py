"""Measure the session store: python -m tests.benchmarks.session_store [events]."""

from __future__ import annotations

import asyncio
import resource
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


def main(events: int) -> None:
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
        before = _memory_mib()
        _timed("tail of 100 events", lambda: store.tail(session.session_id, 100))
        _timed("list (scan of the whole file)", lambda: store.list())
        _timed("resume", lambda: Session.resume(store, session.session_id).messages())
        print(f"{'peak memory, before and after resume':<50} {before:9.0f} MiB, {_memory_mib():.0f} MiB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50_000)
