"""Lines of JSON over two descriptors. Imports almost nothing: the first answer comes before asyncio loads."""

from __future__ import annotations

import json
import os
import threading
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_READ_BYTES = 1 << 18


class Wire:
    """One JSON object a line, of any size, both ways.

    Args:
        source: Descriptor that is read.
        sink: Descriptor that is written; by one thread, so that a slow reader does not hold up the caller.
    """

    def __init__(self, source: int, sink: int) -> None:
        self._source = source
        self._sink = sink
        self._queue: deque[bytes] = deque()
        self._ready = threading.Condition()
        self._closed = False
        self._broken = False
        self._writer: threading.Thread | None = None

    @property
    def broken(self) -> bool:
        """Whether nobody reads any more."""
        return self._broken

    def lines(self) -> Iterator[bytes]:
        """Yield lines without their ends until the other side closes; the last one may lack its end."""
        pieces: list[bytes] = []
        while True:
            try:
                chunk = os.read(self._source, _READ_BYTES)
            except OSError:
                chunk = b""
            if not chunk:
                break
            first, *rest = chunk.split(b"\n")
            pieces.append(first)
            for following in rest:
                yield b"".join(pieces)
                pieces = [following]
        if any(pieces):
            yield b"".join(pieces)

    def write_now(self, message: dict[str, Any]) -> None:
        """Write a message before this returns; only while no thread writes."""
        self._write(encode(message))

    def send(self, message: dict[str, Any]) -> None:
        """Queue a message; those of one caller go out in their order."""
        data = encode(message)
        with self._ready:
            if self._closed:
                return
            if self._writer is None:
                self._writer = threading.Thread(target=self._serve, name="aar-acp-writer", daemon=True)
                self._writer.start()
            self._queue.append(data)
            self._ready.notify()

    def close(self, seconds: float) -> None:
        """Write what waits, for at most ``seconds``."""
        with self._ready:
            self._closed = True
            self._ready.notify()
        if self._writer is not None:
            self._writer.join(seconds)

    def _serve(self) -> None:
        while True:
            with self._ready:
                while not self._queue:
                    if self._closed:
                        return
                    self._ready.wait()
                waiting = b"".join(self._queue)
                self._queue.clear()
            self._write(waiting)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view and not self._broken:
                view = view[os.write(self._sink, view) :]
        except OSError:
            # The reader has gone; the end of its other pipe ends the process.
            self._broken = True


def encode(message: dict[str, Any]) -> bytes:
    """Return a message as one line of UTF-8."""
    try:
        return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair, as some models write
        return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def take_streams() -> Wire:
    """Take standard input and output away from everybody else and return them as a wire.

    What is printed by mistake goes to standard error, and no child finds the protocol on its input.
    """
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return Wire(source, sink)
