"""Measure aar's own time per step: python -m tests.benchmarks.steps [steps] [--profile].

A scripted model reads a file and runs ``echo`` in turns, through Agent, executor, policy and a store on disk.
Own time is the whole step less the time in the spawner (start of the process and its work). CPU time is this
process's alone, threads included: the figure to trust on a busy machine.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from aar.config.schema import GuardrailsConfig, LimitsConfig, ModelConfig
from aar.core.agent import Agent, AgentConfig
from aar.core.prompt import build_prompt
from aar.core.provider_runner import ActiveModel, ProviderRunner
from aar.core.session import Session
from aar.core.view import SessionView
from aar.memory.session_store import SessionStore
from aar.protocol.events import Event
from aar.protocol.ports import Process, SpawnRequest, SpawnResult, ToolContext
from aar.providers.scripted import ScriptedProvider
from aar.safety.files import WorkspaceFiles
from aar.safety.policy import SafetyPolicy
from aar.safety.spawn import ProcessSpawner
from aar.tools.builtin.catalogue import builtin_tools
from aar.tools.executor import ToolExecutor
from aar.tools.output_store import OutputStore
from aar.tools.registry import ToolRegistry


class TimedSpawner:
    """The real spawner, and the seconds spent in it."""

    def __init__(self, inner: ProcessSpawner) -> None:
        self._inner = inner
        self.seconds = 0.0
        self.wall = inner.wall

    async def start(self, request: SpawnRequest, on_output: Callable[[bytes], None] | None = None) -> Process:
        return await self._inner.start(request, on_output)

    async def run(
        self, request: SpawnRequest, on_output: Callable[[bytes], None] | None = None
    ) -> SpawnResult:
        began = time.perf_counter()
        try:
            return await self._inner.run(request, on_output)
        finally:
            self.seconds += time.perf_counter() - began


class Clock:
    """Takes the time and the memory at the end of each step."""

    def __init__(self, spawner: TimedSpawner) -> None:
        self._spawner = spawner
        self._last = (time.perf_counter(), 0.0, time.process_time())
        self.own: list[float] = []
        self.cpu: list[float] = []
        self.disk = 0.0
        self.memory: dict[int, float] = {}

    def __call__(self, event: Event) -> None:
        if event.type != "provider_meta":
            return
        at, spawned, cpu = time.perf_counter(), self._spawner.seconds, time.process_time()
        self.own.append((at - self._last[0] - (spawned - self._last[1])) * 1000)
        self.cpu.append((cpu - self._last[2]) * 1000)
        self._last = (at, spawned, cpu)
        if len(self.own) in {10, 100, 1000}:
            gc.collect()
            self.memory[len(self.own)] = rss_mib()
            self._last = (time.perf_counter(), spawned, time.process_time())


def rss_mib() -> float:
    """Resident memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1048576


def scenario(path: Path, steps: int) -> ScriptedProvider:
    """Write a scenario of ``steps`` answers, the last without a call."""
    answers: list[dict[str, Any]] = []
    for number in range(steps - 1):
        if number % 2 == 0:
            made = {"name": "read_file", "arguments": {"path": f"file{number % 20}.txt"}}
        else:
            made = {"name": "bash", "arguments": {"command": f"echo {number}"}}
        answers.append({"text": f"Step {number}: I look at the next thing.", "tool_calls": [made]})
    path.write_text(json.dumps({"steps": [*answers, {"text": "Done."}]}))
    return ScriptedProvider(path)


async def measure(folder: Path, steps: int) -> tuple[Clock, float, int]:
    """Run; return the times, the seconds in processes, and the size of the session's file."""
    root = folder / "project"
    root.mkdir()
    for number in range(20):
        (root / f"file{number}.txt").write_text("a line of the file that is read\n" * 30)
    provider = scenario(folder / "steps.json", steps)
    store = SessionStore(folder / "sessions")
    session = Session.create(store, cwd=root, model="scripted/x")
    real = ProcessSpawner(root)
    spawner = TimedSpawner(real)
    files, outputs = WorkspaceFiles(root), OutputStore(folder / "outputs")
    mode = "edit" if real.wall == "none" else "auto"
    registry = ToolRegistry(builtin_tools())
    tools = tuple(registry.specs())
    active = ActiveModel("scripted/x", provider, "x", provider.capabilities("x"))

    async def nobody(_question: str, _options: Any) -> None:
        return None

    clock = Clock(spawner)

    async def sync() -> None:
        began = time.perf_counter()
        await session.sync()
        clock.disk += time.perf_counter() - began

    executor = ToolExecutor(
        registry,
        SafetyPolicy(mode, root, wall=real.wall),
        None,
        lambda call, _emit: ToolContext(
            call_id=call.call_id,
            workspace=root,
            files=files,
            spawner=spawner,
            outputs=outputs,
            progress=lambda _text: None,
            ask=nobody,
            plan=(),
            set_plan=lambda _items: None,
        ),
        sync=sync,
    )
    prompt = build_prompt(workspace=root, dialect="native", tools=tools, mode=mode)
    agent = Agent(
        AgentConfig(LimitsConfig(steps=steps + 10), GuardrailsConfig()),
        ProviderRunner(active, ModelConfig()),
        executor,
        lambda opened: SessionView(
            opened, active, prompt, tools, lambda name: (found := registry.get(name)) and found.name
        ),
        files,
    )
    session.on_event(clock)
    result = await agent.run("Do many steps.", session)
    assert result.stop_reason == "end_turn", result
    assert result.steps == steps
    size = store.path(session.session_id).stat().st_size
    await session.aclose()
    real.close()
    return clock, spawner.seconds, size


def _row(values: list[float]) -> str:
    ordered = sorted(values)
    return f"{median(ordered):8.2f} {ordered[int(len(ordered) * 0.95)]:9.2f} {ordered[-1]:9.2f}"


def main(steps: int) -> None:
    """Print a table."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        clock, spawned, size = asyncio.run(measure(Path(folder).resolve(), steps))
        whole = time.perf_counter() - began
    hundred = min(100, steps // 2)
    print(
        f"{steps} steps in {whole:.2f} s: {spawned:.2f} s in {steps // 2} processes, "
        f"{clock.disk:.2f} s waiting for the disk before effects"
    )
    print(f"{'':<20} {'own time, ms':^28}    {'CPU time, ms':^28}")
    print(f"{'':<20} {'median':>8} {'p95':>9} {'max':>9}    {'median':>8} {'p95':>9} {'max':>9}")
    for name, part in (
        ("all", slice(1, None)),
        (f"first {hundred}", slice(1, hundred + 1)),
        (f"last {hundred}", slice(-hundred, None)),
        ("read_file", slice(1, None, 2)),
        ("bash", slice(2, None, 2)),
    ):
        print(f"{name:<20} {_row(clock.own[part])}    {_row(clock.cpu[part])}")
    for step, memory in clock.memory.items():
        print(f"memory after step {step:<5} {memory:6.1f} MiB")
    print(f"session file {size / 1e6:.2f} MB")


if __name__ == "__main__":
    count = next((int(word) for word in sys.argv[1:] if word.isdigit()), 1000)
    if "--profile" in sys.argv:
        import cProfile
        import pstats

        profile = cProfile.Profile()
        profile.runcall(main, count)
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)
    else:
        main(count)
