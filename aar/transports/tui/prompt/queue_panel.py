"""What waits: words that the present run will hear, and prompts for runs of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from aar.safety.sanitize import sanitize

_ROWS = 6


class QueuePanel(Static, can_focus=True):
    """Shows the queue above the prompt; with the focus, prompts can be edited, moved and removed."""

    DEFAULT_CSS = """
    QueuePanel {
        height: auto; padding: 0 1; display: none; border-left: thick $secondary; color: $text-muted;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", id="queue.up", show=False),
        Binding("down,j", "move(1)", "down", id="queue.down", show=False),
        Binding("shift+up,K", "shift(-1)", "earlier", id="queue.earlier", show=False),
        Binding("shift+down,J", "shift(1)", "later", id="queue.later", show=False),
        Binding("enter,e", "change('edit')", "edit", id="queue.edit", show=False),
        Binding("delete,backspace,d", "change('remove')", "remove", id="queue.remove", show=False),
        Binding("escape,tab,ctrl+down,alt+q", "leave", "back", id="queue.leave", show=False),
    ]

    @dataclass
    class Changed(Message):
        """A waiting prompt is to be edited, removed, or moved by ``step`` places."""

        place: int
        what: Literal["edit", "remove", "shift"]
        step: int = 0

    class Left(Message):
        """The keys go back to the prompt."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._steering: Sequence[str] = ()
        self._prompts: Sequence[str] = ()
        self._marked = 0
        self._running = False

    def show(self, steering: Sequence[str], prompts: Sequence[str], *, running: bool) -> None:
        """Show what waits; ``running``: whether a run is under way that it waits for."""
        now = (tuple(steering), tuple(prompts), running)
        if now == (self._steering, self._prompts, self._running):
            return
        self._steering, self._prompts, self._running = now
        self._marked = min(self._marked, max(0, len(prompts) - 1))
        self.display = bool(steering or prompts)
        if not prompts and self.has_focus:
            self.post_message(self.Left())
        self._draw()

    @property
    def can_edit(self) -> bool:
        """Whether a prompt waits."""
        return bool(self._prompts)

    def watch_has_focus(self, value: bool) -> None:
        """Show the mark, at the last prompt, or hide it."""
        super().watch_has_focus(value)
        if value:
            self._marked = max(0, len(self._prompts) - 1)
        if self.display:
            self._draw()

    def action_move(self, step: int) -> None:
        """Mark another prompt."""
        self._marked = min(max(self._marked + step, 0), max(0, len(self._prompts) - 1))
        self._draw()

    def action_shift(self, step: int) -> None:
        """Move the marked prompt."""
        there = self._marked + step
        if 0 <= there < len(self._prompts):
            self.post_message(self.Changed(self._marked, "shift", step))
            self._marked = there

    def action_change(self, what: Literal["edit", "remove"]) -> None:
        """Take the marked prompt into the box, or remove it."""
        if self._prompts:
            self.post_message(self.Changed(self._marked, what))

    def action_leave(self) -> None:
        """Go back to the prompt."""
        self.post_message(self.Left())

    def _draw(self) -> None:
        lines = [self._line("↪ ", text, marked=False) for text in self._steering[:_ROWS]]
        first = max(0, min(self._marked - _ROWS // 2, len(self._prompts) - _ROWS))
        rows = range(first, min(first + _ROWS, len(self._prompts)))
        lines += [
            self._line(f"{row + 1}. ", self._prompts[row], marked=self.has_focus and row == self._marked)
            for row in rows
        ]
        lines.append(Content.styled(self._keys(len(self._prompts) - len(rows)), "$text-muted italic"))
        self.update(Content("\n").join(lines))

    def _keys(self, hidden: int) -> str:
        more = f"{hidden} more · " if hidden > 0 else ""
        if self.has_focus:
            return f"{more}Enter edits · d removes · ⇧↑ ⇧↓ move · Esc back"
        if not self._running:
            return f"{more}waiting · Enter goes on with it · Alt+Q edits it"
        if not self._prompts:
            return "heard before the next step"
        return f"{more}queued · ↑ takes the last back · Alt+Q edits"

    def _line(self, mark: str, text: str, *, marked: bool) -> Content:
        shown = sanitize(" ⏎ ".join(text.split("\n")), keep_newlines=False)
        width = max(10, self.screen.size.width - 10)
        shown = shown if len(shown) <= width else shown[: width - 1] + "…"
        return Content.styled(("› " if marked else "  ") + mark + shown, "bold $primary" if marked else "")
