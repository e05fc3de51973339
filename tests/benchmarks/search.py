"""``find_files`` and ``grep`` on a tree of 100,000 files, side by side with ripgrep alone.

    python -m tests.benchmarks.search [RUNS] [FILES]

The ways take turns, so that load on the machine meets them alike. Prints the medians and their ratio, and
the least times, which load disturbs less. ``rg --glob`` shows ignored files too, so ``--type`` stands
for it where a whole name is looked for.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from aar.config.schema import SandboxConfig
from aar.safety.spawn import ProcessSpawner
from tests.support.tool_context import Bench

_ENDINGS = ("py", "ts", "md", "txt", "json")
_CASES: tuple[tuple[str, dict[str, Any], list[str]], ...] = (
    ("find_files", {"pattern": "*.py"}, ["--files", "--type-add=x:*.py", "--type=x"]),
    ("find_files", {"pattern": "*"}, ["--files"]),
    ("find_files", {"pattern": "pkg007/**/*.ts"}, ["--files", "--type-add=x:*.ts", "--type=x"]),
    ("grep", {"pattern": "function_42"}, ["function_42"]),
    ("grep", {"pattern": "function_42", "glob": "*.py"}, ["function_42", "--glob=*.py"]),
    ("grep", {"pattern": "absent_word"}, ["absent_word"]),
)


def make_tree(root: Path, files: int) -> None:
    """Write ``files`` small files, 100 to a folder, in a git repository with an ignore file."""
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / ".gitignore").write_text("*.log\nbuild/\nnode_modules/\n")
    for number in range(files):
        folder = root / f"pkg{number // 1000:03d}" / f"module{number // 100 % 10}"
        if number % 100 == 0:
            folder.mkdir(parents=True, exist_ok=True)
        name = f"file_{number % 100:03d}.{_ENDINGS[number % len(_ENDINGS)]}"
        (folder / name).write_text(f"def function_{number % 100}():\n    return {number}\n")


async def main(runs: int, files: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="aar-search-") as folder:
        root = Path(folder)
        make_tree(root, files)
        bench = Bench(root)
        spawner = ProcessSpawner(root, SandboxConfig(mode="none"))
        bench.spawner = spawner  # type: ignore[assignment] - the real one instead of the helper for tests
        await bench.call("find_files", pattern="*.nothing")
        for tool, arguments, words in _CASES:
            ours: list[float] = []
            alone: list[float] = []
            for _ in range(runs):
                began = time.perf_counter()
                await bench.call(tool, **arguments)
                ours.append(time.perf_counter() - began)
                began = time.perf_counter()
                subprocess.run(["rg", *words, "."], cwd=root, stdout=subprocess.PIPE, check=False)
                alone.append(time.perf_counter() - began)
            mine, rg = statistics.median(ours) * 1000, statistics.median(alone) * 1000
            what = f"{tool} {' '.join(map(str, arguments.values()))}"
            least = f"least {min(ours) * 1000:5.0f} and {min(alone) * 1000:5.0f}, ratio {min(ours) / min(alone):.2f}"
            print(f"{what:30} {mine:5.0f} ms, rg {rg:5.0f} ms, ratio {mine / rg:.2f}  ({least})", flush=True)
        spawner.close()


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    asyncio.run(main(*(numbers + [5, 100_000][len(numbers) :])))
