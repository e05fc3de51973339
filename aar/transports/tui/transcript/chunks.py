"""Cuts Markdown into pieces that can be drawn one by one, while it still comes.

Where a text is cut depends on its complete lines alone, so that a stream gives the same pieces as the whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_ROWS = 100
"""Lines of one piece: a longer table goes on under a second head, a longer quote in a second piece."""

_FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})([^`]*)$")
_HEADING = re.compile(r"^#{1,6}(\s|$)")
_ITEM = re.compile(r"^([-*+]|\d{1,9}[.)])(\s|$)")
_INTERRUPTS = re.compile(r"^([-*+]|1[.)])\s+\S")
_DELIMITER = re.compile(r"^\s{0,3}\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$")


@dataclass(slots=True)
class Chunk:
    """A piece of a text.

    Attributes:
        text: Whole lines.
        tight: Whether it follows the piece before without an empty line.
        fence: Whether it is one block of code between fences.
    """

    text: str
    tight: bool = False
    fence: bool = False


class Splitter:
    """Takes complete lines and gives pieces as soon as they are closed."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.tight = False
        self._fence: tuple[str, int] | None = None
        self._is_list = False
        self._is_fence = False
        self._blank = False

    @property
    def in_fence(self) -> bool:
        """Whether the open piece is a block of code that is not closed yet."""
        return self._is_fence and self._fence is not None

    def feed(self, row: str) -> Chunk | None:
        """Take the next line; return the piece that it closed."""
        if self._fence is not None:
            self.rows.append(row)
            mark = row.strip()
            if mark and set(mark) == {self._fence[0]} and len(mark) >= self._fence[1]:
                self._fence = None
            return None
        if not row.strip():
            self._blank = True
            if self.rows:
                self.rows.append(row)
            return None
        closed = None
        if self.rows:
            cut = self._cut_before(row)
            if cut:
                closed = self._close()
                self._begin(row, tight=cut == "tight")
            elif len(self.rows) >= MAX_ROWS:
                head = self._table_head()
                closed = self._close()
                self._begin(row, tight=True)
                self.rows = [*head, row]
            else:
                self.rows.append(row)
        else:
            self._begin(row, tight=self.tight)
        self._blank = False
        self._open_fence(row)
        return closed

    def finish(self) -> Chunk | None:
        """Return what is left."""
        return self._close() if self.rows else None

    def _cut_before(self, row: str) -> str:
        """Return ``tight`` or ``loose`` where a piece ends before ``row``, else nothing."""
        loose = "loose"
        if self._is_fence or _HEADING.match(row) or _HEADING.match(self.rows[0]):
            return loose
        fence = _FENCE.match(row)
        if fence and not fence[1]:
            return loose
        if self._is_list:
            if _ITEM.match(row):
                return loose if self._blank else "tight"
            return loose if self._blank and not row[0].isspace() else ""
        if self._blank:
            return loose
        return "tight" if _INTERRUPTS.match(row) else ""

    def _begin(self, row: str, tight: bool) -> None:
        self.rows = [row]
        self.tight = tight
        self._is_list = _ITEM.match(row) is not None
        self._is_fence = False

    def _open_fence(self, row: str) -> None:
        mark = _FENCE.match(row)
        if mark and not (mark[2][0] == "`" and "`" in mark[3]):
            self._fence = (mark[2][0], len(mark[2]))
            self._is_fence = len(self.rows) == 1 and not mark[1]

    def _close(self) -> Chunk:
        chunk = Chunk("\n".join(self.rows).rstrip("\n") + "\n", self.tight, self._is_fence)
        self.rows = []
        self.tight = False
        return chunk

    def _table_head(self) -> list[str]:
        is_table = len(self.rows) > 1 and "|" in self.rows[0] and _DELIMITER.match(self.rows[1])
        return self.rows[:2] if is_table else []


def split_chunks(text: str) -> list[Chunk]:
    """Return the pieces of a whole text."""
    splitter = Splitter()
    chunks = [chunk for row in text.split("\n") if (chunk := splitter.feed(row)) is not None]
    last = splitter.finish()
    return [*chunks, last] if last is not None else chunks
