"""Where the user types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from textual import events
from textual.message import Message
from textual.widgets import TextArea


class PromptArea(TextArea):
    """A text box that grows; Enter sends, Ctrl+J begins a new line."""

    @dataclass
    class Submitted(Message):
        """A prompt is to be sent, or to wait its turn (``queue``)."""

        text: str
        how: Literal["send", "queue"] = "send"

    def __init__(self) -> None:
        super().__init__(soft_wrap=True, placeholder="Type a task", compact=True, highlight_cursor_line=False)

    async def _on_key(self, event: events.Key) -> None:
        if event.key in {"enter", "alt+enter"}:
            event.stop()
            event.prevent_default()
            text = self.text.strip()
            if text:
                self.post_message(self.Submitted(text, "send" if event.key == "enter" else "queue"))
                self.clear()
        elif event.key == "ctrl+j":
            event.stop()
            event.prevent_default()
            self.insert("\n")
        else:
            await super()._on_key(event)
