"""One table of what keeping everything costs: ``python -m tests.benchmarks.durability [--quick]``.

Sessions of 100 to 50,000 events: open (the end, and whole), append, fork, search. Workspaces of 100 to 50,000
files: checkpoint and undo. Memory is the peak of the process that opens the whole session.
"""

from __future__ import annotations

import asyncio
import os
import sys

from tests.benchmarks import checkpoints, session_store

EVENTS = (100, 1_000, 10_000, 50_000)
FILES = (100, 5_000, 50_000)


def main() -> None:
    """Print both tables; with ``--quick`` without the largest sizes."""
    quick = "--quick" in sys.argv
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    session_store.table(list(EVENTS[:2] if quick else EVENTS))
    print("\n| files | first checkpoint | after a change | undo |")
    print("|---|---|---|---|")
    for files in FILES[:1] if quick else FILES:
        cells = asyncio.run(checkpoints.row(files))
        print(f"| {files:,} | {' | '.join(f'{cell:.0f} ms' for cell in cells)} |", flush=True)


if __name__ == "__main__":
    main()
