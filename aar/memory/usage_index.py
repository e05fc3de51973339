"""What was used on which day by which model, over all sessions: read from their files, each line once.

A small file in the cache folder keeps the numbers of each session file and how far it was read; the next
question reads only what came since. It can be deleted at any time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any

from aar.config.files import write_atomic
from aar.memory.event_lines import line_type

_VERSION = 1
_WANTED = frozenset({"session", "provider_meta", "tool_result", None})
_MODEL_NUMBERS = ("requests", "input", "output", "cache_read", "cache_write", "reasoning", "unpriced")
_MODEL_SUMS = ("cost_usd", "cache_saved_usd", "model_ms")


@dataclass(slots=True)
class UsageRow:
    """Numbers of one day, model or project. Times in milliseconds, money in US dollars.

    Attributes:
        key: What the numbers are of.
        cost_usd: Sum of the known costs; ``unpriced`` requests are not in it.
        cache_saved_usd: What prompt caches spared.
        model_ms: Waiting for models.
        tool_ms: Time in tools, calls side by side counted each.
        tool_failures: Failed calls by category.
    """

    key: str
    requests: int = 0
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    unpriced: int = 0
    cost_usd: float = 0.0
    cache_saved_usd: float = 0.0
    model_ms: float = 0.0
    tool_calls: int = 0
    tool_ms: float = 0.0
    tool_failures: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def tokens(self) -> int:
        """All tokens, cached ones included."""
        return self.input + self.output + self.cache_read + self.cache_write

    def add_model(self, numbers: dict[str, float]) -> None:
        """Add what one model did on one day."""
        for name in _MODEL_NUMBERS:
            setattr(self, name, getattr(self, name) + int(numbers.get(name, 0)))
        for name in _MODEL_SUMS:
            setattr(self, name, getattr(self, name) + numbers.get(name, 0.0))

    def add_tools(self, tools: dict[str, Any]) -> None:
        """Add what tools did on one day."""
        self.tool_calls += tools.get("calls", 0)
        self.tool_ms += tools.get("ms", 0.0)
        for category, count in tools.get("failed", {}).items():
            self.tool_failures[category] = self.tool_failures.get(category, 0) + count


@dataclass(frozen=True, slots=True)
class Usage:
    """The answer to a question about usage.

    Attributes:
        total: Over all.
        rows: By what was asked for: days from the last, else the most expensive first.
    """

    total: UsageRow
    rows: tuple[UsageRow, ...]


class UsageIndex:
    """Numbers of all session files below a folder.

    Args:
        sessions: Where they lie, one folder for each project.
        cache: The file that keeps what was read.
    """

    def __init__(self, sessions: Path, cache: Path) -> None:
        self._sessions = sessions
        self._cache = cache
        self.lines_read = 0
        """Lines that were read since this object was made; for measurements."""

    def usage(self, by: str, since: date | None = None) -> Usage:
        """Return the numbers by ``model``, ``project`` or ``day``, from ``since`` on.

        What cannot be read is left out. Takes as long as what is new takes to read.
        """
        total, rows = UsageRow("total"), dict[str, UsageRow]()
        for entry in self._entries():
            for day, numbers in entry["days"].items():
                if since is None or day >= since.isoformat():
                    _add(total, rows, numbers, by, day, str(entry.get("cwd") or "(unknown)"))
        ordered = sorted(rows.values(), key=lambda row: (-row.cost_usd, -row.tokens, row.key))
        if by == "day":
            ordered = sorted(rows.values(), key=lambda row: row.key, reverse=True)
        return Usage(total, tuple(ordered))

    def _entries(self) -> list[dict[str, Any]]:
        known, found, changed = self._load(), dict[str, dict[str, Any]](), False
        for path in sorted(self._sessions.glob("*/*.jsonl")):
            name = str(path.relative_to(self._sessions))
            entry, read = self._entry(path, known.get(name))
            changed = changed or read
            if entry is not None:
                found[name] = entry
        if changed or found.keys() != known.keys():
            self._save(found)
        return list(found.values())

    def _entry(self, path: Path, entry: dict[str, Any] | None) -> tuple[dict[str, Any] | None, bool]:
        """Return the numbers of one file, and whether anything was read for them."""
        try:
            status = path.stat()
            if entry is None or entry["inode"] != status.st_ino or entry["read"] > status.st_size:
                entry = {"inode": status.st_ino, "read": 0, "cwd": "", "days": {}}
            if entry["read"] == status.st_size:
                return entry, False
            with path.open("rb") as file:
                file.seek(entry["read"])
                for raw in file:
                    if not raw.endswith(b"\n"):
                        break
                    entry["read"] += len(raw)
                    self.lines_read += 1
                    _take(entry, raw)
        except (OSError, KeyError, TypeError):
            return None, True
        return entry, True

    def _load(self) -> dict[str, dict[str, Any]]:
        try:
            data = json.loads(self._cache.read_bytes())
            return data["files"] if data["version"] == _VERSION else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def _save(self, files: dict[str, dict[str, Any]]) -> None:
        """Keep what was read; where that is not possible, the next question takes longer."""
        with suppress(OSError):
            self._cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            data = json.dumps({"version": _VERSION, "files": files}).encode()
            write_atomic(self._cache, data, durable=False)


def _add(
    total: UsageRow, rows: dict[str, UsageRow], numbers: dict[str, Any], by: str, day: str, project: str
) -> None:
    shared: UsageRow | None = None
    if by != "model":
        key = project if by == "project" else day
        shared = rows.setdefault(key, UsageRow(key))
    for model, used in numbers["models"].items():
        row = shared if shared is not None else rows.setdefault(model, UsageRow(model))
        row.add_model(used)
        total.add_model(used)
    total.add_tools(numbers["tools"])
    if shared is not None:
        shared.add_tools(numbers["tools"])


def _take(entry: dict[str, Any], raw: bytes) -> None:
    kind = line_type(raw)
    if kind not in _WANTED:
        return
    try:
        event = json.loads(raw)
        kind = event["type"]
        if kind == "session":
            _on_session(entry, event)
        elif kind in ("provider_meta", "tool_result"):
            day = _local_day(event["ts"])
            numbers = entry["days"].setdefault(day, {"models": {}, "tools": {}})
            (_on_request if kind == "provider_meta" else _on_result)(numbers, event)
    except (ValueError, KeyError, TypeError, AttributeError):
        return


def _on_session(entry: dict[str, Any], event: dict[str, Any]) -> None:
    if event.get("action") == "fork":
        # What stands before it was copied from another session, where it counts already.
        entry["days"] = {}
    entry["cwd"] = event.get("cwd") or entry["cwd"]


def _on_request(numbers: dict[str, Any], event: dict[str, Any]) -> None:
    name, provider = str(event["model"]), str(event["provider"])
    model = numbers["models"].setdefault(
        name if name.startswith(f"{provider}/") else f"{provider}/{name}", {}
    )
    usage = event["usage"]
    cost = event.get("cost_usd")
    new: dict[str, float] = {key: usage.get(key, 0) for key in _MODEL_NUMBERS[1:6]}
    new |= {"requests": 1, "unpriced": int(cost is None), "cost_usd": cost or 0.0}
    new |= {
        "cache_saved_usd": event.get("cache_saved_usd") or 0.0,
        "model_ms": event.get("duration_ms") or 0.0,
    }
    for key, value in new.items():
        model[key] = model.get(key, 0) + value


def _on_result(numbers: dict[str, Any], event: dict[str, Any]) -> None:
    tools = numbers["tools"]
    tools["calls"] = tools.get("calls", 0) + 1
    tools["ms"] = tools.get("ms", 0.0) + (event.get("duration_ms") or 0.0)
    if event.get("is_error"):
        failed = tools.setdefault("failed", {})
        category = str(event.get("category") or "unknown")
        failed[category] = failed.get(category, 0) + 1


def _local_day(moment: str) -> str:
    return datetime.fromisoformat(moment).astimezone().date().isoformat()


def as_json(row: UsageRow) -> dict[str, Any]:
    """Return plain values for JSON; a cost of which nothing is known is ``None``."""
    plain: dict[str, Any] = {name: getattr(row, name) for name in UsageRow.__slots__}
    plain["tokens"] = row.tokens
    if row.unpriced and row.unpriced == row.requests:
        plain["cost_usd"] = None
    return plain


def in_order(counts: dict[str, int]) -> Sequence[tuple[str, int]]:
    """Return counts, the largest first."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
