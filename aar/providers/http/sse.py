"""Server-sent events, read byte by byte (https://html.spec.whatwg.org/multipage/server-sent-events.html).

Besides what the standard says, the ``error:`` field of some servers is kept, and so is the beginning of
whatever is no event at all: servers answer with plain text where a stream was asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

_JUNK_LIMIT = 2000
_BOM = b"\xef\xbb\xbf"
_FIELDS = (b"data", b"event", b"id", b"retry", b"error")


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event.

    Attributes:
        data: All ``data`` lines, joined by line feeds.
        event: Name of the event, when told.
        error: Value of an ``error`` field, which the standard does not know.
        terminated: Whether the empty line that ends an event was seen.
    """

    data: str
    event: str | None = None
    error: str | None = None
    terminated: bool = True


class SseDecoder:
    """Turns bytes, cut anywhere, into events. Lines may end with LF, CR or CR LF."""

    def __init__(self) -> None:
        self._tail = bytearray()
        self._after_cr = False
        self._started = False
        self._data: list[str] = []
        self._event: str | None = None
        self._error: str | None = None
        self.junk = ""

    def feed(self, piece: bytes) -> list[SseEvent]:
        """Take the next bytes and return the events that they complete."""
        events: list[SseEvent] = []
        for line in self._lines(piece):
            event = self._line(line)
            if event is not None:
                events.append(event)
        return events

    def finish(self) -> SseEvent | None:
        """Return the last event if the stream ended without the empty line after it."""
        if self._tail:
            line = bytes(self._tail)
            self._tail.clear()
            if any(name.startswith(line) for name in _FIELDS):
                line = b""  # cut inside the name of a field: nothing was told
            event = self._line(line) if line else None
            if event is not None:
                return event
        return self._take(terminated=False)

    def _lines(self, piece: bytes) -> list[bytes]:
        if self._after_cr and piece:
            self._after_cr = False
            if piece[:1] == b"\n":
                piece = piece[1:]
        if not piece:
            return []
        self._after_cr = piece.endswith(b"\r")
        if b"\n" not in piece and b"\r" not in piece:
            self._tail += piece
            return []
        text = bytes(self._tail) + piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = text.split(b"\n")
        self._tail = bytearray(rest)
        return lines

    def _line(self, line: bytes) -> SseEvent | None:
        if not self._started:
            self._started = True
            line = line.removeprefix(_BOM)
        if not line:
            return self._take(terminated=True)
        if line.startswith(b":"):
            return None
        name, colon, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "error":
            self._error = value
        elif (name not in {"id", "retry"} or not colon) and len(self.junk) < _JUNK_LIMIT:
            self.junk += line.decode("utf-8", "replace")[:_JUNK_LIMIT] + "\n"
        return None

    def _take(self, *, terminated: bool) -> SseEvent | None:
        data, event, error = self._data, self._event, self._error
        self._data, self._event, self._error = [], None, None
        if not data and error is None:
            return None
        return SseEvent("\n".join(data), event, error, terminated)
