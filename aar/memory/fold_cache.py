"""What a long session was folded to, kept beside its file, so that opening it need not read all of it.

``<session_id>.d/folded`` is a cache: it can be thrown away at any time, and is made anew from the session's
file. It tells up to which byte it goes, and counts only while those bytes are the ones it was made of: the
file was not touched since (inode, size, times), or its beginning has the same hash.

Lines: a hash of all others, the facts as JSON, and the turns of the conversation, which are not parsed before
somebody asks for messages.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, cast

import aar
from aar.config.files import write_atomic
from aar.memory.event_lines import Place
from aar.memory.session_file import make_private

VERSION = 2
"""Of the content; to be raised whenever a fold changes what it keeps of an event."""

LEAST_BYTES = 1 << 19
"""Of a session's file from which on it is worth it: fewer are read in a hundredth of a second."""

STEP_BYTES = 1 << 22
"""By which a session's file has grown when it is worth it while the session goes on."""

_MOST_BYTES = 1 << 25
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Folded:
    """What a session file was folded to, up to a place.

    Attributes:
        place: Where reading goes on.
        facts: What `FoldCache.save` was given.
        turns: Likewise; empty: not kept.
    """

    place: Place
    facts: dict[str, Any]
    turns: bytes


class FoldCache:
    """The cache of one session.

    Args:
        folder: The session's folder; made when something is kept.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "folded"
        self._session = folder.with_suffix(".jsonl")
        self._at = self._tried = self._turns = 0
        self._writing = Lock()
        self._closed = False

    def load(self) -> Folded | None:
        """Return what was kept, if it is still true of the session's file."""
        try:
            folded = self._read()
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if folded is not None:
            self._at, self._turns = folded.place.offset, len(folded.turns)
        return folded

    def _read(self) -> Folded | None:
        with self._file.open("rb") as file:
            if os.fstat(file.fileno()).st_size > _MOST_BYTES:
                return None
            check, head, turns = file.readline(), file.readline(), file.read()
        if _check(head, turns) != check:
            return None
        told = cast("dict[str, Any]", json.loads(head))
        place = Place(*told["place"])
        if told["made_by"] != _made_by() or not self._is_of(place.offset, told["stat"], told["sha256"]):
            return None
        return Folded(place, told["facts"], turns)

    def _is_of(self, size: int, stat: list[int], sha256: str) -> bool:
        with self._session.open("rb") as file:
            status = os.fstat(file.fileno())
            if _identity(status) == stat and status.st_size == size:
                return True
            return status.st_size >= size and _hash(file.fileno(), size) == sha256

    def worth(self, size: int) -> bool:
        """Tell whether a file of ``size`` bytes has enough behind what is kept to keep it anew."""
        return size - self._at >= LEAST_BYTES

    def due(self, size: int) -> bool:
        """Tell whether a file of ``size`` bytes should be kept meanwhile; the same is not tried again.

        What is written grows with the conversation, so that it is written the less often the longer that is.
        """
        if size - max(self._at, self._tried) < max(STEP_BYTES, 2 * self._turns):
            return False
        self._tried = size
        return True

    def save(self, place: Place, facts: dict[str, Any], turns: bytes) -> None:
        """Keep what the session's file is folded to up to ``place``, from any thread.

        A disk that refuses is ignored, and what is older than what is kept.
        """
        with contextlib.suppress(OSError):
            with self._session.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_size < place.offset:
                    return
                told = {
                    "made_by": _made_by(),
                    "place": [place.offset, place.line, place.last_id],
                    "stat": _identity(status),
                    "sha256": _hash(file.fileno(), place.offset),
                    "facts": facts,
                }
            head = json.dumps(told, separators=(",", ":")).encode() + b"\n"
            if len(head) + len(turns) < _MOST_BYTES - _CHUNK:
                self._write(place.offset, b"".join((_check(head, turns), head, turns)), len(turns))

    def _write(self, offset: int, content: bytes, turns: int) -> None:
        with self._writing:
            if self._closed or offset < self._at:
                return
            make_private(self._file.parent)
            write_atomic(self._file, content, durable=False)
            self._at, self._turns = offset, turns

    def close(self) -> None:
        """Write nothing any more: the session's files may be removed from now on."""
        with self._writing:
            self._closed = True


def _check(head: bytes, turns: bytes) -> bytes:
    digest = hashlib.sha256(head)
    digest.update(turns)
    return digest.hexdigest().encode() + b"\n"


def _made_by() -> list[Any]:
    return [VERSION, aar.__version__]


def _identity(status: os.stat_result) -> list[int]:
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _hash(fd: int, size: int) -> str:
    digest, at = hashlib.sha256(), 0
    while at < size and (piece := os.pread(fd, min(_CHUNK, size - at), at)):
        digest.update(piece)
        at += len(piece)
    return digest.hexdigest()
