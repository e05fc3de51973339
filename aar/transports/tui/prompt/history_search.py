"""Search over all prompts of all sessions, above the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from aar.safety.sanitize import sanitize
from aar.transports.tui.prompt.recall import search

_ROWS = 8


class HistorySearch(Static, can_focus=True):
    """Type words, choose a prompt; Enter puts it into the box."""

    DEFAULT_CSS = """
    HistorySearch { height: auto; padding: 0 1; display: none; border-left: thick $secondary; color: $text; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,ctrl+r", "move(1)", "older", id="search.older", show=False),
        Binding("down", "move(-1)", "newer", id="search.newer", show=False),
        Binding("enter,tab", "take", "take", id="search.take", show=False),
        Binding("escape,ctrl+c,ctrl+g", "leave", "close", id="search.close", show=False),
        Binding("backspace,ctrl+h", "delete", "delete", id="search.delete", show=False),
        Binding("ctrl+u,ctrl+w", "clear", "clear", id="search.clear", show=False),
    ]

    @dataclass
    class Chosen(Message):
        """A prompt was chosen; ``None``: none."""

        text: str | None

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._entries: Sequence[str] = ()
        self._found: list[str] = []
        self._query = ""
        self._marked = 0

    def open(self, entries: Sequence[str], query: str = "") -> None:
        """Search ``entries``, oldest first."""
        self._entries, self._query = entries, query
        self.display = True
        self.focus()
        self._search()

    async def _on_key(self, event: events.Key) -> None:
        if event.is_printable and event.character is not None:
            event.stop()
            event.prevent_default()
            self._query += event.character
            self._search()

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        self._query += " ".join(event.text.split())
        self._search()

    def _search(self) -> None:
        self._found, self._marked = search(self._entries, self._query), 0
        self._draw()

    def action_move(self, step: int) -> None:
        """Mark an older (1) or newer (-1) prompt."""
        if self._found:
            self._marked = min(max(self._marked + step, 0), len(self._found) - 1)
            self._draw()

    def action_delete(self) -> None:
        """Take the last letter of the query away."""
        self._query = self._query[:-1]
        self._search()

    def action_clear(self) -> None:
        """Begin the query anew."""
        self._query = ""
        self._search()

    def action_take(self) -> None:
        """Put the marked prompt into the box."""
        self._close(self._found[self._marked] if self._found else None)

    def action_leave(self) -> None:
        """Go back to the prompt."""
        self._close(None)

    def _close(self, text: str | None) -> None:
        self.display = False
        self.post_message(self.Chosen(text))

    def _draw(self) -> None:
        first = max(0, min(self._marked - _ROWS // 2, len(self._found) - _ROWS))
        rows = range(first, min(first + _ROWS, len(self._found)))
        lines = [self._line(row) for row in reversed(rows)]
        if not self._found:
            lines = [Content.styled("  no such prompt", "$text-muted")]
        query = Content.styled("Search prompts: ", "bold $secondary") + sanitize(self._query) + "▏"
        keys = Content.styled("  ↑ older · Enter takes · Esc closes", "$text-muted")
        self.update(Content("\n").join([*lines, query + keys]))

    def _line(self, row: int) -> Content:
        text = sanitize(" ⏎ ".join(self._found[row].split("\n")), keep_newlines=False)
        width = max(10, self.screen.size.width - 8)
        shown = text if len(text) <= width else text[: width - 1] + "…"
        style = "bold $primary" if row == self._marked else ""
        return Content.styled(("› " if row == self._marked else "  ") + shown, style)
