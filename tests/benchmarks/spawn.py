"""Cost of starting ``true``: bare ways, and the spawn server without and with each wall that works here.

    python -m tests.benchmarks.spawn [RUNS] [FOLDER]

The ways take turns, so that load on the machine meets them alike. The workspace is a small git repository, made
in FOLDER. Commands have a time limit, as those of the shell tool do; "lasting" ones have none.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from aar.config.schema import SandboxConfig
from aar.protocol.errors import SandboxError
from aar.protocol.ports import SpawnRequest
from aar.safety.spawn import ProcessSpawner

WALLS = ("none", "landlock", "namespaces", "bubblewrap")


def bare() -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(pid, 0)


def plain() -> None:
    subprocess.run(["/bin/true"], check=True, capture_output=True)


async def main(runs: int, where: str | None) -> None:
    with tempfile.TemporaryDirectory(dir=where) as folder:
        workspace = Path(folder)
        subprocess.run(["git", "init", "-q", folder], check=True)
        (workspace / "main.py").write_text("print(1)\n")
        spawners: dict[str, ProcessSpawner] = {}
        for wall in WALLS:
            spawner = ProcessSpawner(workspace, SandboxConfig(mode=wall))  # type: ignore[arg-type]
            try:
                spawner.status()
            except SandboxError as error:
                print(f"{wall}: {error}")
                spawner.close()
            else:
                spawners[f"spawn(), {wall}"] = spawner
        times: dict[str, list[float]] = {
            "posix_spawn": [],
            "subprocess.run": [],
            **{name: [] for name in spawners},
        }
        if walled := spawners.get("spawn(), bubblewrap"):
            times["bubblewrap, lasting"] = []
        request = SpawnRequest(("/bin/true",), workspace, timeout_s=120)
        lasting = SpawnRequest(("/bin/true",), workspace)
        for spawner in spawners.values():
            await spawner.run(request)
        for _ in range(runs):
            for name, call in (("posix_spawn", bare), ("subprocess.run", plain)):
                began = time.perf_counter()
                call()
                times[name].append(time.perf_counter() - began)
            for name, spawner in spawners.items():
                began = time.perf_counter()
                await spawner.run(request)
                times[name].append(time.perf_counter() - began)
            if walled:
                began = time.perf_counter()
                await walled.run(lasting)
                times["bubblewrap, lasting"].append(time.perf_counter() - began)
        print(f"{runs} runs each in {folder}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
        for name, values in times.items():
            low, middle = min(values) * 1000, statistics.median(values) * 1000
            print(f"{name:22} median {middle:6.2f} ms   least {low:6.2f} ms")
        for spawner in spawners.values():
            spawner.close()


if __name__ == "__main__":
    runs, where = [*sys.argv[1:], *("200", "")[len(sys.argv) - 1 :]][:2]
    asyncio.run(main(int(runs), where or None))
