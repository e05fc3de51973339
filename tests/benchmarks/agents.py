"""Ten agents at once beside one: wall time, memory, nesting, totals. ``python -m tests.benchmarks.agents``."""

from __future__ import annotations

import asyncio
import os
import resource
import tempfile
import time
from pathlib import Path

from tests.support.fakes import Turn, call
from tests.support.minds import Ask, place

STEPS = 5
DELAY_S = 0.1
"""Seconds that the model takes for each answer."""


async def measure(folder: Path, agents: int) -> None:
    """Let one agent start ``agents`` others, each with five steps, and print what that took."""

    def think(ask: Ask) -> Turn | str:
        if "You work for another agent" in ask.system:
            done = len(ask.results)
            read = Turn(calls=[call("read_file", path="a.txt", start_line=done + 1)])
            return read if done < STEPS - 1 else f"Report of {ask.prompt}"
        jobs = [call("task", prompt=f"job {number}", agent="explore") for number in range(agents)]
        return Turn(calls=jobs) if ask.first else "Done."

    async with place(folder, think, files={"a.txt": "line\n" * 50}, delay_s=DELAY_S) as here:
        began, before = time.perf_counter(), len(asyncio.all_tasks())
        await here.run()
        took = time.perf_counter() - began
        ends = [event for event in here.of("subagent") if event.action == "end"]
        outputs = [event.output for event in here.of("tool_result", agent="main")]
        right = all(f"Report of job {number}" in outputs[number] for number in range(agents))
        requests = len(here.mind.asked)
        assert here.session.totals.all.usage.input == 10 * requests
        left = len(asyncio.all_tasks()) - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{agents:2} agents: {took:.2f} s, {requests} requests, at most {here.mind.most} at once, {len(ends)} reports"
        f" ({'each in its place' if right else 'MIXED UP'}), {left} tasks left, peak {peak:.0f} MiB"
    )


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["AAR_HOME"] = os.environ["HOME"] = folder
        for agents in (1, 10):
            place_of = Path(folder) / str(agents)
            place_of.mkdir()
            asyncio.run(measure(place_of, agents))


if __name__ == "__main__":
    main()
