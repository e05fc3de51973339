"""Random kills, power cuts and full disks over real processes."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from aar.core.session import Session
from aar.memory.session_store import SessionStore
from aar.protocol.events import AssistantMessage, StreamChunk
from tests.session.fault_runs import KINDS, fault
from tests.session.support import in_child, new_session, read_all, user


def _campaign(folder: Path, count: int, seed: int) -> tuple[Counter[str], int]:
    chance = random.Random(seed)
    kinds: Counter[str] = Counter()
    told = 0
    for number in range(count):
        outcome = fault(folder / str(number), chance)
        assert outcome.good, (seed, number, outcome)
        kinds[outcome.kind] += 1
        told += outcome.told
    return kinds, told


def test_a_sample_of_faults_loses_nothing(tmp_path: Path) -> None:
    kinds, told = _campaign(tmp_path, 24, 11)
    assert set(kinds) == set(KINDS)
    # How many depends on the load of the machine.
    assert told >= 24


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_500_faults_lose_nothing(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    kinds, told = _campaign(tmp_path, 500, seed)
    print(f"seed {seed}: {dict(kinds)}, {told} events had been shown or synced")
    assert sum(kinds.values()) == 500


def test_of_a_stream_all_but_the_last_second_survives_a_kill(tmp_path: Path) -> None:
    async def stream(out: int) -> None:
        _, session = new_session(tmp_path)
        os.write(out, json.dumps(session.session_id).encode() + b"\n")
        run = session.scope("R")
        run.append(user("go"))
        run.step = 1
        for number in range(10_000):
            run.publish(StreamChunk(text=f"{number} "))
            os.write(out, json.dumps(number).encode() + b"\n")
            await asyncio.sleep(0.005)

    pid, out = in_child(lambda end: asyncio.run(stream(end)))
    begin = b""
    while begin.count(b"\n") < 300:
        begin += os.read(out, 1000)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    first, *shown = [json.loads(line) for line in (begin + read_all(out)).split(b"\n")[:-1]]
    session = Session.resume(SessionStore(tmp_path / "sessions"), first)
    (answer,) = [event for event in session.events() if isinstance(event, AssistantMessage)]
    kept = {int(word) for word in answer.content.split()}
    old = set(shown[:-200])  # each took 5 ms at least, so that the others are from the last second
    assert answer.partial
    assert len(old) > 20
    assert old <= kept
    session.close()
