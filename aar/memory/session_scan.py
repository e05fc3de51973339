"""What a list of sessions shows, scanned from a session file without building every event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from aar.memory.event_lines import line_type, parse_line
from aar.protocol.events import Event, ModelSwitch, ProviderMeta, SessionEvent, Setting, UserMessage
from aar.protocol.messages import ContentBlock, TextBlock

_TITLE_CHARS = 120


@dataclass(slots=True)
class SessionInfo:
    """One line of ``aar sessions list``.

    Attributes:
        id: Session id.
        title: Given title, else the first line of the first prompt.
        cwd: Folder it was started in; empty when the file does not tell.
        model: Model that answers; empty when the file does not tell.
        updated: Time of the last event, RFC 3339 in UTC.
        events: Number of lines.
        cost_usd: Sum of the known prices; ``None`` when no price is known.
        cost_known: Whether every request had a price; else ``cost_usd`` is a lower bound.
        path: The file.
        named: Whether the title is there to stay, until a rename.
        size: Bytes of the file.
    """

    id: str
    title: str = ""
    cwd: str = ""
    model: str = ""
    updated: str = ""
    events: int = 0
    cost_usd: float | None = None
    cost_known: bool = True
    path: Path | None = None
    named: bool = False
    size: int = 0

    def to_dict(self) -> dict[str, object]:
        """Return the fields of ``aar sessions list --json``."""
        names = ("id", "title", "cwd", "model", "updated", "events", "cost_usd")
        return {name: getattr(self, name) for name in names}


def title_from_content(content: Sequence[ContentBlock]) -> str:
    """Return the first line of text of a prompt, cut to a title's length; empty when there is none."""
    for block in content:
        if isinstance(block, TextBlock):
            for line in block.text.splitlines():
                if line.strip():
                    return _shorten(line.strip())
    return ""


def _shorten(line: str) -> str:
    return line if len(line) <= _TITLE_CHARS else line[: _TITLE_CHARS - 1].rstrip() + "…"


class Scanner:
    """Takes the lines of one session file in order; may go on later where it stopped.

    Args:
        info: What is known of the lines before.
    """

    def __init__(self, info: SessionInfo) -> None:
        self.info = info
        self._last = b""

    def feed(self, raw: bytes) -> None:
        """Take the next line; one that cannot be read is counted and skipped."""
        self._last = _take_line(self.info, raw, self._last)

    def finish(self) -> SessionInfo:
        """Take the time of the last line and return what is known now."""
        _stamp(self.info, self._last)
        return self.info


def scan_events(session_id: str, lines: Sequence[bytes]) -> SessionInfo:
    """Scan lines in memory; see `scan_file`."""
    scanner = Scanner(SessionInfo(session_id))
    for raw in lines:
        scanner.feed(raw)
    return scanner.finish()


def scan_file(session_id: str, path: Path) -> SessionInfo:
    """Scan one session file in one pass; lines that cannot be read are counted and skipped.

    Raises:
        OSError: The file cannot be read.
    """
    scanner = Scanner(SessionInfo(session_id, path=path))
    with path.open("rb") as file:
        for raw in file:
            scanner.feed(raw)
            scanner.info.size += len(raw)
    info = scanner.finish()
    if not info.updated:
        info.updated = time_of(path.stat().st_mtime)
    return info


def time_of(moment: float) -> str:
    """Return seconds since 1970 as RFC 3339 in UTC."""
    stamp = datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
    return stamp.replace("+00:00", "Z")


_WANTED = frozenset({"session", "setting", "provider_meta", "model_switch", None})


def _take_line(info: SessionInfo, raw: bytes, last: bytes) -> bytes:
    if not raw.strip():
        return last
    info.events += 1
    kind = line_type(raw)
    if kind in _WANTED or (kind == "user_message" and not info.named):
        event = _event(raw)
        if event is not None:
            _take(info, event)
        return raw if event is not None else last
    return raw


def _take(info: SessionInfo, event: Event) -> None:
    if isinstance(event, SessionEvent):
        info.cwd = event.cwd or info.cwd
        info.model = event.model or info.model
        if event.title:
            info.title, info.named = event.title, True
    elif isinstance(event, ProviderMeta):
        if event.cost_usd is None:
            info.cost_known = False
        else:
            info.cost_usd = (info.cost_usd or 0.0) + event.cost_usd
    elif event.agent_id != "main":
        return
    elif isinstance(event, ModelSwitch):
        info.model = event.to_model
    elif isinstance(event, Setting) and event.key == "model" and isinstance(event.to, str):
        info.model = event.to
    elif isinstance(event, UserMessage) and not info.named:
        info.title = title_from_content(event.content)
        info.named = bool(info.title)


def _stamp(info: SessionInfo, last: bytes) -> None:
    event = _event(last)
    if event is not None:
        info.updated = event.ts


def _event(raw: bytes) -> Event | None:
    try:
        return parse_line(raw)
    except ValueError:
        return None
