"""A text box inside an open question: for edited arguments, a rule, feedback or an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea

from aar.transports.tui.prompt.chips import normal_lines
from aar.transports.tui.prompt.editing import EDITING
from aar.transports.tui.textual_private import run_own_key


class AnswerInput(TextArea, inherit_bindings=False):
    """Enter takes the text, Ctrl+J begins a new line, Esc goes back."""

    DEFAULT_CSS = """
    AnswerInput { height: auto; max-height: 10; border: none; border-left: thick $accent; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "take", "take", id="answer.take", show=False),
        Binding("ctrl+j,shift+enter,alt+enter", "newline", "new line", id="answer.newline", show=False),
        Binding("escape,ctrl+c", "leave", "back", id="answer.back", show=False),
        Binding("up", "cursor_up", "up", show=False),
        Binding("down", "cursor_down", "down", show=False),
        Binding("pageup", "cursor_page_up", "page up", show=False),
        Binding("pagedown", "cursor_page_down", "page down", show=False),
        *(Binding(item.key, item.action, item.description, show=False) for item in EDITING),
    ]

    @dataclass
    class Taken(Message):
        """Enter was pressed."""

        text: str

    class Abandoned(Message):
        """Esc was pressed; the text is kept."""

    def __init__(self) -> None:
        super().__init__(soft_wrap=True, compact=True, highlight_cursor_line=False)
        self.cursor_blink = False
        self.match_cursor_bracket = False

    async def _on_key(self, event: events.Key) -> None:
        if not await run_own_key(self, event) and event.key in {"enter", "tab"}:
            event.prevent_default()

    async def _on_paste(self, event: events.Paste) -> None:
        from aar.safety.sanitize import sanitize

        event.stop()
        event.prevent_default()
        text = sanitize(normal_lines(event.text))
        self.replace(text, *self.selection, maintain_selection_offset=False)

    def action_take(self) -> None:
        """Take the text."""
        self.post_message(self.Taken(self.text))

    def action_newline(self) -> None:
        """Begin a new line."""
        self.replace("\n", *self.selection, maintain_selection_offset=False)

    def action_leave(self) -> None:
        """Go back to the keys of the question."""
        self.post_message(self.Abandoned())
