"""Prints what 50 kills of a scripted 40-step run cost: ``python -m tests.benchmarks.kills [COUNT] [SEED]``."""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

from tests.cli.kill_runs import kill_once


def main() -> int:
    """Kill, go on, and print one line for each and a sum; the exit code is 1 when anything was lost."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 30)
    chance = random.Random(seed)
    bad = finished = printed = 0
    with tempfile.TemporaryDirectory(prefix="aar-kills-") as name:
        for number in range(count):
            folder = Path(name) / str(number)
            folder.mkdir()
            outcome = kill_once(folder, chance)
            bad += not outcome.good
            finished += outcome.finished
            printed += outcome.printed
            if not outcome.good:
                print(outcome)
    print(f"seed {seed}: {count} kills, {finished} came after the end of the run")
    print(f"{printed} stored events were printed; kills with a loss or without going on: {bad}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
