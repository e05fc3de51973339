"""Measure checkpoints: python -m tests.benchmarks.checkpoints [files …] (default 100 5000 50000)."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import tempfile
import time
from pathlib import Path

from aar.memory.checkpoints import CheckpointStore
from aar.safety.spawn import ProcessSpawner


def _fill(root: Path, files: int) -> None:
    for number in range(files):
        folder = root / f"d{number % 50}" / f"s{number // 50 % 20}"
        if number < 1000:
            folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{number}.py").write_text(f"value = {number}\n" * 30)


async def _measure(files: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name, "w")
        root.mkdir()
        _fill(root, files)
        spawner = ProcessSpawner(root)
        store = CheckpointStore(Path(name, "kept"), root, spawner)
        try:
            print(f"{files} files (load {os.getloadavg()[0]:.1f})")
            await _rows(store, root)
        finally:
            spawner.close()


async def _rows(store: CheckpointStore, root: Path) -> None:
    first = await _timed("first checkpoint", lambda: store.capture("manual"))
    await _timed("nothing changed", lambda: store.capture("manual"))
    await _timed("nothing changed, again", lambda: store.capture("manual"))
    (root / "d1/s0/f1.py").write_text("changed")
    (root / "d1/s0/new.py").write_text("new")
    second = await _timed("two files changed", lambda: store.capture("manual"))
    for number in range(0, 100, 2):
        (root / f"d{number % 50}/s{number // 50}/f{number}.py").write_text("changed too")
    third = await _timed("50 files changed", lambda: store.capture("manual"))

    async def back(wanted: str) -> None:
        now = await store.capture("undo")
        await store.restore(await store.compare(now.state, wanted))
        await store.capture("after", of=now.id)

    await _timed("undo of 2 files", lambda: back(second.state))
    await _timed("undo of all", lambda: back(first.state))
    await _timed("redo of all", lambda: back(third.state))
    size = store.objects.size()
    report = await _timed("gc", lambda: store.gc())
    print(f"  {'size before and after gc':<28} {size / 1e6:8.1f} MB {report.bytes_after / 1e6:8.1f} MB")
    await _timed("first after gc", lambda: store.capture("manual"))


async def row(files: int) -> list[float]:
    """Return milliseconds of a first checkpoint, one after a small change, and an undo of it, at one size."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name, "w")
        root.mkdir()
        _fill(root, files)
        spawner = ProcessSpawner(root)
        store = CheckpointStore(Path(name, "kept"), root, spawner)
        times = [time.perf_counter()]
        try:
            first = await store.capture("manual")
            times.append(time.perf_counter())
            (root / "d1/s0/f1.py").write_text("changed")
            await store.capture("auto")
            times.append(time.perf_counter())
            now = await store.capture("undo")
            await store.restore(await store.compare(now.state, first.state))
            times.append(time.perf_counter())
        finally:
            spawner.close()
    return [(end - begin) * 1000 for begin, end in itertools.pairwise(times)]


async def _timed(label: str, work):  # type: ignore[no-untyped-def]
    began = time.perf_counter()
    result = await work()
    print(f"  {label:<28} {(time.perf_counter() - began) * 1000:8.1f} ms", flush=True)
    return result


if __name__ == "__main__":
    for count in [int(word) for word in sys.argv[1:]] or [100, 5_000, 50_000]:
        asyncio.run(_measure(count))
