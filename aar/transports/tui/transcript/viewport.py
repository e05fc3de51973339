"""Which lines of a document are seen: sticks to the end, or stays where the user looks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aar.transports.tui.blocks import AnyBlock
from aar.transports.tui.transcript.document import Document

_MAX_ROUNDS = 400


class Viewport:
    """A window of some height over a `Document`.

    Attributes:
        document: What it looks at.
        top: First line that is seen.
        height: Lines that are seen.
        sticks: Whether the end stays in view.
        unseen: Blocks that came below the view while the user was elsewhere.
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self.top = 0
        self.height = 24
        self.sticks = True
        self.unseen = 0

    @property
    def last_top(self) -> int:
        """The ``top`` that shows the end."""
        return max(0, self.document.total - self.height)

    # --- moving ------------------------------------------------------------------------------------------

    def scroll_to(self, top: int) -> None:
        """Show the lines from ``top`` on."""
        self.top = max(0, min(top, self.last_top))
        self.sticks = False
        self.settle()
        # The end is known only now that what is seen was measured.
        if top >= self.last_top:
            self.to_end()

    def scroll_by(self, lines: int) -> None:
        """Move the view by some lines."""
        if lines > 0 and self.sticks:
            return
        self.scroll_to(self.top + lines)

    def to_end(self) -> None:
        """Go to the end and stay there."""
        self.sticks = True
        self.unseen = 0
        self.settle()

    def show_block(self, place: int, line: int = 0, *, at_top: bool = False) -> None:
        """Bring a line of a block into view."""
        self._measure(place)
        first = self.document.start(place)
        row = first + self.document.gap(place) + line
        if at_top or not self.top <= row < self.top + self.height:
            wanted = first if at_top or not line else row - self.height // 3
            self.scroll_to(wanted)

    # --- changes -----------------------------------------------------------------------------------------

    def reset(self, blocks: Iterable[AnyBlock]) -> None:
        """Look at the end of other blocks."""
        self.document.reset(blocks)
        self.to_end()

    def resize(self, width: int, height: int) -> None:
        """Take another size; what stands at the top stays there."""
        self.height = max(1, height)
        if self.document.width != width:
            anchor = self.document.find(self.top)
            self.document.resize(width)
            self._hold(anchor)
        self.settle()

    def refold(self) -> None:
        """Draw anew after many blocks were folded; what stands at the top stays there."""
        anchor = self.document.find(self.top)
        self.document.refold()
        self._hold(anchor)
        self.settle()

    def changed(self, key: int) -> None:
        """Take notice that a block is to be drawn again, by its owner or by a fold."""
        self.document.change(key)

    def appended(self, blocks: Sequence[AnyBlock]) -> None:
        """Take new blocks at the end."""
        for block in blocks:
            self.document.append(block)
        if not self.sticks:
            self.unseen += len(blocks)

    def prepended(self, blocks: Sequence[AnyBlock]) -> None:
        """Take older blocks before the first; the view does not move."""
        self.top += self.document.prepend(blocks)
        self.settle()

    def _hold(self, anchor: tuple[int, int]) -> None:
        place, line = anchor
        if self.sticks or place >= len(self.document):
            return
        self._measure(place)
        self.top = self.document.start(place) + min(line, self.document.height(place) - 1)

    def _measure(self, place: int) -> int:
        return 0 if self.document.measured(place) else self.document.measure(place)

    def settle(self) -> None:
        """Measure what is seen, until it stays where it is.

        A block above the view that turns out taller or shorter moves ``top`` with it: nothing jumps.
        """
        drawn: set[int] = set()
        for _ in range(_MAX_ROUNDS):
            self.top = self.last_top if self.sticks else max(0, min(self.top, self.last_top))
            if not self._measure_seen(drawn):
                return

    def _measure_seen(self, drawn: set[int]) -> bool:
        document, changed = self.document, False
        place, inside = document.find(self.top)
        row = self.top - inside
        while place < len(document) and row < self.top + self.height:
            if place not in drawn and not document.measured(place):
                drawn.add(place)
                known = document.blocks[place].live
                delta = document.measure(place)
                changed = changed or delta != 0
                if delta and row < self.top and not self.sticks and not known:
                    self.top = max(row, self.top + delta)
            row += document.height(place)
            place += 1
        return changed
