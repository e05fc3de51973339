"""One line on the terminal that says what is happening, for how long, and at what cost."""

from __future__ import annotations

import asyncio
import os
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
    UserMessage,
)
from aar.safety.sanitize import sanitize
from aar.tools.builtin.describe import describe_call
from aar.transports.cli import streams
from aar.transports.cli.console import cut

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
            streams.write(self._err, _CLEAR)

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
            case UserMessage() | ToolResult() | AssistantMessage():
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
        # The last column stays free: some terminals wrap as soon as it is written.
        width = columns(self._err) - 1
        tail = f" · {elapsed}{tokens} · Ctrl-C stops"
        return cut(f"{_FRAMES[self._frame]} {cut(act, max(width - len(tail) - 2, 10))}{tail}", width)

    async def _spin(self) -> None:
        while True:
            if streams.write(self._err, _CLEAR + self.line()) is not None:
                return
            self._drawn = True
            self._frame = (self._frame + 1) % len(_FRAMES)
            await asyncio.sleep(_INTERVAL_S)


def columns(stream: TextIO) -> int:
    """Return the width of the terminal behind ``stream``; ``COLUMNS`` wins."""
    told = os.environ.get("COLUMNS", "")
    if told.isdigit() and int(told) > 0:
        return int(told)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
