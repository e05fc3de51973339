"""A model's answer streamed into the whole screen at 1,000 tokens a second, on a pseudo-terminal, while a user types.

``python -m tests.benchmarks.screen [TOKENS ...]`` (4,000 and 40,000): CPU, frames, how long a key takes until it is
seen, and memory. A terminal that reads at once stands at the other end.
"""

from __future__ import annotations

import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.first_frame import cpu, end, start

RATE = 1000
"""Tokens a second, of four characters each."""
KEY_EVERY_S = 0.25
_KEYS = "abcdefghijklmnopqrstuvwxyz"
_TEXT = (
    "## A heading\n\nSome text with **bold**, `code` and a [link](https://example.org/page) that is long enough "
    "to be wrapped at the edge of the screen.\n\n- one item\n- another item\n\n"
    "```python\ndef add(one: int, two: int) -> int:\n    return one + two\n```\n\n"
)


class Screen:
    """The app behind a terminal that counts."""

    def __init__(self, argv: list[str], home: Path) -> None:
        self.process, self.ours = start(argv, home)
        self.seen = b""
        self.done = False
        self.frames: list[float] = []

    def read(self, seconds: float) -> None:
        """Read what comes within ``seconds``."""
        until = time.perf_counter() + seconds
        while (left := until - time.perf_counter()) > 0 and select.select([self.ours], [], [], left)[0]:
            self.seen = (self.seen + os.read(self.ours, 1 << 18))[-(1 << 18) :]
            self.done = self.done or b"THE-END" in self.seen
            self.frames.append(time.perf_counter())

    def until(self, text: bytes, seconds: float = 120) -> None:
        """Read until ``text`` comes."""
        limit = time.perf_counter() + seconds
        while text not in self.seen:
            if time.perf_counter() > limit:
                raise SystemExit(f"{text!r} did not come: {self.seen[-300:]!r}")
            self.read(0.02)

    def key(self, character: str) -> float:
        """Type a character; return the seconds until the terminal gets it back."""
        self.seen, began = b"", time.perf_counter()
        os.write(self.ours, character.encode())
        while time.perf_counter() - began < 10:
            self.read(0.002)
            if character.encode() in _plain(self.seen):
                break
        return time.perf_counter() - began


def _plain(data: bytes) -> bytes:
    """Return the characters that no escape sequence holds."""
    return b"".join(part.partition(b"m")[2] for part in data.split(b"\x1b["))


def memory(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def measure(tokens: int, home: Path) -> None:
    """Stream one answer and print what it took."""
    size = 4 * tokens
    answer = (_TEXT * (size // len(_TEXT) + 1))[: size - 10] + "\n\nTHE-END."
    scenario = home / "s.json"
    step = {"text": answer, "chunk_chars": 4, "chunk_delay_ms": 1000 / RATE}
    scenario.write_text(json.dumps({"steps": [step]}))
    screen = Screen([sys.executable, "-m", "aar", "tui", "--model", f"scripted/{scenario}"], home)
    try:
        screen.until(b"ype a task")
        screen.read(4)
        before = memory(screen.process.pid)
        os.write(screen.ours, b"go")
        screen.read(0.5)
        os.write(screen.ours, b"\r")
        screen.until(b"heading")
        used, began, waits = cpu(screen.process.pid), time.perf_counter(), stream(screen, tokens)
        taken, used = time.perf_counter() - began, cpu(screen.process.pid) - used
        gaps = sorted(two - one for one, two in zip(screen.frames, screen.frames[1:], strict=False))
        print(
            f"{tokens:,} tokens: {taken:.1f} s, {used:.2f} s CPU ({used / taken:.0%} of a core); "
            f"a key: median {1000 * statistics.median(waits):.0f} ms, worst {1000 * max(waits):.0f} ms of {len(waits)}; "
            f"frames: {len(screen.frames)}, apart 95 %: {1000 * gaps[int(0.95 * len(gaps))]:.0f} ms; "
            f"memory {before:.0f} -> {memory(screen.process.pid):.0f} MiB"
        )
    finally:
        end(screen.process, screen.ours)


def stream(screen: Screen, tokens: int) -> list[float]:
    """Type while the answer comes; return how long each key took."""
    screen.frames.clear()
    waits: list[float] = []
    limit = time.perf_counter() + 60 + 4 * tokens / RATE
    while not screen.done and time.perf_counter() < limit:
        waits.append(screen.key(_KEYS[len(waits) % len(_KEYS)].upper()))
        screen.read(KEY_EVERY_S)
    return waits


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        subprocess.run(["git", "init", "-q", str(home / "project")], check=True)
        for tokens in [int(word) for word in sys.argv[1:]] or [4_000, 40_000]:
            measure(tokens, home)


if __name__ == "__main__":
    main()
