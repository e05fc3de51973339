"""The line below the prompt: a sentence that goes away, or a question that is answered with y or n."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static

from aar.safety.sanitize import sanitize

_SHOWN_S = 5.0


class HintLine(Static, can_focus=True):
    """Hidden while there is nothing to say."""

    DEFAULT_CSS = """
    HintLine { height: auto; padding: 0 1; display: none; color: $text-muted; }
    HintLine.-asks { color: $warning; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "settle(True)", "yes", id="confirm.yes", show=False),
        Binding("n,escape,ctrl+c", "settle(False)", "no", id="confirm.no", show=False),
    ]

    @dataclass
    class Settled(Message):
        """The question ``name`` was answered."""

        name: str
        yes: bool

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._asked = ""
        self._timer: Timer | None = None

    @property
    def asking(self) -> bool:
        """Whether a question is open."""
        return bool(self._asked)

    def tell(self, text: str, *, stay: bool = False) -> None:
        """Show a sentence, for some seconds or until the next one; an open question stays."""
        if self._asked:
            return
        self.update(Content(sanitize(text)))
        self.display = True
        if self._timer is not None:
            self._timer.stop()
        self._timer = None if stay else self.set_timer(_SHOWN_S, self._hide)

    def clear(self) -> None:
        """Show nothing, unless a question is open."""
        self._hide()

    def ask(self, name: str, question: str) -> None:
        """Ask; the answer comes as `Settled`."""
        if self._timer is not None:
            self._timer.stop()
        self._asked = name
        self.add_class("-asks")
        self.update(Content(sanitize(question)) + Content.styled("  y yes · n no", "bold"))
        self.display = True
        self.focus()

    def action_settle(self, yes: bool) -> None:
        """Answer."""
        name, self._asked = self._asked, ""
        self.remove_class("-asks")
        self._hide()
        if name:
            self.post_message(self.Settled(name, yes))

    def _hide(self) -> None:
        if not self._asked:
            self.display = False
