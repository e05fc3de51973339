"""Time from the start of a process to the first frame on a pseudo-terminal, and CPU while idle.

``python -m tests.benchmarks.first_frame [--idle SECONDS]``: ``aar tui`` beside the smallest app that Textual can show.
Compiled modules are kept in a temporary folder, as an installed aar has them.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

ROUNDS = 7
SMALLEST = "from textual.app import App\nfrom textual.widgets import Static\nclass A(App):\n    def compose(self):\n        yield Static('ready')\nA().run()\n"


def start(argv: list[str], home: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start ``argv`` on a terminal of 120 by 40; return it with our end."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    env = {
        **os.environ,
        "AAR_HOME": str(home),
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "PYTHONPYCACHEPREFIX": str(home / "pyc"),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    # A project without the compiled modules: a first task takes a checkpoint of all files.
    (home / "project").mkdir(exist_ok=True)
    process = subprocess.Popen(
        argv,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=env,
        cwd=home / "project",
        start_new_session=True,
    )
    os.close(theirs)
    return process, ours


def first_frame(argv: list[str], word: bytes, home: Path) -> float:
    """Return the seconds until ``word`` stands on the terminal."""
    began = time.perf_counter()
    process, ours = start(argv, home)
    seen = b""
    try:
        while word not in seen:
            if not select.select([ours], [], [], 20)[0]:
                raise SystemExit(f"no first frame: {seen[-500:]!r}")
            seen += os.read(ours, 65536)
        return time.perf_counter() - began
    finally:
        end(process, ours)


def end(process: subprocess.Popen[bytes], ours: int) -> None:
    """End what `start` began, by its own id."""
    process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + 5
    while process.poll() is None and time.monotonic() < deadline:
        if select.select([ours], [], [], 0.05)[0]:
            try:
                os.read(ours, 65536)
            except OSError:
                break
    if process.poll() is None:
        process.kill()
    process.wait()
    os.close(ours)


def idle(argv: list[str], home: Path, seconds: float) -> tuple[float, int]:
    """Return the share of a core that an idle app takes, and the bytes that it writes meanwhile."""
    process, ours = start(argv, home)
    try:
        drain(ours, 6)
        before, written = cpu(process.pid), 0
        began = time.monotonic()
        written = drain(ours, seconds)
        return (cpu(process.pid) - before) / (time.monotonic() - began), written
    finally:
        end(process, ours)


def drain(ours: int, seconds: float) -> int:
    """Read for ``seconds``; return how many bytes came."""
    until, count = time.monotonic() + seconds, 0
    while (left := until - time.monotonic()) > 0:
        if select.select([ours], [], [], left)[0]:
            count += len(os.read(ours, 65536))
    return count


def cpu(pid: int) -> float:
    """Return the seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--idle", type=float, default=60.0, help="Seconds to watch an idle app; 0: do not.")
    seconds = parser.parse_args().idle
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        scenario = home / "s.json"
        scenario.write_text('{"steps": [{"text": "hi"}]}')
        (home / "smallest.py").write_text(SMALLEST)
        aar = [sys.executable, "-m", "aar", "tui", "--model", f"scripted/{scenario}"]
        ways = {
            "smallest": ([sys.executable, str(home / "smallest.py")], b"ready"),
            "aar tui": (aar, b"ype a task"),
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, (argv, word) in ways.items():
                times[name].append(first_frame(argv, word, home))
        for name, found in times.items():
            print(f"{name:10} first frame: median {statistics.median(found):.3f} s, best {min(found):.3f} s")
        ratio = min(times["aar tui"]) / min(times["smallest"])
        print(f"ratio of the best: {ratio:.2f} (budget 1.5)")
        if seconds:
            share, written = idle(aar, home, seconds)
            print(f"idle for {seconds:.0f} s: {share:.2%} of a core (budget 0.5 %), {written} bytes written")


if __name__ == "__main__":
    main()
