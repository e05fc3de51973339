"""One line of text from the user: a key, an address, a value."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from aar.transports.tui.footer import FooterBar


class AskText(ModalScreen[str | None]):
    """Asks for one line; returns it without spaces around it, or ``None``.

    Args:
        title: What is asked.
        hint: What it is good for.
        value: What stands there first.
        secret: Whether it is shown as dots.
        warning: What was wrong with the answer before.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "take", "take", id="ask.take", priority=True),
        Binding("escape", "leave", "close", id="ask.close"),
    ]
    DEFAULT_CSS = """
    AskText { background: $background; }
    AskText #title { height: auto; padding: 0 1; text-style: bold; color: $primary; }
    AskText #hint { height: auto; padding: 0 1; color: $text-muted; }
    AskText #warning { height: auto; padding: 0 1; color: $text-error; }
    AskText Input { border: none; height: 1; margin: 1 1; padding: 0; background: $surface; }
    AskText Input:focus { border: none; }
    AskText #space { height: 1fr; }
    """

    def __init__(
        self, title: str, hint: str = "", value: str = "", *, secret: bool = False, warning: str = ""
    ) -> None:
        super().__init__()
        self._title, self._hint, self._value, self._secret = title, hint, value, secret
        self._warning = warning

    def compose(self) -> ComposeResult:
        """Show question and field."""
        yield Static(Content(self._title), id="title", markup=False)
        yield Static(Content(self._hint), id="hint", markup=False)
        if self._warning:
            yield Static(Content(self._warning), id="warning", markup=False)
        yield Input(self._value, password=self._secret, compact=True)
        yield Static(id="space")
        yield FooterBar()

    def on_mount(self) -> None:
        """Begin to type."""
        self.query_one(Input).focus()

    def action_take(self) -> None:
        """Take the text, if there is one."""
        text = self.query_one(Input).value.strip()
        if text:
            self.dismiss(text)

    def action_leave(self) -> None:
        """Change nothing."""
        self.dismiss(None)
