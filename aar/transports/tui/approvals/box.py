"""What is seen of an open question: its parts below each other, in the rows that the screen has for it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from aar.safety.sanitize import sanitize
from aar.transports.tui.approvals import view, words
from aar.transports.tui.approvals.input import AnswerInput
from aar.transports.tui.approvals.lines import LinesView
from aar.transports.tui.approvals.words import Asked
from aar.transports.tui.textual_private import watch_layout

if TYPE_CHECKING:
    from aar.protocol.events import ApprovalRequest

_TRANSCRIPT_ROWS = 2
"""Rows of the transcript that stay in sight."""
_MOST_WHY = 6
"""Rows of reasons at most."""
_LEAST_ROWS, _LEAST_LINES, _MOST_BOX = 7, 2, 10
"""Rows of a question at least, of its text at least, and of its text box at most."""


@dataclass(slots=True)
class State:
    """What the user did about one question so far."""

    seen: bool = False
    rule: str = ""
    error: str = ""
    chosen: int = 0
    texts: dict[str, str] = field(default_factory=dict[str, str])


class QuestionBox(Vertical):
    """Draws one of the open questions with what the user did about it."""

    def __init__(self) -> None:
        super().__init__()
        self._requests: list[ApprovalRequest] = []
        self._states: dict[str, State] = {}
        self._place = 0
        self._asked: Asked = ""
        self._wake_at = 0.0

    def compose(self) -> ComposeResult:
        """Put head, text, reasons, box and keys below each other."""
        yield Static(id="approval-head", markup=False)
        yield LinesView()
        yield Static(id="approval-why", markup=False)
        yield AnswerInput()
        yield Static(id="approval-keys", markup=False)

    @property
    def current(self) -> ApprovalRequest | None:
        """The question that is shown."""
        return self._requests[self._place] if self._requests else None

    @property
    def _state(self) -> State:
        request = self.current
        return self._states[request.request_id] if request is not None else State()

    @property
    def _asleep(self) -> bool:
        return time.monotonic() < self._wake_at

    def _draw(self) -> None:
        request = self.current
        if request is None or not self.is_mounted:
            return
        self.query_one("#approval-head", Static).update(self._head())
        why = self.query_one("#approval-why", Static)
        why.update(self._why())
        why.display = not view.is_question(request)
        self.query_one("#approval-keys", Static).update(self._keys())
        self._fit()

    def _head(self) -> Content:
        request = self.current
        below = self.query_one(LinesView).below
        return words.head(request, self._place, len(self._requests), below) if request else Content("")

    def _why(self) -> Content:
        request = self.current
        if request is None or view.is_question(request):
            return Content("")
        rows = min(_MOST_WHY, max(1, self._room() // 4))
        return words.why(request, self._state.rule, rows, self._width())

    def _keys(self) -> Content:
        request, error = self.current, self._state.error
        if request is None:
            return Content("")
        told = Content.styled(sanitize(error, keep_newlines=False) + "\n", "$error") if error else Content("")
        keys = words.keys(request, self._asked, len(self._requests) > 1, self._width())
        if self._asked:
            return told + Content.styled(keys, "$text-muted")
        if not self.has_focus:
            return told + Content.styled("Tab to answer", "bold")
        if not self._state.seen and not error and not view.is_question(request):
            told += Content.styled("Space reads on; yes works at the end.\n", "$accent")
        return told + Content.styled(keys, "$text-muted" if self._asleep else "bold")

    def _width(self) -> int:
        # Without room around it the panel was not laid out yet.
        return self.content_size.width or max(1, self.screen.size.width - 3)

    def _room(self) -> int:
        """Return the rows that the rest of the screen leaves."""
        around = self.parent.children if self.parent is not None else ()
        taken = sum(
            one.outer_size.height
            for one in around
            if one is not self
            and one.display
            and one.styles.height is not None
            and not one.styles.height.is_fraction
        )
        return max(_LEAST_ROWS, self.screen.size.height - _TRANSCRIPT_ROWS - taken)

    def _fit(self) -> None:
        """Leave room for the rest of the screen."""
        if not self.display or self.current is None:
            return
        width, room = self._width(), self._room()
        said = sum(words.rows_of(part, width) for part in (self._head(), self._why(), self._keys()))
        box = self.query_one(AnswerInput)
        box_rows = 0
        if self._asked:
            box_rows = max(1, min(_MOST_BOX, room - said - _LEAST_LINES))
            box.styles.max_height = box_rows
            box_rows = min(box_rows, box.wrapped_document.height)
        height = self.screen.size.height * 3 // 5
        lines = max(_LEAST_LINES, min(room - said - box_rows, height))
        self.query_one(LinesView).styles.max_height = lines

    def on_mount(self) -> None:
        """Fit again when the rest of the screen grows or shrinks."""
        watch_layout(self, self._fit)

    def on_resize(self) -> None:
        """Fit the new size."""
        self._draw()
