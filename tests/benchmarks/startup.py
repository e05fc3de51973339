"""Prints how fast aar starts: ``python -m tests.benchmarks.startup [RUNS]``.

Each line is the median of the runs, with the budget of the design. Compiled modules are kept in a temporary
folder, as an installed aar has them.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.model_server import Reply, model_server

AAR = [sys.executable, "-m", "aar"]
CALLS = 30


def main() -> int:
    """Measure and print; the exit code is 1 when a budget was missed."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    with tempfile.TemporaryDirectory(prefix="aar-startup-") as name:
        folder = Path(name)
        project = folder / "project"
        (project / ".git").mkdir(parents=True)
        for number in range(CALLS):
            (project / f"f{number}.txt").write_text(f"content {number}\n")
        env = {
            **os.environ,
            "AAR_HOME": str(folder / "home"),
            "PYTHONPYCACHEPREFIX": str(folder / "pyc"),
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        bare = median(lambda: plain([sys.executable, "-c", "pass"], project, env), runs)
        print(f"{'python -c pass':34} {bare:7.3f} s")
        told = [
            line("aar --version", median(lambda: plain([*AAR, "--version"], project, env), runs), 3 * bare),
            line("aar --help", median(lambda: plain([*AAR, "--help"], project, env), runs), 8 * bare),
            line("aar run: start to first request", median(lambda: first_request(project, env), runs), 0.5),
            line("a run of 30 tool calls, whole", median(lambda: thirty_calls(project, env), runs), 1.2),
        ]
    return 0 if all(told) else 1


def line(what: str, seconds: float, budget: float) -> bool:
    """Print one measurement; tell whether the budget was kept."""
    kept = seconds <= budget
    print(f"{what:34} {seconds:7.3f} s   budget {budget:6.3f} s   {'kept' if kept else 'MISSED'}")
    return kept


def median(measure: Callable[[], float], runs: int) -> float:
    """Return the median of several measurements, the first one left out."""
    measure()
    return statistics.median(measure() for _ in range(runs))


def plain(command: list[str], cwd: Path, env: dict[str, str]) -> float:
    """Return the seconds that a command takes."""
    begin = time.perf_counter()
    subprocess.run(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def run_against(replies: list[Reply], cwd: Path, env: dict[str, str], at_request: list[float]) -> float:
    """Run aar against a loopback server; return the seconds of the whole process."""
    with model_server(replies) as server:
        taken = server.requests
        command = [*AAR, "run", "--model", "openai-compatible/m", "--base-url", server.base_url, "go"]
        begin = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        while not taken and process.poll() is None:
            time.sleep(0.0005)
        at_request.append(time.perf_counter() - begin)
        assert process.stderr is not None
        said = process.stderr.read().decode()
        process.stderr.close()
        if process.wait(60) != 0:
            raise SystemExit(said)
        return time.perf_counter() - begin


def first_request(cwd: Path, env: dict[str, str]) -> float:
    """Return the seconds from the start of the process to its first request."""
    seconds: list[float] = []
    run_against([Reply(text="Hello.")], cwd, env, seconds)
    return seconds[0]


def thirty_calls(cwd: Path, env: dict[str, str]) -> float:
    """Return the seconds of a run with 15 reads and 15 commands, one a step."""
    replies = [
        Reply(
            text=f"Step {n}: reading a file.", tool_calls=[("read_file", json.dumps({"path": f"f{n}.txt"}))]
        )
        for n in range(CALLS // 2)
    ]
    replies += [
        Reply(text=f"Step {n}: a command.", tool_calls=[("bash", json.dumps({"command": f"echo hello-{n}"}))])
        for n in range(CALLS // 2)
    ]
    return run_against([*replies, Reply(text="All 30 tool calls are done.")], cwd, env, [])


if __name__ == "__main__":
    sys.exit(main())
