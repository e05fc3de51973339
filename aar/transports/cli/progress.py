"""One line on the terminal that says what is happening, for how long, and at what cost."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

from aar.protocol.events import (
    AssistantMessage,
    Event,
    Notice,
    ProviderMeta,
    StreamChunk,
    ToolCall,
    ToolResult,
)
from aar.safety.sanitize import sanitize
from aar.tools.builtin.describe import describe_call

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_INTERVAL_S = 0.1
_CLEAR = "\r\x1b[K"


class Progress:
    """A spinner on standard error; drawn only where that is a terminal.

    Args:
        err: Where it is drawn.
        clock: Monotonic seconds.
    """

    def __init__(self, err: TextIO = sys.stderr, clock: Callable[[], float] = time.monotonic) -> None:
        self._err = err
        self._clock = clock
        self._start = clock()
        self._act = "Starting"
        self._tokens = 0
        self._frame = 0
        self._drawn = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to draw."""
        self._task = asyncio.ensure_future(self._spin())

    async def stop(self) -> None:
        """Stop drawing and leave nothing on the line."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.clear()

    def clear(self) -> None:
        """Take the line away, so that other text can be written."""
        if self._drawn:
            self._drawn = False
            self._err.write(_CLEAR)
            self._err.flush()

    def event(self, event: Event) -> None:
        """Take what happened into the line."""
        match event:
            case Notice() if event.code == "provider_progress":
                self._act = event.message
            case StreamChunk() if event.text or event.tool_call_fragment:
                self._act = "Answering"
            case StreamChunk() if event.reasoning_text:
                self._act = "Thinking"
            case ToolCall():
                self._act = describe_call(event.tool_name, event.arguments)
            case ToolResult() | AssistantMessage():
                self._act = "Waiting for the model"
            case ProviderMeta():
                self._tokens += event.usage.total
            case _:
                pass

    def line(self) -> str:
        """Return the line as it stands."""
        seconds = int(self._clock() - self._start)
        elapsed = f"{seconds // 60}m{seconds % 60:02}s" if seconds >= 60 else f"{seconds}s"
        tokens = f" · {self._tokens:,} tokens" if self._tokens else ""
        act = " ".join(sanitize(self._act).split())
        width = shutil.get_terminal_size().columns
        tail = f" · {elapsed}{tokens} · Ctrl-C stops"
        room = max(width - len(tail) - 3, 10)
        return f"{_FRAMES[self._frame]} {act if len(act) <= room else act[: room - 1] + '…'}{tail}"[
            : width - 1
        ]

    async def _spin(self) -> None:
        while True:
            self._err.write(_CLEAR + self.line())
            self._err.flush()
            self._drawn = True
            self._frame = (self._frame + 1) % len(_FRAMES)
            await asyncio.sleep(_INTERVAL_S)
