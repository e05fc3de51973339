"""The last second of an answer that is still coming (DESIGN 4: ``<session_id>.d/stream``).

Pieces are collected in memory and written at most each half second, so a piece costs next to nothing and
a quick answer never touches the disk. When the answer's events are stored, the journal is removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from aar.memory.session_file import make_private

FLUSH_S = 0.5
"""Seconds after which collected pieces are written."""


@dataclass(frozen=True, slots=True)
class LeftOver:
    """What a crash left of an answer."""

    run_id: str | None
    step: int | None
    text: str
    reasoning: str


class StreamJournal:
    """Keeps the pieces of the answer that is coming.

    A failing disk is ignored: the journal is a second net, and the store tells about the disk.

    Args:
        folder: The session's folder; made when the first piece is written.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "stream"
        self._fd: int | None = None
        self._key: tuple[str | None, int | None] | None = None
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def append(self, run_id: str | None, step: int | None, text: str, reasoning: str = "") -> None:
        """Take the next piece of the answer of ``(run_id, step)``."""
        if not (text or reasoning):
            return
        key = (run_id, step)
        if key != self._key:
            self.discard()
            self._key = key
        if text:
            self._text.append(text)
        if reasoning:
            self._reasoning.append(reasoning)
        if self._timer is None:
            try:
                self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self.flush)
            except RuntimeError:  # No loop: nothing will wake us later.
                self.flush()

    def flush(self) -> None:
        """Write what was collected."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not (self._text or self._reasoning) or self._key is None:
            return
        run_id, step = self._key
        piece = {"run_id": run_id, "step": step}
        line = json.dumps({**piece, "text": "".join(self._text), "reasoning": "".join(self._reasoning)})
        self._text.clear()
        self._reasoning.clear()
        with contextlib.suppress(OSError):
            if self._fd is None:
                make_private(self._path.parent)
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
                self._fd = os.open(self._path, flags, 0o600)
            os.write(self._fd, f"{line}\n".encode())

    def discard(self) -> None:
        """Forget the answer: its events are stored, or it is void."""
        if self._key is None:
            return
        self._key = None
        self._text.clear()
        self._reasoning.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = None
            with contextlib.suppress(OSError):
                self._path.unlink()
            with contextlib.suppress(OSError):
                self._path.parent.rmdir()

    def close(self) -> None:
        """Write what was collected and leave it for the next process."""
        self.flush()
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = None


def take_left_over(folder: Path) -> LeftOver | None:
    """Return what a crash left in the journal, if anything; `remove_left_over` removes it."""
    try:
        lines = (folder / "stream").read_bytes().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    pieces = [piece for line in lines if (piece := _piece(line)) is not None]
    if not pieces:
        return None
    run_id, step = pieces[-1].get("run_id"), pieces[-1].get("step")
    return LeftOver(
        run_id if isinstance(run_id, str) else None,
        step if isinstance(step, int) else None,
        "".join(str(piece.get("text", "")) for piece in pieces),
        "".join(str(piece.get("reasoning", "")) for piece in pieces),
    )


def remove_left_over(folder: Path) -> None:
    """Remove the journal, and the folder when nothing else is in it."""
    with contextlib.suppress(OSError):
        (folder / "stream").unlink(missing_ok=True)
        folder.rmdir()


def _piece(line: str) -> dict[str, Any] | None:
    try:
        data = json.loads(line)
    except ValueError:
        return None
    return cast("dict[str, Any]", data) if isinstance(data, dict) else None
