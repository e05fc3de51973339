"""Search in a transcript: which blocks have the words, and the way from one place to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aar.safety.sanitize import sanitize, sanitize_prose
from aar.transports.tui.blocks import AnyBlock
from aar.transports.tui.transcript.document import Document
from aar.transports.tui.transcript.outline import searchable
from aar.transports.tui.transcript.spans import Span, find_all
from aar.transports.tui.transcript.text import Line


class _Found(NamedTuple):
    lines: Sequence[Line]
    state: tuple[int, int]
    spans: list[list[Span]]


class Finder:
    """One search.

    Attributes:
        query: What is looked for; empty: nothing. Capitals are minded where the query has some.
        typing: Whether the user still writes it.
        here: Key of a block and number of the place within it, where the search stands.
    """

    def __init__(self, document: Document) -> None:
        self.query = ""
        self.typing = False
        self.here: tuple[int, int] | None = None
        self._document = document
        self._keys: list[int] = []
        self._spans: dict[int, _Found] = {}

    def look(self, query: str) -> None:
        """Look for other words."""
        narrower = bool(self.query) and query.startswith(self.query) and query.lower() == query
        old, self.query = self._keys, query
        self.here = None
        self._spans.clear()
        if not query:
            self._keys = []
            return
        candidates = (
            [block for key in old if (block := self._block(key)) is not None]
            if narrower
            else self._document.blocks
        )
        self._keys = [block.key for block in candidates if self._has(searchable(block))]

    def refresh(self) -> None:
        """Take notice of new blocks."""
        query, here = self.query, self.here
        if query:
            self.query = ""
            self.look(query)
            self.here = here

    def _block(self, key: int) -> AnyBlock | None:
        place = self._document.place_of(key)
        return None if place is None else self._document.blocks[place]

    def _has(self, text: str) -> bool:
        query = self.query
        text = text if query != query.lower() else text.lower()
        return query in text or query in sanitize(text) or query in sanitize_prose(text)

    @property
    def count(self) -> int:
        """Blocks that have the words."""
        return len(self._keys)

    @property
    def number(self) -> int:
        """Which of those the search stands in, from 1; 0: in none."""
        return self._keys.index(self.here[0]) + 1 if self.here and self.here[0] in self._keys else 0

    def spans(self, place: int) -> list[list[Span]]:
        """Return where the words stand in the lines of a block."""
        key = self._document.blocks[place].key
        if not self.query:
            return []
        lines = self._document.lines(place)
        kept = self._spans.get(key)
        # The lines of an answer that comes are one list that grows.
        state = (len(lines), self._document.blocks[place].revision)
        if kept is not None and kept.lines is lines and kept.state == state:
            return kept.spans
        found = find_all(lines, self.query)
        if len(self._spans) > 200:
            self._spans.clear()
        self._spans[key] = _Found(lines, state, found)
        return found

    def step(self, forward: bool, start_key: int) -> tuple[int, Span] | None:
        """Go to the next place, or to the one before; begin at a block when the search stands nowhere.

        Returns:
            Place of the block and the span; ``None`` when nothing is found.
        """
        if not self._keys:
            return None
        if self.here is not None:
            key, number = self.here
            found = self._at(key, number + (1 if forward else -1))
            if found is not None:
                return found
            order = self._following(key, forward, include=False)
        else:
            order = self._following(start_key, forward, include=True)
        for key in order:
            found = self._at(key, 0 if forward else -1, opened=True)
            if found is not None:
                return found
        return None

    def _following(self, key: int, forward: bool, *, include: bool) -> list[int]:
        """Return the keys from one on, all around."""
        keys = self._keys if forward else self._keys[::-1]
        ahead = [k for k in keys if (k > key if forward else k < key) or (include and k == key)]
        taken = set(ahead)
        return ahead + [k for k in keys if k not in taken]

    def _at(self, key: int, number: int, *, opened: bool = False) -> tuple[int, Span] | None:
        place = self._document.place_of(key)
        if place is None:
            return None
        found = self.spans(place)
        if not found and opened and self._document.fold_of(place) != "full":
            block = self._document.blocks[place]
            self._document.folds.set(block, "full")
            self._document.change(key)
            found = self.spans(place)
        if opened and number < 0:
            number += len(found)
        if not 0 <= number < len(found):
            return None
        self.here = (key, number)
        return place, found[number][0]
