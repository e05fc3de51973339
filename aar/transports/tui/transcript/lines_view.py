"""The lines that are seen, as a widget: takes what changed, keeps up with its size, draws rows.

One widget however many blocks there are: no layout, no mounting. What keys and mouse do is in `view`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from aar.transports.tui.textual_private import app_of
from aar.transports.tui.transcript.document import Document
from aar.transports.tui.transcript.finder import Finder
from aar.transports.tui.transcript.paint import overlay, put_right, strip_of
from aar.transports.tui.transcript.palette import Palette
from aar.transports.tui.transcript.selection import Selection
from aar.transports.tui.transcript.spans import cells_of
from aar.transports.tui.transcript.text import Line, shorten, shorten_start
from aar.transports.tui.transcript.viewport import Viewport

if TYPE_CHECKING:
    from aar.transports.tui.blocks import AnyBlock
    from aar.transports.tui.presenter import Changes

EDGE = 1
"""Cells on the left for the cursor's bar, and as many on the right for the thumb."""

_REST_S = 1 / 60
"""Seconds between two looks at text that came faster than it could be drawn: keys are answered there."""

_Look = tuple[Line | None, bool, bool, int]
"""What decides how a row looks: its line, the cursor's bar, the thumb, blocks that came below unseen."""


class TranscriptLines(Widget, inherit_bindings=False):
    """Draws blocks.

    Attributes:
        document: Blocks and their lines.
        viewport: Which of them are seen.
        finder: What is searched for.
        selection: What is selected.
        cursor: Key of the block that keys act on; ``None`` before one was chosen.
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.document = Document()
        self.viewport = Viewport(self.document)
        self.finder = Finder(self.document)
        self.selection = Selection(self.document)
        self.cursor: int | None = None
        self._welcome: Callable[[int], Sequence[Line]] | None = None
        self._welcome_lines: tuple[int, Sequence[Line]] = (0, ())
        self._asked_older = False
        self._palette: Palette | None = None
        self._palette_of: tuple[object, ...] = ()
        self._timer: Timer | None = None
        self._drawn: dict[int, tuple[_Look, Strip]] = {}
        self._drawn_for: tuple[object, ...] = ()
        self._empty_row = Line()

    # --- what is shown -----------------------------------------------------------------------------------

    def apply(self, changes: Changes, blocks: Sequence[AnyBlock]) -> None:
        """Draw what changed of ``blocks``, all blocks of the presenter."""
        if changes.reset:
            self.cursor = None
            self.selection.clear()
            self._asked_older = False
            self.viewport.reset(blocks)
        elif not self._apply_parts(changes, blocks):
            return
        if self.finder.query and not self.finder.typing:
            self.finder.refresh()
        self.settle()

    def _apply_parts(self, changes: Changes, blocks: Sequence[AnyBlock]) -> bool:
        older = self._older(blocks)
        if older:
            self._asked_older = False
            self.viewport.prepended(older)
        if changes.removed:
            self.document.remove(changes.removed)
        self.viewport.appended(changes.appended)
        for key in changes.changed:
            self.viewport.changed(key)
        return bool(older or changes.removed or changes.appended or changes.changed)

    def _older(self, blocks: Sequence[AnyBlock]) -> list[AnyBlock]:
        known = self.document.blocks
        if not known or not blocks or blocks[0].key >= known[0].key:
            return []
        count = next((n for n, block in enumerate(blocks) if block.key >= known[0].key), len(blocks))
        return list(blocks[:count])

    def show_when_empty(self, lines: Callable[[int], Sequence[Line]]) -> None:
        """Draw what ``lines`` makes for a width in cells, as long as there is no block."""
        if not len(self.document):
            self._welcome, self._welcome_lines = lines, (0, ())
            self.refresh()

    def settle(self) -> None:
        """Measure what is seen and draw it; go on soon with text that is not drawn yet."""
        rows = self.size.height - (1 if self.finder.typing else 0)
        self.viewport.resize(self.size.width - 2 * EDGE, rows)
        if self.has_focus:
            self._keep_cursor()
        if self.document.unfinished and self._timer is None and self.is_attached:
            self._timer = self.set_timer(_REST_S, self._go_on)
        self._refresh_changed()

    def _keep_cursor(self) -> None:
        """Let the bar stand at a block that is seen: keys act on no other."""
        if not len(self.document):
            return
        last = min(self.viewport.top + self.viewport.height, self.document.total) - 1
        seen = self.document.find(self.viewport.top)[0], self.document.find(last)[0]
        place = None if self.cursor is None else self.document.place_of(self.cursor)
        if place is None or not seen[0] <= place <= seen[1]:
            above = place is not None and place < seen[0] and not self.viewport.sticks
            nearest = seen[0] if above else seen[1]
            self.cursor = self.document.blocks[min(nearest, len(self.document) - 1)].key

    def refresh(self, *regions: Region, **wanted: bool) -> Self:
        """Draw again: ``regions``, or all."""
        if not regions:
            self._drawn.clear()
        return super().refresh(*regions, **wanted)

    def _refresh_changed(self) -> None:
        """Draw the rows again that look otherwise than they did: of a slow stream that is one or two."""
        width, height = self.size
        if self._palette is None or len(self._drawn) < height or self._is_marked:
            self.refresh()
            return
        changed = [y for y, look in enumerate(self._looks()) if not self._is_drawn(y, look)]
        if len(changed) > height // 2:
            self.refresh()
        elif changed:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    @property
    def _is_marked(self) -> bool:
        """Whether a search or a selection lies over the rows."""
        return bool(self.finder.query) or self.finder.typing or self.selection.ends is not None

    def _looks(self) -> list[_Look]:
        """Return what decides how each row looks, from the first to the last."""
        document, viewport, height = self.document, self.viewport, self.size.height
        if not len(document):
            welcome = self._welcomed(self.size.width - 2 * EDGE)
            return [(welcome[y] if y < len(welcome) else None, False, False, 0) for y in range(height)]
        thumb = self._thumb(height)
        cursor = self.cursor if self.has_focus else None
        found: list[_Look] = []
        place, inside = document.find(viewport.top)
        while len(found) < height:
            lines: Sequence[Line] = ()
            gap, count, bar = 0, height, False
            if place < len(document):
                lines, gap, count = document.lines(place), document.gap(place), document.height(place)
                bar = document.blocks[place].key == cursor
            for number in range(inside - gap, min(count, inside + height - len(found)) - gap):
                line = lines[number] if 0 <= number < len(lines) else None
                found.append((line, bar and line is not None, len(found) in thumb, 0))
            place, inside = place + 1, 0
        if found and viewport.unseen and not viewport.sticks:
            found[-1] = (*found[-1][:3], viewport.unseen)
        return found

    def _is_drawn(self, y: int, look: _Look) -> bool:
        """Whether a row stands on the screen as it is to look."""
        kept = self._drawn.get(y)
        if kept is None or kept[0][1:] != look[1:]:
            return False
        before, line = kept[0][0], look[0]
        if before is line or before is None or line is None:
            return before is line
        # The end of a text that comes is drawn anew each time: mostly as it was.
        return before.runs == line.runs and before.fill == line.fill

    def _go_on(self) -> None:
        self._timer = None
        self.settle()

    def on_resize(self) -> None:
        """Draw for the new size, what is seen first."""
        self.settle()

    def notify_style_update(self) -> None:
        """Draw anew where the theme changed."""
        super().notify_style_update()
        self._palette = None

    @property
    def palette(self) -> Palette:
        """Styles of the present theme."""
        if self._palette is None:
            app = app_of(self)
            background = self.background_colors[1]
            now = (app.theme, background)
            if now != self._palette_of:
                self._palette_of = now
                self.document.forget_lines()
                self._made = Palette(app.theme_variables, background)
            self._palette = self._made
        return self._palette

    # --- drawing -----------------------------------------------------------------------------------------

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return rows of the view, with the empty cells at their sides.

        Textual would style each row for itself: here a row that only moved is the same strip as before, and
        all that Textual keeps with it is still good.
        """
        palette, size = self.palette, self.region.size
        if self._drawn_for != (size, palette):
            self._drawn, self._drawn_for = {}, (size, palette)
        rows: list[Strip] = []
        for y, look in enumerate(self._looks()[crop.y : crop.bottom], crop.y):
            if not self._is_drawn(y, look):
                self._drawn[y] = look, self.render_row(y, look)
            rows.append(self._drawn[y][1])
        for line_filter in self.get_line_filters():
            rows = [row.apply_filter(line_filter, self.background_colors[1]) for row in rows]
        if crop.column_span != (0, size.width):
            rows = [row.crop(*crop.column_span) for row in rows]
        return rows

    def render_line(self, y: int) -> Strip:
        """Return one row of the view."""
        return self.render_row(y, self._looks()[y])

    def render_row(self, y: int, look: _Look) -> Strip:
        """Return the row at ``y``, which is to look like this."""
        palette, width = self.palette, self.size.width
        left, right = self.gutter.left, self.gutter.right
        whole = left + width + right
        if self.finder.typing and y == self.size.height - 1:
            row = self._search_row(palette, width)
            return Strip([*_blank(left, palette.ground), *row, *_blank(right, palette.ground)], whole)
        line, bar, thumb, unseen = look
        drawn = self._empty_row if line is None else line
        key = (palette, width, left, right, bar, thumb)
        strip = drawn.strip
        if strip is None or drawn.strip_of != key or self._is_marked:
            inner = strip_of(drawn, palette, width - 2 * EDGE)
            if line is not None and self._is_marked and len(self.document):
                inner = self._marked(inner, line, y, palette)
            start = Segment("▎", palette["bar.cursor"]) if bar else Segment(" " * EDGE, palette[""])
            end = Segment("▐" if thumb else " ", palette["thumb" if thumb else ""])
            row = [*_blank(left, palette.ground), start, *inner, end, *_blank(right, palette.ground)]
            strip = Strip(row, whole)
            if not self._is_marked:
                drawn.strip, drawn.strip_of = strip, key
        if y == 0 and self.finder.query and not self.finder.typing:
            told = f" /{shorten(self.finder.query, width // 3)} {self._found()} "
            strip = put_right(strip, told, palette["search"], left + width, EDGE)
        if unseen:
            strip = put_right(strip, f" {unseen} new ↓ ", palette["new"], left + width, EDGE)
        return strip

    def _welcomed(self, width: int) -> Sequence[Line]:
        if self._welcome is not None and self._welcome_lines[0] != width:
            self._welcome_lines = width, self._welcome(width)
        return self._welcome_lines[1]

    def _line_at(self, place: int, inside: int) -> Line | None:
        if place >= len(self.document):
            return None
        number = inside - self.document.gap(place)
        lines = self.document.lines(place)
        return lines[number] if 0 <= number < len(lines) else None

    def _marked(self, strip: Strip, line: Line, y: int, palette: Palette) -> Strip:
        """Lay search and selection over a row."""
        place, inside = self.document.find(self.viewport.top + y)
        number = inside - self.document.gap(place)
        if self.finder.query:
            found = self.finder.spans(place)
            here = self.finder.here
            for n, spans in enumerate(found):
                cells = [cells_of(line.text, s.start, s.end) for s in spans if s.line == number]
                if cells:
                    standing = here == (self.document.blocks[place].key, n)
                    strip = overlay(strip, cells, palette["found.here" if standing else "found"])
        span = self.selection.span(self.document.blocks[place].key, number, line)
        if span is not None:
            strip = overlay(strip, [cells_of(line.text, *span)], palette["selected"])
        return strip

    def _thumb(self, height: int) -> range:
        """Return the rows that the thumb stands in."""
        total = self.document.total
        if total <= height:
            return range(0)
        size = max(1, height * height // total)
        start = (height - size) * self.viewport.top // max(1, self.viewport.last_top)
        return range(start, start + size)

    def _search_row(self, palette: Palette, width: int) -> Strip:
        text, style = f" /{self.finder.query}▏ {self._found()}", palette["search"]
        if cell_len(text) > width:
            text = shorten_start(text, width)
        gap = width - cell_len(text)
        keys = "Enter keeps it, Esc ends "
        end = " " * (gap - len(keys)) + keys if gap > len(keys) else " " * gap
        return Strip([Segment(text, style), Segment(end, palette["search.keys"])], width)

    def _found(self) -> str:
        """Tell in how many blocks the words stand, and in which of them the search is."""
        finder = self.finder
        if not finder.count:
            return "nothing found" if finder.query else ""
        return f"block {finder.number} of {finder.count}"


def _blank(cells: int, style: Style) -> list[Segment]:
    return [Segment(" " * cells, style)] if cells else []
