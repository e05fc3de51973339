"""Real processes of aar, with scripted models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli import forked

COMMAND = [sys.executable, "-m", "aar"]
DEADLINE_S = 60


@dataclass(frozen=True)
class Ran:
    """A process that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on standard output."""
        assert self.out.count("\n") == 1, self.out
        assert self.out.endswith("\n")
        return json.loads(self.out)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The objects on standard output, one a line."""
        assert self.out.endswith("\n")
        return [json.loads(line) for line in self.out.splitlines()]

    def only_sentences(self) -> Ran:
        """Fail when there is a traceback, or one was swallowed by the interpreter at exit."""
        for text in (self.out, self.err):
            assert "Traceback" not in text, text
            assert "Exception ignored" not in text, text
        return self


def environment(**more: str | None) -> dict[str, str]:
    """Return the test's environment with changes; ``None`` removes."""
    changed = {**os.environ, **more}
    return {name: value for name, value in changed.items() if value is not None}


def aar(
    *args: str | Path,
    cwd: Path,
    stdin: str | bytes | None = None,
    env: dict[str, str | None] | None = None,
) -> Ran:
    """Run aar to its end in a process of its own (see `tests.cli.forked`)."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    words = [str(arg) for arg in args]
    code, out, err = forked.run(words, cwd, environment(**(env or {})), data, DEADLINE_S)
    return Ran(code, out.decode(), err.decode()).only_sentences()


def start(
    *args: str | Path, cwd: Path, env: dict[str, Any] | None = None, **popen: Any
) -> subprocess.Popen[bytes]:
    """Start aar; standard output and error are pipes unless given."""
    popen = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **popen}
    return subprocess.Popen(
        [*COMMAND, *(arg if isinstance(arg, bytes) else str(arg) for arg in args)],
        cwd=cwd,
        env=environment(**(env or {})),
        **popen,
    )


def finish(process: subprocess.Popen[bytes]) -> Ran:
    """Wait for the end of what `start` began."""
    out, err = process.communicate(timeout=DEADLINE_S)
    return Ran(process.returncode, (out or b"").decode(), (err or b"").decode()).only_sentences()


def script(file: Path, *steps: dict[str, Any] | str, **top: Any) -> str:
    """Write a scenario and return the name of its model; a step that is text is an answer."""
    told = [{"text": step} if isinstance(step, str) else step for step in steps]
    file.write_text(json.dumps({**top, "steps": told}))
    return f"scripted/{file}"


def call(tool: str, text: str = "", **arguments: Any) -> dict[str, Any]:
    """Return a step that calls a tool."""
    return {"text": text, "tool_calls": [{"name": tool, "arguments": arguments}]}


def stored(home: Path | None = None) -> list[Path]:
    """Return all session files."""
    root = Path(os.environ["AAR_HOME"]) if home is None else home
    return sorted((root / "sessions").glob("*/*.jsonl"))


def events(file: Path) -> list[dict[str, Any]]:
    """Return the events of a session file."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def of_type(found: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Return the events of a type."""
    return [event for event in found if event["type"] == kind]
