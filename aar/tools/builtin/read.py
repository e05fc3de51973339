"""Reading a file for read_file: streamed, so that a large one does not fill memory."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from aar.protocol.images import image_type
from aar.protocol.ports import FileStamp
from aar.tools.builtin.text_file import SNIFF_BYTES, binary_kind, detect_encoding, is_binary

PREVIEW_LINES: Final = 2000
"""Lines that are shown when no range is asked for."""
MAX_LINE: Final = 2000
"""Characters of one line that are shown."""
_CHUNK: Final = 1 << 20


@dataclass(slots=True)
class Reading:
    """What was read of a file.

    Attributes:
        lines: The lines of the range that fit.
        first: Number of the first one, from 1.
        total: Lines of the whole file.
        size: Bytes of the whole file.
        codec: Encoding, such as ``utf-8``.
        stamp: Identity of the content.
        full: Whether the characters allowed were used up before the range ended.
        clipped: How many shown lines were cut at `MAX_LINE`.
        image: Media type, when the file is an image that models can see.
        binary: Kind of file, when it is no text.
        crlf: Whether the first line ends with CR LF.
    """

    first: int
    stamp: FileStamp
    size: int = 0
    total: int = 0
    codec: str = "utf-8"
    lines: list[str] = field(default_factory=list[str])
    full: bool = False
    clipped: int = 0
    image: str | None = None
    binary: str | None = None
    crlf: bool = False


def read_lines(file: BinaryIO, start: int, end: int | None, max_chars: int) -> Reading:
    """Read lines ``start`` to ``end`` (from 1, inclusive) of ``file``, at most ``max_chars`` characters.

    The whole file is streamed once, to count its lines and to know its hash.
    """
    mtime_ns, size = _identity(file)
    head = file.read(SNIFF_BYTES)
    reading = Reading(start, FileStamp(0, mtime_ns, ""), size=size)
    reading.image = image_type(head)
    if reading.image is None and is_binary(head):
        reading.binary = binary_kind(head)
    if reading.image or reading.binary:
        return reading
    reading.codec, mark = detect_encoding(head)
    window = _Window(reading, end, max_chars)
    digest = hashlib.sha256(head)
    size = len(head)
    window.feed(head[len(mark) :])
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
        size += len(chunk)
        window.feed(chunk)
    window.finish()
    reading.size = size
    reading.stamp = FileStamp(size, mtime_ns, digest.hexdigest())
    return reading


def _identity(file: BinaryIO) -> tuple[int, int]:
    """Return modification time and size; a stream without a descriptor is measured."""
    try:
        info = os.fstat(file.fileno())
    except OSError:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        return 0, size
    return info.st_mtime_ns, info.st_size


class _Window:
    """Takes a file piece by piece, counts all lines and keeps those of the range.

    Outside of the range lines are only counted, which needs no decoding.
    """

    def __init__(self, reading: Reading, end: int | None, max_chars: int) -> None:
        self._reading = reading
        self._end = end
        self._room = max_chars
        self._rest = b""
        self._line = 1
        self._long = False
        self._newline = "\n".encode(reading.codec)
        self._limit = MAX_LINE * 4 * len(self._newline)

    def feed(self, chunk: bytes) -> None:
        data = self._rest + chunk
        if len(self._newline) == 2:
            self._feed_wide(data)
            return
        if self._wants_none(data):
            return
        *lines, self._rest = data.split(b"\n")
        for line in lines:
            self._take(line)
        self._shorten()

    def _wants_none(self, data: bytes) -> bool:
        """Count a piece that lies wholly before or after the range."""
        count = data.count(b"\n")
        before = self._line + count < self._reading.first
        if not (before or self._done):
            return False
        self._line += count
        last = data.rfind(b"\n")
        self._rest = data[last + 1 :]
        self._shorten()
        return True

    @property
    def _done(self) -> bool:
        return self._reading.full or (self._end is not None and self._line > self._end)

    def _feed_wide(self, data: bytes) -> None:
        even = len(data) - len(data) % 2
        body, odd = data[:even], data[even:]
        start = 0
        position = body.find(self._newline)
        while position >= 0:
            if position % 2 == 0:
                self._take(body[start:position])
                start = position + 2
            position = body.find(self._newline, position + 1)
        self._rest = body[start:] + odd

    def _shorten(self) -> None:
        """Forget the tail of a line that is too long to be shown, so that memory stays small."""
        if len(self._rest) > self._limit:
            self._long = True
            self._rest = self._rest[: self._limit]

    def finish(self) -> None:
        if self._rest or self._long:
            self._take(self._rest)
        self._reading.total = self._line - 1

    def _take(self, raw: bytes) -> None:
        number = self._line
        self._line += 1
        reading = self._reading
        if number < reading.first or reading.full or (self._end is not None and number > self._end):
            return
        if number == 1 and raw.endswith("\r".encode(reading.codec)):
            reading.crlf = True
        text = self._decode(raw[: self._limit]).removesuffix("\r")
        if len(text) > MAX_LINE:
            text = text[:MAX_LINE]
            reading.clipped += 1
        self._room -= len(text) + 8
        if self._room < 0 and reading.lines:
            reading.full = True
            return
        reading.lines.append(text)

    def _decode(self, raw: bytes) -> str:
        try:
            return raw.decode(self._reading.codec)
        except UnicodeDecodeError as error:
            if len(raw) - error.start < 4 and len(raw) >= self._limit - 4:
                return raw[: error.start].decode(self._reading.codec)
            if self._reading.codec != "utf-8":
                return raw.decode(self._reading.codec, "replace")
            self._reading.codec = "latin-1"
            self._reading.lines[:] = [_as_latin_1(line) for line in self._reading.lines]
            return raw.decode("latin-1")


def _as_latin_1(line: str) -> str:
    """Show a line that was taken for UTF-8 as the rest of its file is shown."""
    return line.encode().decode("latin-1")
