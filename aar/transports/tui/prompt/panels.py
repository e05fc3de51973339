"""What stands above the prompt at times: a question, the queue, the search, suggestions.

All of it is hidden at first, so it is made after the first frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from textual.widget import Widget

from aar.transports.tui.approvals import ApprovalPanel
from aar.transports.tui.prompt.area import PromptArea
from aar.transports.tui.prompt.history_search import HistorySearch
from aar.transports.tui.prompt.popup import CompletionPopup
from aar.transports.tui.prompt.queue_panel import QueuePanel


class Panels:
    """The panels, to be mounted in this order.

    Args:
        area: The prompt, which opens the suggestions.
        may_take_focus: Whether a question may take the keys now.

    Attributes:
        questions: Open questions.
        queue: What waits to be sent.
        search: Search over earlier prompts.
    """

    def __init__(self, area: PromptArea, may_take_focus: Callable[[], bool]) -> None:
        self.questions = ApprovalPanel()
        self.queue = QueuePanel()
        self.search = HistorySearch()
        self._popup = CompletionPopup()
        self.questions.last_key = lambda: area.last_key
        self.questions.may_take_focus = may_take_focus
        self.questions.go_back = lambda: area.screen.set_focus(area)
        area.attach(self._popup)

    def __iter__(self) -> Iterator[Widget]:
        return iter((self.questions, self.queue, self.search, self._popup))
