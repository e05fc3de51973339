"""The list of checkpoints of a project: one JSON object a line, appended under the store's lock."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from aar.config.files import write_atomic
from aar.memory.append import append_line
from aar.protocol.errors import StorageError

Kind = Literal["auto", "manual", "undo", "redo", "after"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One kept state.

    Attributes:
        id: Its name (a ULID).
        kind: ``auto`` before a step's effects, ``after`` when they were done, ``undo`` and ``redo`` before
            either, ``manual`` when the user asked.
        state: Name of the kept state.
        ts: Seconds since the epoch.
        session_id: Of the session.
        call_id: The call before which it was made.
        of: The checkpoint that an ``after`` belongs to.
        label: What the user called it.
    """

    id: str
    kind: Kind
    state: str
    ts: float
    session_id: str = ""
    call_id: str = ""
    of: str = ""
    label: str = ""


class CheckpointLog:
    """Reads and appends; lines that are torn or foreign are skipped.

    Args:
        file: Where the lines are.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read_to: tuple[int, int] = (0, 0)
        self._known: dict[str, Checkpoint] = {}

    def append(self, checkpoint: Checkpoint) -> None:
        """Add one.

        Raises:
            OSError: It cannot be written.
        """
        append_line(self._file, _line(checkpoint))

    def all(self) -> list[Checkpoint]:
        """Return every checkpoint, the oldest first; only what is new is read."""
        try:
            with self._file.open("rb") as file:
                status = os.fstat(file.fileno())
                inode, offset = self._read_to
                if inode != status.st_ino or offset > status.st_size:
                    self._known, offset = {}, 0
                file.seek(offset)
                data = file.read()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageError(f"The list of checkpoints cannot be read: {error.strerror}.") from error
        whole = data.rfind(b"\n") + 1
        for line in data[:whole].splitlines():
            checkpoint = _parse(line)
            if checkpoint is not None:
                self._known[checkpoint.id] = checkpoint
        self._read_to = (status.st_ino, offset + whole)
        return list(self._known.values())

    def replace(self, checkpoints: list[Checkpoint]) -> None:
        """Keep only ``checkpoints``.

        Raises:
            OSError: It cannot be written.
        """
        write_atomic(self._file, b"".join(map(_line, checkpoints)))


def _line(checkpoint: Checkpoint) -> bytes:
    told = {key: value for key, value in asdict(checkpoint).items() if value != ""}
    return json.dumps(told).encode() + b"\n"


def _parse(line: bytes) -> Checkpoint | None:
    try:
        body: dict[str, Any] = json.loads(line)
        known = {key: body[key] for key in Checkpoint.__dataclass_fields__ if key in body}
        return Checkpoint(**known)
    except (ValueError, TypeError):
        return None
