"""What is selected in a transcript, by mouse or keys."""

from __future__ import annotations

from aar.transports.tui.transcript.document import Document
from aar.transports.tui.transcript.spans import Spot, copy_lines
from aar.transports.tui.transcript.text import Line


class Selection:
    """Text from one character to another. It holds to blocks, so it stays right while the transcript grows.

    Attributes:
        anchor: Where it began; ``None``: nothing is selected.
        head: Where it ends now.
    """

    def __init__(self, document: Document) -> None:
        self.anchor: Spot | None = None
        self.head: Spot | None = None
        self._document = document

    def begin(self, anchor: Spot | None, head: Spot | None = None) -> None:
        """Begin at a character; ``head`` is the other end where it is known."""
        self.anchor, self.head = anchor, head or anchor

    def clear(self) -> None:
        """Select nothing."""
        self.anchor = self.head = None

    @property
    def ends(self) -> tuple[Spot, Spot] | None:
        """First and last character in the order of the text; ``None`` when nothing lies between them."""
        if self.anchor is None or self.head is None or self.anchor == self.head:
            return None
        return min(self.anchor, self.head), max(self.anchor, self.head)

    @property
    def text(self) -> str:
        """What is selected, without decoration; empty when nothing is."""
        if self.ends is None:
            return ""
        first, last = self.ends
        start, end = self._document.place_of(first.key), self._document.place_of(last.key)
        if start is None or end is None:
            return ""
        parts: list[str] = []
        for place in range(start, end + 1):
            lines = self._document.lines(place)
            begin = (first.line, first.column) if place == start else (0, 0)
            stop = (last.line, last.column) if place == end else (len(lines) - 1, len(lines[-1].text))
            parts.append(copy_lines(lines, begin, stop))
        return "\n".join(parts)

    def span(self, key: int, number: int, line: Line) -> tuple[int, int] | None:
        """Return the characters of a line of a block that are selected."""
        if self.ends is None:
            return None
        first, last = self.ends
        if not (first.key, first.line) <= (key, number) <= (last.key, last.line):
            return None
        start = first.column if (key, number) == first[:2] else 0
        end = last.column if (key, number) == last[:2] else len(line.text)
        return max(start, line.margin), end

    def move(self, lines: int, columns: int) -> tuple[int, int] | None:
        """Move the head; return the place of its block and its line there."""
        head, document = self.head, self._document
        place = None if head is None else document.place_of(head.key)
        if head is None or place is None:
            return None
        if columns:
            kept = document.lines(place)
            size = len(kept[min(head.line, len(kept) - 1)].text)
            self.head = head._replace(column=max(0, min(size, head.column + columns)))
            return place, head.line
        step = 1 if lines > 0 else -1
        row = document.start(place) + document.gap(place) + head.line + step
        at, inside = document.find(row)
        if inside < document.gap(at) if at < len(document) else False:
            at, inside = document.find(row + step)
        if row < 0 or at >= len(document):
            return None
        number = min(inside - document.gap(at), len(document.lines(at)) - 1)
        text = document.lines(at)[number].text
        column = len(text) if step > 0 else min(head.column, len(text))
        self.head = Spot(document.blocks[at].key, number, column)
        return at, number
