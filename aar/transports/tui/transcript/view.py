"""The transcript's keys and mouse, and what it tells the app that the user wants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from aar.transports.tui.blocks import UserBlock
from aar.transports.tui.transcript.lines_view import EDGE
from aar.transports.tui.transcript.outline import copyable
from aar.transports.tui.transcript.searching import SearchableLines
from aar.transports.tui.transcript.spans import Link, Spot, column_at, link_at, links_in


def _key(name: str, keys: str, action: str, label: str, sentence: str, show: bool = False) -> Binding:
    return Binding(keys, action, label, show=show, id=f"transcript.{name}", tooltip=sentence)


class Transcript(SearchableLines, can_focus=True):
    """Draws the blocks of a presenter.

    `apply` tells it what changed; it never asks. What it wants is in its messages.
    """

    ALLOW_SELECT = False
    DEFAULT_CSS = "Transcript { width: 1fr; height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        _key("up", "up", "line(-1)", "up", "Go up a line; while selecting, take one line less or more."),
        _key("down", "down", "line(1)", "down", "Go down a line; while selecting, take one more."),
        _key("page_up", "pageup", "page(-1)", "page up", "Go up a screenful."),
        _key("page_down", "pagedown", "page(1)", "page down", "Go down a screenful."),
        _key("top", "home,g", "top", "top", "Go to the top; once more loads what is before."),
        _key("end", "end,G", "end", "end", "Go to the end and follow what comes."),
        _key("next_block", "j", "block(1)", "next", "Go to the next block."),
        _key("previous_block", "k", "block(-1)", "previous", "Go to the block before."),
        _key("next_prompt", "right_square_bracket", "prompt(1)", "next prompt", "Go to your next prompt."),
        _key(
            "previous_prompt",
            "left_square_bracket",
            "prompt(-1)",
            "previous prompt",
            "Go to your prompt before.",
        ),
        _key("fold", "enter,space", "fold", "fold", "Fold or unfold the block at the bar.", show=True),
        _key("fold_kind", "f", "fold_kind", "fold kind", "Fold or unfold all blocks of that kind."),
        _key("fold_all", "F", "fold_all", "fold all", "Unfold everything; once more: as usual."),
        _key("search", "slash", "search", "search", "Search in the transcript.", show=True),
        _key("next_found", "n", "found(1)", "next", "Go to the next place that was found.", show=True),
        _key("previous_found", "N", "found(-1)", "previous found", "Go to the place before that was found."),
        _key("copy", "y,ctrl+c", "copy", "copy", "Copy the selection, else the block at the bar.", show=True),
        _key("copy_code", "c", "copy_code", "copy code", "Copy the next block of code."),
        _key("select", "v", "select", "select", "Select with the arrow keys; once more ends it."),
        _key("left", "left", "column(-1)", "left", "While selecting, take a character less."),
        _key("right", "right", "column(1)", "right", "While selecting, take a character more."),
        _key("open_link", "o", "open_link", "open", "Open the first link or file of the block."),
        _key("leave", "escape", "leave", "back", "Drop selection or search, else go to the prompt.", True),
    ]

    @dataclass
    class CopyWanted(Message):
        """The user copies ``text``; ``what`` says in a word what it is."""

        text: str
        what: str

    @dataclass
    class LinkOpened(Message):
        """The user opens a link: a web address, or a file at a line."""

        link: Link

    class OlderWanted(Message):
        """The user is at the top and wants what is before."""

    class Left(Message):
        """The user goes back to the prompt."""

    _dragging = False

    # --- moving ------------------------------------------------------------------------------------------

    def scroll_lines(self, lines: int) -> None:
        """Move the view; at the top, ask for what is before."""
        self.viewport.scroll_by(lines)
        if lines < 0 and self.viewport.top == 0 and not self._asked_older:
            self._asked_older = True
            self.post_message(self.OlderWanted())
        self.settle()

    def action_line(self, step: int) -> None:
        """Move a line, or the end of the selection by one."""
        if self.selection.anchor is not None:
            self._move_head(lines=step)
        else:
            self.scroll_lines(step)

    def action_column(self, step: int) -> None:
        """Move the end of the selection by a character."""
        if self.selection.anchor is not None:
            self._move_head(columns=step)

    def action_page(self, step: int) -> None:
        """Move a screenful, less two lines."""
        self.scroll_lines(step * max(1, self.size.height - 2))

    def action_top(self) -> None:
        """Go to the first line that is loaded."""
        self.scroll_lines(-self.document.total - 1)

    def action_end(self) -> None:
        """Go to the end and stay there."""
        self.viewport.to_end()
        self.settle()

    def action_block(self, step: int) -> None:
        """Go to the next block, or the one before."""
        place = self._cursor_place()
        if place is not None:
            if self.cursor is None:
                top = min(self.document.find(self.viewport.top)[0], place)
                self._go_to(top if step > 0 and not self.viewport.sticks else place)
            else:
                self._go_to(place + step)

    def action_prompt(self, step: int) -> None:
        """Go to the next thing the user said, or the one before."""
        place = self._cursor_place()
        if place is None:
            return
        fresh = self.cursor is None and isinstance(self.document.blocks[place], UserBlock)
        place = place if fresh else place + step
        while 0 <= place < len(self.document):
            if isinstance(self.document.blocks[place], UserBlock):
                self._go_to(place, at_top=True)
                return
            place += step

    def _cursor_place(self) -> int | None:
        """Return the place of the block that the cursor is on: at first the lowest that is seen whole."""
        place = None if self.cursor is None else self.document.place_of(self.cursor)
        if place is not None or not len(self.document):
            return place
        last = min(self.viewport.top + self.viewport.height, self.document.total) - 1
        return min(self.document.find(last)[0], len(self.document) - 1)

    def _go_to(self, place: int, *, at_top: bool = False) -> None:
        if not 0 <= place < len(self.document):
            return
        self.cursor = self.document.blocks[place].key
        self.viewport.show_block(place, at_top=at_top)
        self.settle()

    # --- folding -----------------------------------------------------------------------------------------

    def action_fold(self) -> None:
        """Fold or unfold the block at the cursor."""
        place = self._cursor_place()
        if place is not None:
            self.toggle(place)

    def toggle(self, place: int) -> None:
        """Fold or unfold one block."""
        block = self.document.blocks[place]
        self.cursor = block.key
        self._clear_selection()
        self.document.folds.toggle(block)
        sticks = self.viewport.sticks
        self.document.change(block.key)
        self.viewport.sticks = False
        self.viewport.show_block(place)
        if self.document.start(place) < self.viewport.top:
            self.viewport.scroll_to(self.document.start(place))
        if sticks and self.viewport.top >= self.viewport.last_top:
            self.viewport.to_end()
        self.settle()

    def action_fold_kind(self) -> None:
        """Fold or unfold every block of the kind of the one at the cursor."""
        place = self._cursor_place()
        if place is None:
            return
        block = self.document.blocks[place]
        self.document.folds.set_kind(block, "folded" if self.document.fold_of(place) == "full" else "full")
        self._refold()

    def action_fold_all(self) -> None:
        """Unfold everything; once more: as usual."""
        folds = self.document.folds
        folds.set_all(None if folds.all_open else "full")
        self._refold()

    def _refold(self) -> None:
        self._clear_selection()
        self.viewport.refold()
        self.settle()

    # --- selecting and copying ---------------------------------------------------------------------------

    @property
    def selected_text(self) -> str:
        """What is selected, without decoration; empty when nothing is."""
        return self.selection.text

    def action_select(self) -> None:
        """Begin a selection at the cursor's block, with the keys; once more: end it."""
        if self.selection.anchor is not None:
            self._clear_selection()
            return
        place = self._cursor_place()
        if place is not None:
            self.cursor = key = self.document.blocks[place].key
            lines = self.document.lines(place)
            hidden = self.viewport.top - self.document.start(place) - self.document.gap(place)
            row = max(0, min(hidden, len(lines) - 1))
            self.selection.begin(Spot(key, row, lines[row].margin), Spot(key, row, len(lines[row].text)))
            self.refresh()

    def _move_head(self, lines: int = 0, columns: int = 0) -> None:
        moved = self.selection.move(lines, columns)
        if moved is not None:
            self.viewport.show_block(*moved)
        self.settle()

    def _clear_selection(self) -> None:
        self.selection.clear()
        self.refresh()

    def action_copy(self) -> None:
        """Copy the selection, else the block at the cursor."""
        text = self.selected_text
        if text:
            self.post_message(self.CopyWanted(text, "selection"))
            self._clear_selection()
            return
        place = self._cursor_place()
        if place is not None:
            self.post_message(self.CopyWanted(copyable(self.document.blocks[place]), "block"))

    def action_copy_code(self) -> None:
        """Copy the first block of code at or below the cursor, else the last above it."""
        place = self._cursor_place()
        if place is None:
            return
        lowest = min(len(self.document) - 1, place + 50)
        for at in [*range(place, lowest + 1), *range(place - 1, max(-1, place - 200), -1)]:
            code = next((line.code for line in self.document.lines(at) if line.code is not None), None)
            if code is not None:
                self.post_message(self.CopyWanted(code.text, "code"))
                return

    def action_open_link(self) -> None:
        """Open the first link of the block at the cursor."""
        place = self._cursor_place()
        links = [] if place is None else links_in(self.document.lines(place))
        if links:
            self.post_message(self.LinkOpened(links[0]))

    def action_leave(self) -> None:
        """Drop the selection, else the search, else go back to the prompt."""
        if self.selection.anchor is not None:
            self._clear_selection()
        elif self.finder.query:
            self._end_search()
        else:
            self.post_message(self.Left())

    # --- mouse -------------------------------------------------------------------------------------------

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll."""
        event.stop()
        self.scroll_lines(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll."""
        event.stop()
        self.scroll_lines(-3)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Begin a selection, or drag the thumb."""
        if event.button != 1:
            return
        spot = self._spot(event)
        self.selection.begin(spot)
        self._dragging = True
        self.capture_mouse()
        self.refresh()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Extend the selection."""
        if not self._dragging:
            return
        y = event.y - self.gutter.top
        if y < 0 or y >= self.size.height:
            self.scroll_lines(-1 if y < 0 else 1)
        self.selection.head = self._spot(event)
        self.refresh()

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """End the selection; without one it was a click."""
        if not self._dragging:
            return
        self._dragging = False
        self.release_mouse()
        if self.selection.ends is None:
            self.selection.clear()
            self._click(event)

    def _spot(self, event: events.MouseEvent) -> Spot | None:
        x = event.x - self.gutter.left - EDGE
        y = max(0, min(event.y - self.gutter.top, self.size.height - 1))
        place, inside = self.document.find(self.viewport.top + y)
        if not len(self.document):
            return None
        if place >= len(self.document):
            place = len(self.document) - 1
            lines = self.document.lines(place)
            return Spot(self.document.blocks[place].key, len(lines) - 1, len(lines[-1].text))
        line = self._line_at(place, inside)
        key = self.document.blocks[place].key
        if line is None:
            return Spot(key, 0, 0)
        return Spot(key, inside - self.document.gap(place), column_at(line.text, x))

    def _click(self, event: events.MouseEvent) -> None:
        y = event.y - self.gutter.top
        if y == self.size.height - 1 and self.viewport.unseen and not self.viewport.sticks:
            self.action_end()
            return
        place, inside = self.document.find(self.viewport.top + y)
        line = self._line_at(place, inside)
        if line is None:
            return
        number = inside - self.document.gap(place)
        column = column_at(line.text, event.x - self.gutter.left - EDGE)
        link = link_at(self.document.lines(place), number, column)
        block = self.document.blocks[place]
        if link is not None:
            self.post_message(self.LinkOpened(link))
        elif self.cursor == block.key or (number == 0 and self.document.fold_of(place) != "full"):
            self.toggle(place)
        else:
            self.cursor = block.key
        self.refresh()
