"""Cost of starting ``true``: bare fork and exec, the spawn server without and with the wall.

    python tests/benchmarks/spawn.py [RUNS]

The ways take turns, so that load on the machine meets them alike.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from aar.config.schema import SandboxConfig
from aar.protocol.ports import SpawnRequest
from aar.safety.spawn import ProcessSpawner


def bare() -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(pid, 0)


async def main(runs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder)
        spawners = {
            "spawn server, no wall": ProcessSpawner(workspace, SandboxConfig(mode="none")),
            "spawn server, landlock": ProcessSpawner(workspace, SandboxConfig(mode="auto")),
        }
        times: dict[str, list[float]] = {"bare posix_spawn": [], **{name: [] for name in spawners}}
        request = SpawnRequest(("/bin/true",), workspace)
        for spawner in spawners.values():
            await spawner.run(request)
        for _ in range(runs):
            began = time.perf_counter()
            bare()
            times["bare posix_spawn"].append(time.perf_counter() - began)
            for name, spawner in spawners.items():
                began = time.perf_counter()
                await spawner.run(request)
                times[name].append(time.perf_counter() - began)
        for name, values in times.items():
            low, middle = min(values) * 1000, statistics.median(values) * 1000
            print(f"{name:24} median {middle:6.2f} ms   least {low:6.2f} ms")
        for spawner in spawners.values():
            spawner.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
