"""The line at the bottom: the keys that work now, and the user's own status line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual import events
from textual.binding import ActiveBinding
from textual.content import Content
from textual.widgets import Static

from aar.transports.tui.keys import shown_key
from aar.transports.tui.one_line import one_line
from aar.transports.tui.textual_private import watch_bindings

_FIRST = ("approval.", "confirm.", "prompt.", "app.interrupt")
_LAST = ("app.",)
_OWN = ("sessions.",)
_CLOSING = "close"
_MAX_STATUS = 200
_WORKING = {"prompt.send": "say now", "prompt.queue": "queue"}
"""What keys of the prompt do while a run is under way."""


def shown_bindings(active: Mapping[str, ActiveBinding], *, working: bool = True) -> list[tuple[str, str]]:
    """Return key and label of the bindings to show, the nearest at hand first, each action once.

    Args:
        active: Of the screen.
        working: Whether a run is under way: there is something to interrupt and to say something to.
    """
    found: dict[str, tuple[int, str, str]] = {}
    for key, entry in active.items():
        binding = entry.binding
        name = binding.id or binding.action
        label = (working and _WORKING.get(name)) or (binding.description if binding.show else "")
        if not entry.enabled or not label:
            continue
        if name == "app.interrupt" and not working:
            continue
        if name not in found:
            found[name] = (_rank(name), shown_key(key), label)
    return [(key, label) for _, key, label in sorted(found.values(), key=lambda item: item[0])]


def _rank(name: str) -> int:
    if name.startswith(_FIRST):
        return 0
    if name.endswith(f".{_CLOSING}"):
        return 4
    return 3 if name.startswith(_LAST) else 2 if name.startswith(_OWN) else 1


def footer_line(items: Sequence[tuple[str, str]], status: str, width: int, mode: str = "") -> Content:
    """Return vim's ``mode``, then keys with labels, as many as fit beside the user's ``status``."""
    shown = one_line(status.strip()[:_MAX_STATUS])
    right = Content.styled(shown, "$text-muted").truncate(max(0, width // 2), ellipsis=True)
    room = width - (right.cell_length + 2 if shown else 0)
    line = Content.styled(mode, "bold $success" if mode == "NORMAL" else "$text-muted")
    drawn = [
        Content.styled(f"   {key}", "$primary") + Content.styled(f" {label}", "$text-muted")
        for key, label in items
    ]
    # How a screen is left is always told.
    closing = drawn.pop() if items and items[-1][1] == _CLOSING else Content("")
    for item in drawn:
        if line.cell_length + item.cell_length + closing.cell_length > room + (0 if line.cell_length else 3):
            break
        line += item if line.cell_length else item[3:]
    line += closing if line.cell_length else closing[3:]
    space = width - line.cell_length - right.cell_length
    return line + Content(" " * max(0, space)) + right if shown else line


class FooterBar(Static):
    """Draws `footer_line` again when keys, width or status change."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._status = self._mode = ""
        self._shown: object = None
        self._working = False

    def on_mount(self) -> None:
        """Watch which keys work."""
        watch_bindings(self, self._draw)

    def on_resize(self, _event: events.Resize) -> None:
        """Fit the line to the new width."""
        self._draw()

    def set_working(self, working: bool) -> None:
        """Tell whether there is something to interrupt."""
        self._working = working
        self._draw()

    def set_mode(self, mode: str) -> None:
        """Show vim's mode before the keys; nothing: there is none."""
        self._mode = mode
        self._draw()

    def set_status(self, text: str) -> None:
        """Show the user's own status line."""
        self._status = text
        self._draw()

    def _draw(self) -> None:
        width = self.content_size.width
        if not width or not self.is_attached:
            return
        items = shown_bindings(self.screen.active_bindings, working=self._working)
        shown = (items, self._status, self._mode, width)
        if shown != self._shown:
            self._shown = shown
            self.update(footer_line(items, self._status, width, self._mode), layout=False)
