"""A `Spawner` of real subprocesses without a wall, for tests of tools that start helpers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from aar.protocol.ports import Process, SpawnRequest, SpawnResult


class PlainSpawner:
    """Runs processes to their end and counts them."""

    wall = "none"

    def __init__(self) -> None:
        self.requests: list[SpawnRequest] = []

    async def start(self, request: SpawnRequest, on_output: Callable[[bytes], None] | None = None) -> Process:
        raise NotImplementedError("these tests only run processes to their end")

    async def run(
        self, request: SpawnRequest, on_output: Callable[[bytes], None] | None = None
    ) -> SpawnResult:
        self.requests.append(request)
        started = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *request.argv,
            cwd=request.cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT if request.merge_stderr else asyncio.subprocess.PIPE,
        )
        output, stderr = await process.communicate()
        if on_output is not None and output:
            on_output(output)
        return SpawnResult(
            output=output,
            stderr=stderr or b"",
            exit_code=process.returncode,
            total_bytes=len(output),
            truncated=False,
            timed_out=False,
            duration_s=time.monotonic() - started,
            wall="none",
        )
