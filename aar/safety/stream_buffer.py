"""Output of a process as it streams in: head and tail in memory, the whole in a file when it is long."""

from __future__ import annotations

import os
from pathlib import Path

SPOOL_LIMIT = 200_000_000
"""Bytes of one process that are kept on disk."""


class StreamBuffer:
    """Keeps the first and the last half of ``limit`` bytes, whatever comes.

    Args:
        limit: Bytes that are kept in memory.
        spool: File for the whole (up to `SPOOL_LIMIT`), or ``None``. It is made (mode 0600) when more comes
            than is kept in memory, since most outputs are short and a file costs more than they do.
    """

    def __init__(self, limit: int, spool: Path | None = None) -> None:
        self._head_limit = (limit + 1) // 2
        self._tail_limit = max(limit // 2, 1)
        self._head = bytearray()
        self._tail = bytearray()
        self._spool_path = spool
        self._spool: int | None = None
        self._spooled = 0
        self.total = 0

    def add(self, data: bytes) -> None:
        """Take what was read."""
        self.total += len(data)
        if self._spool is not None:
            self._write(data)
        elif self.truncated and self._spool_path is not None:
            self._open_spool(self._spool_path)
            # Until now nothing was left out: head and tail are all that came.
            self._write(bytes(self._head) + bytes(self._tail) + data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data[-self._tail_limit :]
            # Cut rarely, so that the cost for each byte stays the same.
            if len(self._tail) > 2 * self._tail_limit:
                del self._tail[: -self._tail_limit]

    def _open_spool(self, path: Path) -> None:
        self._spool_path = None
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._spool = os.open(path, flags, 0o600)
        except OSError:
            self._spool = None

    def _write(self, data: bytes) -> None:
        if self._spool is None:
            return
        part = data[: SPOOL_LIMIT - self._spooled]
        try:
            while part:
                written = os.write(self._spool, part)
                self._spooled += written
                part = part[written:]
        except OSError:
            # A full disk must not end the command: what is in memory is kept.
            self.close()

    @property
    def truncated(self) -> bool:
        """Whether something in the middle is left out of `value`."""
        return self.total > self._head_limit + self._tail_limit

    def value(self) -> bytes:
        """Return head and tail, cut between characters, with a line between that tells what is left out."""
        tail = bytes(self._tail[-self._tail_limit :])
        if not self.truncated:
            return bytes(self._head) + tail
        head = _without_open_character(bytes(self._head))
        tail = tail[_continuation_bytes(tail) :]
        missing = self.total - len(head) - len(tail)
        return head + f"\n[... {missing} bytes left out ...]\n".encode() + tail

    def close(self) -> None:
        """Close the spool file."""
        if self._spool is not None:
            os.close(self._spool)
            self._spool = None


def _without_open_character(data: bytes) -> bytes:
    """Return ``data`` without a UTF-8 character at its end that is not complete."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return data[:-back] if length > back else data
    return data


def _continuation_bytes(data: bytes) -> int:
    """Return how many bytes at the start belong to a character that began before."""
    for index in range(min(3, len(data))):
        if data[index] & 0xC0 != 0x80:
            return index
    return 0
