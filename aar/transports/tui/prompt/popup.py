"""The list of suggestions above the prompt."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from aar.safety.sanitize import sanitize
from aar.transports.tui.prompt.completion import Suggestion

_ROWS = 8


class CompletionPopup(Static):
    """Shows suggestions, one marked; closed without any."""

    DEFAULT_CSS = """
    CompletionPopup {
        height: auto; max-height: 9; padding: 0 1; display: none;
        border-left: thick $secondary; color: $text;
    }
    """

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._items: Sequence[Suggestion] = ()
        self._marked = 0
        self._moved = False
        self._kind = ""

    @property
    def is_open(self) -> bool:
        """Whether there is something to choose."""
        return bool(self._items)

    @property
    def chosen(self) -> Suggestion | None:
        """The marked suggestion."""
        return self._items[self._marked] if self._items else None

    def wants_enter(self, text: str) -> bool:
        """Tell whether Enter takes the marked suggestion, and does not send ``text``.

        It does where the user went to it with an arrow key, and for the unfinished name of a command.
        """
        if self._moved:
            return True
        typed = text.strip()
        return self._kind == "command" and all(item.insert.strip() != typed for item in self._items)

    def offer(self, items: Sequence[Suggestion], kind: str) -> None:
        """Show ``items``, best first."""
        self._items, self._kind, self._marked, self._moved = items, kind, 0, False
        self.display = bool(items)
        self._draw()

    def close(self) -> None:
        """Show nothing."""
        self._items = ()
        self.display = False

    def move(self, step: int) -> None:
        """Mark another suggestion."""
        self._marked = (self._marked + step) % len(self._items)
        self._moved = True
        self._draw()

    def _draw(self) -> None:
        if not self._items:
            return
        first = max(0, min(self._marked - _ROWS // 2, len(self._items) - _ROWS))
        rows = range(first, min(first + _ROWS, len(self._items)))
        width = max(len(self._items[row].label or self._items[row].insert) for row in rows)
        lines = [self._line(row, min(width, 40)) for row in rows]
        left = len(self._items) - len(rows)
        keys = "↑↓ choose · Tab takes · Esc closes"
        lines.append(Content.styled(f"  {keys}" + (f" · {left} more" if left else ""), "$text-muted"))
        self.update(Content("\n").join(lines))

    def _line(self, row: int, width: int) -> Content:
        item = self._items[row]
        mark = "› " if row == self._marked else "  "
        label = sanitize(item.label or item.insert.strip(), keep_newlines=False)
        line = Content.styled(mark + label, "bold $primary" if row == self._marked else "")
        if not item.detail:
            return line
        gap = " " * max(2, width - len(label) + 2)
        return line + Content.styled(gap + sanitize(item.detail, keep_newlines=False), "$text-muted")
