"""Two ways to search, with equal results: `Ripgrep` and `Plain`.

Each first counts matches in all files, which tells totals and lets the caller sort and page, and then
fetches the lines of the few files of one page.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Final, Protocol

from aar.protocol.errors import ToolCategory, ToolFailure
from aar.protocol.ports import ToolContext
from aar.tools.builtin import ripgrep
from aar.tools.builtin.text_file import detect_encoding, is_binary
from aar.tools.builtin.walk import glob_regex, walk

MAX_LINE: Final = 500
"""Characters of a line that are shown."""
_LEAD: Final = 150
_LARGEST: Final = 256 * 1024 * 1024
_COUNT: Final = re.compile(rb"([^\0]+)\0(\d+)\r?\n")


@dataclass(frozen=True, slots=True)
class Query:
    """What to search: ``only`` names one file in ``root``, else the whole tree is searched."""

    root: Path
    pattern: str
    glob: str | None
    only: str | None
    ignore_case: bool
    literal: bool
    context: int


@dataclass(frozen=True, slots=True)
class Line:
    """One line to show: a match, or context."""

    number: int
    text: str
    match: bool


class Engine(Protocol):
    """A way to search."""

    async def counts(self) -> dict[str, int] | None:
        """Return how many lines match, by file (relative to the root); ``None``: cannot run here."""
        ...

    async def lines(self, wanted: Mapping[str, int]) -> dict[str, list[Line]]:
        """Return the first so many matches of each file, with their context, by number."""
        ...


def invalid_regex(reason: str) -> ToolFailure:
    """Return the failure for a pattern that is no regular expression."""
    return ToolFailure(
        ToolCategory.INVALID_ARGUMENTS,
        f"The pattern is not a valid regular expression: {reason}. Escape special characters with a "
        "backslash, or set literal=true.",
    )


class Ripgrep:
    """Searches with ripgrep."""

    def __init__(self, query: Query, ctx: ToolContext) -> None:
        self._query = query
        self._ctx = ctx

    async def counts(self) -> dict[str, int] | None:
        """See `Engine`."""
        query = self._query
        names = [] if query.only else ripgrep.name_filter(query.glob)
        target = f"./{query.only}" if query.only else "."
        result = await ripgrep.run(
            self._ctx,
            query.root,
            ["--count", "--null", "--with-filename", *names, *self._flags(), "--", target],
        )
        if result is None:
            return None
        if result.exit_code not in (0, 1) and not result.output:
            self._demand_valid(result.stderr.decode("utf-8", "replace"))
        found = _COUNT.findall(result.output)
        return {_name(path): int(count) for path, count in found}

    async def lines(self, wanted: Mapping[str, int]) -> dict[str, list[Line]]:
        """See `Engine`."""
        if not wanted:
            return {}
        flags = ["--json", f"--context={self._query.context}", f"--max-count={max(wanted.values())}"]
        files = [f"./{name}" for name in wanted]
        result = await ripgrep.run(self._ctx, self._query.root, [*flags, *self._flags(), "--", *files])
        found: dict[str, list[Line]] = {}
        for record in (result.output if result else b"").splitlines():
            _take_record(record, found)
        return found

    def _flags(self) -> list[str]:
        query = self._query
        return [
            "--crlf",
            "--ignore-case" if query.ignore_case else "--case-sensitive",
            "--fixed-strings" if query.literal else "--engine=auto",
            f"--regexp={query.pattern}",
        ]

    def _demand_valid(self, stderr: str) -> None:
        lines = [line for line in stderr.splitlines() if line.startswith("error:")]
        if lines:
            raise invalid_regex(lines[0].removeprefix("error:").strip())
        if "regex" in stderr or "PCRE" in stderr:
            raise invalid_regex(" ".join(stderr.split())[:300])


def _name(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape").removeprefix("./")


def _bytes(value: dict[str, str]) -> bytes:
    if "text" in value:
        return value["text"].encode()
    return base64.b64decode(value["bytes"])


def _take_record(record: bytes, found: dict[str, list[Line]]) -> None:
    """Add one JSON record of ripgrep; whatever is no line is left out."""
    try:
        message: dict[str, Any] = json.loads(record)
    except ValueError:
        return
    if message.get("type") not in ("match", "context"):
        return
    data = message["data"]
    raw = _bytes(data["lines"])
    start = data["submatches"][0]["start"] if data["submatches"] else 0
    offset = len(raw[:start].decode("utf-8", "replace"))
    text = raw.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
    is_match = message["type"] == "match"
    found.setdefault(_name(_bytes(data["path"])), []).append(
        Line(data["line_number"], shorten(text, offset if is_match else 0), is_match)
    )


def shorten(text: str, start: int) -> str:
    """Cut a long line to `MAX_LINE` characters around offset ``start``."""
    if len(text) <= MAX_LINE:
        return text
    first = max(min(start - _LEAD, len(text) - MAX_LINE), 0)
    shown = text[first : first + MAX_LINE]
    return ("…" if first else "") + shown + ("…" if first + MAX_LINE < len(text) else "")


class Plain:
    """Searches in Python."""

    def __init__(self, query: Query) -> None:
        self._query = query
        source = re.escape(query.pattern) if query.literal else query.pattern.replace("(?<", "(?P<")
        source = source.replace("(?P<=", "(?<=").replace("(?P<!", "(?<!") if not query.literal else source
        self._source = source
        self._stop = Event()

    async def counts(self) -> dict[str, int] | None:
        """See `Engine`."""
        return await self._in_thread(self._counts)

    async def lines(self, wanted: Mapping[str, int]) -> dict[str, list[Line]]:
        """See `Engine`."""
        return await self._in_thread(lambda: {name: self._lines(name, most) for name, most in wanted.items()})

    async def _in_thread(self, work: Any) -> Any:
        try:
            return await asyncio.to_thread(work)
        except asyncio.CancelledError:
            self._stop.set()
            raise

    def _compiled(self) -> re.Pattern[str]:
        try:
            return re.compile(self._source, re.IGNORECASE if self._query.ignore_case else 0)
        except (re.error, RecursionError, OverflowError) as error:
            raise invalid_regex(str(error)) from None

    def _counts(self) -> dict[str, int]:
        search = self._compiled().search
        query = self._query
        matches = glob_regex(query.glob).fullmatch if query.glob else None
        counts: dict[str, int] = {}
        for name in [query.only] if query.only else walk(query.root, self._stop):
            if self._stop.is_set():
                break
            if matches is not None and not matches(name):
                continue
            count = sum(1 for line in _read_lines(query.root / name) if search(line))
            if count:
                counts[name] = count
        return counts

    def _lines(self, name: str, most: int) -> list[Line]:
        search = self._compiled().search
        lines = _read_lines(self._query.root / name)
        hits: dict[int, int] = {}
        for number, line in enumerate(lines):
            found = search(line)
            if found:
                hits[number] = found.start()
            if len(hits) == most:
                break
        around = self._query.context
        near = {
            number + step
            for number in hits
            for step in range(-around, around + 1)
            if 0 <= number + step < len(lines)
        }
        return [
            Line(number + 1, shorten(lines[number], hits.get(number, 0)), number in hits)
            for number in sorted(near)
        ]


def _read_lines(path: Path) -> list[str]:
    """Return the lines of a text file; none for a binary, unreadable or huge one."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_size > _LARGEST:
            return []
        data = file.read()
    if is_binary(data):
        return []
    codec, mark = detect_encoding(data)
    text = data[len(mark) :].decode(codec, "replace")
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]
