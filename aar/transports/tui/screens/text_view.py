"""A long text to look through: the log, the keys."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from aar.transports.tui.footer import FooterBar
from aar.transports.tui.keys import ACTIONS
from aar.transports.tui.keys import bindings as bindings_of

_CLOSING = [
    binding
    for action, binding in zip(
        [action for action in ACTIONS if action.place == "viewer"], bindings_of("viewer"), strict=True
    )
    if action.name == "viewer.close"
]


class TextView(ModalScreen[None]):
    """Shows a text.

    Args:
        title: Of what.
        text: Already made harmless.
        at_end: Whether the end is shown first.
    """

    BINDINGS: ClassVar[list[BindingType]] = list(_CLOSING)
    DEFAULT_CSS = """
    TextView { background: $background; }
    TextView #title { height: 1; padding: 0 1; text-style: bold; color: $primary; }
    TextView VerticalScroll { height: 1fr; margin: 1 0 0 0; padding: 0 1; scrollbar-size-vertical: 1; }
    TextView VerticalScroll Static { width: 1fr; height: auto; }
    """

    def __init__(self, title: str, text: Content, *, at_end: bool = False) -> None:
        super().__init__()
        self._title, self._text, self._at_end = title, text, at_end

    def compose(self) -> ComposeResult:
        """Show title and text."""
        yield Static(Content(self._title), id="title", markup=False)
        with VerticalScroll():
            yield Static(self._text, markup=False)
        yield FooterBar()

    def on_mount(self) -> None:
        """Let keys scroll."""
        view = self.query_one(VerticalScroll)
        view.focus()
        if self._at_end:
            self.call_after_refresh(lambda: view.scroll_end(animate=False))

    def action_close(self) -> None:
        """Go back."""
        self.dismiss(None)
