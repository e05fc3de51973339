"""All blocks of a transcript as one long list of lines, of which only those near the view are kept."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from aar.transports.tui.blocks import AnswerBlock, AnyBlock
from aar.transports.tui.transcript.folds import Fold, Folds, is_line, is_quiet
from aar.transports.tui.transcript.line_map import LineMap
from aar.transports.tui.transcript.outline import guess_height
from aar.transports.tui.transcript.text import Line

if TYPE_CHECKING:
    from aar.transports.tui.transcript.stream import MarkdownStream

KEPT_LINES = 6_000
"""Lines of finished blocks that stay in memory; others are drawn again when they are scrolled to."""
_FRAME_LOOKS = 400
"""Looks at lines within which a block that is seen is looked at again: two a row of a tall terminal."""


class Document:
    """Blocks, their heights and their lines.

    Heights of blocks that were never drawn are guessed; `measure` puts them right. Keys of blocks
    grow from the first to the last.

    Attributes:
        blocks: Oldest first.
        folds: What is folded; change it through this class or call `refold` after.
        width: Cells of a line.
    """

    def __init__(self) -> None:
        self.blocks: list[AnyBlock] = []
        self.folds = Folds()
        self.width = 80
        self._keys: list[int] = []
        self._gaps: list[int] = []
        self._map = LineMap()
        self._measured: set[int] = set()
        self._cache: OrderedDict[int, list[Line]] = OrderedDict()
        self._cached_lines = 0
        self._looks = 0
        self._looked_at: dict[int, int] = {}
        self._streams: dict[int, tuple[MarkdownStream, int]] = {}

    # --- what it holds -----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.blocks)

    @property
    def total(self) -> int:
        """Lines of all blocks, as far as known."""
        return self._map.total

    @property
    def unfinished(self) -> bool:
        """Whether a block has text that is not drawn yet; it goes on at the next `measure`."""
        return any(not stream.done for stream, _ in self._streams.values())

    @property
    def kept_lines(self) -> int:
        """Lines in memory."""
        return self._cached_lines

    def place_of(self, key: int) -> int | None:
        """Return where the block with ``key`` stands."""
        place = bisect_left(self._keys, key)
        return place if place < len(self._keys) and self._keys[place] == key else None

    def find(self, line: int) -> tuple[int, int]:
        """Return the place of the block at ``line`` and the line within it, its gap included."""
        return self._map.find(line)

    def start(self, place: int) -> int:
        """Return the first line of a block, its gap included."""
        return self._map.start(place)

    def height(self, place: int) -> int:
        """Return the lines of a block, its gap included."""
        return self._map[place]

    def gap(self, place: int) -> int:
        """Return the empty lines before a block."""
        return self._gaps[place]

    def fold_of(self, place: int) -> Fold:
        """Return how much of a block is shown."""
        return self.folds.of(self.blocks[place])

    # --- what changes it ---------------------------------------------------------------------------------

    def reset(self, blocks: Iterable[AnyBlock]) -> None:
        """Hold other blocks."""
        self.blocks = list(blocks)
        self._keys = [block.key for block in self.blocks]
        self._streams.clear()
        self._guess_all()

    def resize(self, width: int) -> None:
        """Draw for another width."""
        self.width = max(8, width)
        self._streams.clear()
        self._guess_all()

    def refold(self) -> None:
        """Take notice that `folds` changed for many blocks."""
        self._guess_all()

    def append(self, block: AnyBlock) -> None:
        """Add a block at the end."""
        self.blocks.append(block)
        self._keys.append(block.key)
        gap = self._gap_before(len(self.blocks) - 1)
        self._gaps.append(gap)
        self._map.append(gap + self._guess(block))

    def change(self, key: int) -> None:
        """Take notice that a block is to be drawn again."""
        place = self.place_of(key)
        if place is None:
            return
        self._forget(key)
        self._measured.discard(key)
        if place + 1 < len(self.blocks):
            self._set_gap(place + 1)

    def remove(self, keys: set[int]) -> None:
        """Take blocks away. Cheap where they stand near the end."""
        known = [key for key in keys if self.place_of(key) is not None]
        if not known:
            return
        first = self.place_of(min(known)) or 0
        kept = [block for block in self.blocks[first:] if block.key not in keys]
        for key in known:
            self._forget(key)
            self._streams.pop(key, None)
            self._measured.discard(key)
        heights = {self._keys[n]: self._map[n] - self._gaps[n] for n in range(first, len(self.blocks))}
        for listed in (self.blocks, self._keys, self._gaps):
            del listed[first:]
        self._map.truncate(first)
        for block in kept:
            self.blocks.append(block)
            self._keys.append(block.key)
            self._gaps.append(self._gap_before(len(self.blocks) - 1))
            self._map.append(self._gaps[-1] + heights[block.key])

    def prepend(self, blocks: Sequence[AnyBlock]) -> int:
        """Put older blocks before the first; return by how many lines the others moved down."""
        before = self.total
        heights = [self._map[n] for n in range(len(self.blocks))]
        self.blocks[:0] = blocks
        self._keys[:0] = [block.key for block in blocks]
        older = [self._gap_before(n) for n in range(len(blocks))]
        self._gaps[:0] = older
        guessed = [gap + self._guess(block) for gap, block in zip(older, blocks, strict=True)]
        self._map.rebuild([*guessed, *heights])
        if len(blocks) < len(self.blocks):
            self._set_gap(len(blocks))
        return self.total - before

    # --- lines -------------------------------------------------------------------------------------------

    def measured(self, place: int) -> bool:
        """Whether the height of a block is what it has when drawn."""
        return self._keys[place] in self._measured

    def measure(self, place: int) -> int:
        """Draw a block; return by how much its height was wrong."""
        key = self._keys[place]
        if key in self._streams and key not in self._cache:
            self._draw_on(self.blocks[place])
        count = len(self.lines(place))
        if key not in self._streams or self._streams[key][0].done:
            self._measured.add(key)
        return self._map.set(place, self._gaps[place] + count)

    def lines(self, place: int) -> list[Line]:
        """Return the lines of a block, without its gap."""
        block = self.blocks[place]
        self._looks += 1
        self._looked_at[block.key] = self._looks
        kept = self._cache.get(block.key)
        if kept is not None:
            self._cache.move_to_end(block.key)
            return kept
        fold = self.folds.of(block)
        if block.key in self._streams or (block.live and isinstance(block, AnswerBlock)):
            if fold == "folded":
                self._streams.pop(block.key, None)
            else:
                return self._streamed(block)
        # Here, so that the first frame, which is empty, does not wait for it.
        from aar.transports.tui.transcript.render import render_block

        lines = render_block(block, self.width, fold)
        self._keep(block.key, lines)
        return lines

    def _streamed(self, block: AnyBlock) -> list[Line]:
        """Return what is drawn so far of an answer that comes; `measure` draws on, not every look at it."""
        if block.key not in self._streams:
            from aar.transports.tui.transcript.render import MARGIN
            from aar.transports.tui.transcript.stream import MarkdownStream

            self._streams[block.key] = (MarkdownStream(self.width, MARGIN), -1)
            self._draw_on(block)
        kept = self._cache.get(block.key)
        return kept if kept is not None else self._streams[block.key][0].lines or [Line()]

    def _draw_on(self, block: AnyBlock) -> None:
        """Draw what came of an answer; keep its lines like those of others once they are complete."""
        from aar.transports.tui.transcript.render import answer_end

        stream, seen = self._streams[block.key]
        if not isinstance(block, AnswerBlock):
            return
        if seen != block.revision or not stream.done:
            stream.update(block.text, final=not block.live)
            self._streams[block.key] = (stream, block.revision)
        if not block.live and stream.done:
            del self._streams[block.key]
            self._keep(block.key, [*stream.lines, *answer_end(block, self.width)] or [Line()])

    def forget_lines(self) -> None:
        """Draw everything again when it is needed: the colours changed."""
        self._cache.clear()
        self._cached_lines = 0
        self._streams.clear()

    def _keep(self, key: int, lines: list[Line]) -> None:
        self._cache[key] = lines
        self._cached_lines += len(lines)
        while self._cached_lines > KEPT_LINES and len(self._cache) > 1:
            oldest = next(iter(self._cache))
            if self._looks - self._looked_at.get(oldest, -_FRAME_LOOKS) < _FRAME_LOOKS:
                # It is seen: a block of many lines would be drawn again for every frame.
                break
            self._looked_at.pop(oldest, None)
            self._cached_lines -= len(self._cache.pop(oldest))

    def _forget(self, key: int) -> None:
        self._looked_at.pop(key, None)
        gone = self._cache.pop(key, None)
        if gone is not None:
            self._cached_lines -= len(gone)

    # --- heights -----------------------------------------------------------------------------------------

    def _guess(self, block: AnyBlock) -> int:
        return guess_height(block, self.width, self.folds.of(block))

    def _guess_all(self) -> None:
        self._cache.clear()
        self._cached_lines = 0
        self._measured.clear()
        self._gaps = [self._gap_before(place) for place in range(len(self.blocks))]
        self._map.rebuild(
            gap + self._guess(block) for gap, block in zip(self._gaps, self.blocks, strict=True)
        )

    def _gap_before(self, place: int) -> int:
        if place == 0:
            return 0
        before = self.blocks[place - 1]
        return 0 if is_line(before, self.folds.of(before)) and is_quiet(self.blocks[place]) else 1

    def _set_gap(self, place: int) -> None:
        gap = self._gap_before(place)
        self._map.set(place, self._map[place] + gap - self._gaps[place])
        self._gaps[place] = gap
