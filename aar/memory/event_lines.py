"""Events as lines of a file: tolerant reading, forwards and from the end."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aar.protocol.events import EVENT_TYPES, SCHEMA_VERSION, Event, SessionEvent, parse_event

# The envelope as aar writes it; a line in another shape is simply parsed.
_HEAD = re.compile(rb'\{"type":"([a-z_]+)","id":"[0-9A-Z]*","seq":(\d+),')
_MODELS = {kind.encode(): model for kind, model in EVENT_TYPES.items()}
_BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a session file that could not be used as it is.

    Attributes:
        line: Line number from 1; 0 when it concerns no line.
        message: What was wrong, in one sentence.
    """

    line: int
    message: str


@dataclass(slots=True)
class Place:
    """A place between two lines of a session file.

    Attributes:
        offset: Bytes before it.
        line: Lines before it.
        last_id: Id of the event before it.
    """

    offset: int = 0
    line: int = 0
    last_id: str = ""


def parse_line(raw: bytes) -> Event:
    """Build the event of one line; bytes that are no UTF-8 are replaced, if JSON remains.

    Raises:
        ValueError: The line is no event.
    """
    return _parse(raw, _HEAD.match(raw))


def _parse(raw: bytes, head: re.Match[bytes] | None) -> Event:
    model = _MODELS.get(head[1]) if head else None
    try:
        # Straight from JSON to a known model is a third faster than over a dict.
        return parse_event(raw) if model is None else model.model_validate_json(raw)
    except ValueError:
        try:
            raw.decode()
        except UnicodeDecodeError:
            return parse_event(raw.decode("utf-8", "replace"))
        raise


def line_type(raw: bytes) -> str | None:
    """Return the event type of a line that has aar's own shape, else ``None``."""
    match = _HEAD.match(raw)
    return match[1].decode() if match else None


def read_events(
    path: Path,
    start_seq: int = 1,
    problems: list[Problem] | None = None,
    skip: frozenset[str] = frozenset(),
    place: Place | None = None,
) -> Iterator[Event]:
    """Yield the events of a file with ``seq`` of at least ``start_seq``, in file order.

    Lines that are no events are skipped; what was wrong is added to ``problems``. A line that stands
    twice in a row is yielded once. Events of the types in ``skip`` are left out, mostly unparsed.
    Reading begins at ``place``, which is moved to the end when the last event was taken.

    Raises:
        OSError: The file cannot be read.
    """
    place = place or Place()
    last_id, number = place.last_id, place.line
    unwanted = frozenset(kind.encode() for kind in skip)
    # One loop without helpers: long sessions are read line by line at each resume.
    with path.open("rb") as file:
        if place.offset:
            file.seek(place.offset)
        for number, raw in enumerate(file, place.line + 1):
            head = _HEAD.match(raw)
            if head is not None and (
                (start_seq > 1 and int(head[2]) < start_seq) or (head[1] in unwanted and raw.endswith(b"}\n"))
            ):
                continue
            try:
                event = _parse(raw, head)
            except ValueError:
                _note_bad(problems, number, raw)
                continue
            if event.seq is not None and event.seq < start_seq:
                continue
            if event.id and event.id == last_id:
                _note(problems, number, "it repeats the line before")
                continue
            last_id = event.id
            yield event
        place.offset, place.line, place.last_id = file.tell(), number, last_id


def _note_bad(problems: list[Problem] | None, number: int, raw: bytes) -> None:
    if raw.strip():
        _note(problems, number, "it is no event" if raw.endswith(b"\n") else "it ends in the middle")


def _note(problems: list[Problem] | None, number: int, what: str) -> None:
    if problems is not None:
        problems.append(Problem(number, f"Line {number} was skipped: {what}."))


def tail_events(path: Path, count: int) -> list[Event]:
    """Return the last ``count`` events of a file, read from its end only.

    Raises:
        OSError: The file cannot be read.
    """
    found: list[Event] = []
    for raw in _lines_from_end(path):
        if len(found) >= count:
            break
        with contextlib.suppress(ValueError):
            found.append(parse_line(raw))
    found.reverse()
    return found


def _lines_from_end(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        pieces: list[bytes] = []
        while position > 0:
            size = min(_BLOCK, position)
            position -= size
            file.seek(position)
            first, *others = file.read(size).split(b"\n")
            if others:
                yield others.pop() + b"".join(reversed(pieces))
                yield from reversed(others)
                pieces = []
            pieces.append(first)
        yield b"".join(reversed(pieces))


def newer_version(path: Path) -> int | None:
    """Return the schema version told in the first line when it is newer than this aar knows."""
    with path.open("rb") as file:
        first = file.readline()
    try:
        event = parse_line(first)
    except ValueError:
        return None
    version = event.schema_version if isinstance(event, SessionEvent) else None
    return version if version is not None and version > SCHEMA_VERSION else None
