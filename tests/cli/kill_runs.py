"""``kill -9`` in the middle of a scripted run, and what is left of it."""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cli.support import COMMAND, environment, script

STEPS = 40
LINES = 500
"""About as many lines as a whole run prints; moments are spread over them."""


@dataclass
class Outcome:
    """One kill.

    Attributes:
        after_lines: Lines that had been printed when the signal was sent.
        finished: The run was over before it.
        printed: Stored events that were printed.
        missing: Of those, the ones that are not in the file.
        gaps: Whether the seqs of the whole file, after going on, have gaps or doubles.
        open_calls: Calls without exactly one result, after going on.
        went_on: Exit code of ``aar run --continue``.
        said: What went wrong then.
    """

    after_lines: int
    finished: bool = False
    printed: int = 0
    missing: list[int] = field(default_factory=list[int])
    gaps: bool = False
    open_calls: int = 0
    went_on: int = -1
    said: str = ""

    @property
    def good(self) -> bool:
        """Whether nothing was lost and the session went on."""
        return not self.missing and not self.gaps and not self.open_calls and self.went_on == 0


def scenario(folder: Path) -> str:
    """Write a run of 40 steps, each with one call; where it goes on is told by the history alone."""
    steps: list[dict[str, Any] | str] = [
        {
            "text": f"Step {number}: " + "some words of explanation " * 4,
            "tool_calls": [
                {"name": "read_file", "arguments": {"path": f"f{number}.txt"}}
                if number % 4
                else {"name": "bash", "arguments": {"command": f"echo {number}"}}
            ],
        }
        for number in range(STEPS)
    ]
    return script(folder / "kill.json", *steps, "All steps are done.", select="history")


def kill_once(folder: Path, chance: random.Random) -> Outcome:
    """Start a run in ``folder``, kill it at a random moment, look at the file, and go on."""
    project, home = folder / "project", folder / "home"
    (project / ".git").mkdir(parents=True)
    for number in range(STEPS):
        (project / f"f{number}.txt").write_text(f"content {number}\n")
    env = environment(AAR_HOME=str(home))
    run = [*COMMAND, "run", "--model", scenario(folder), "--output", "stream-json"]
    process = subprocess.Popen(
        [*run, "go"],
        cwd=project,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    outcome = Outcome(chance.randint(1, LINES))
    delay = chance.random() * 0.02
    lines = _read_and_kill(process, outcome, delay)
    printed = [json.loads(line) for line in lines if line.endswith(b"\n")]
    seqs = [event["seq"] for event in printed if event.get("seq") is not None]
    (file,) = (home / "sessions").glob("*/*.jsonl")
    kept = _whole_lines(file)
    outcome.printed = len(seqs)
    outcome.missing = [
        event["seq"] for event in printed if event.get("seq") is not None and event not in kept
    ]
    again = subprocess.run(
        [*run, "--continue", "go on"],
        cwd=project,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
    )
    outcome.went_on, outcome.said = again.returncode, again.stderr.decode()[-500:]
    _judge(outcome, _whole_lines(file))
    return outcome


def _read_and_kill(process: subprocess.Popen[bytes], outcome: Outcome, delay_s: float) -> list[bytes]:
    assert process.stdout is not None
    lines: list[bytes] = []
    killer = None
    for line in process.stdout:
        lines.append(line)
        if len(lines) == outcome.after_lines:
            killer = threading.Thread(target=lambda: (time.sleep(delay_s), process.kill()))
            killer.start()
    process.stdout.close()
    code = process.wait(60)
    if killer is not None:
        killer.join()
    outcome.finished = code == 0
    return lines


def _whole_lines(file: Path) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    for line in file.read_bytes().split(b"\n"):
        try:
            kept.append(json.loads(line))
        except ValueError:
            continue
    return kept


def _judge(outcome: Outcome, events: list[dict[str, Any]]) -> None:
    outcome.gaps = [event["seq"] for event in events] != list(range(1, len(events) + 1))
    calls = [event["call_id"] for event in events if event["type"] == "tool_call"]
    results = [event["call_id"] for event in events if event["type"] == "tool_result"]
    outcome.open_calls = sum(results.count(call) != calls.count(call) for call in set(calls) | set(results))
