"""Open questions, above the prompt: what a tool would do, and one key to decide."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from aar.safety.sanitize import sanitize

if TYPE_CHECKING:
    from aar.protocol.events import ApprovalRequest


class ApprovalPanel(Static, can_focus=True):
    """Shows the oldest open question."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "decide('allow')", "yes"),
        Binding("n", "decide('reject')", "no"),
    ]

    @dataclass
    class Answered(Message):
        """The user decided."""

        request_id: str
        decision: Literal["allow", "reject", "cancelled"]
        details: dict[str, Any] = field(default_factory=dict[str, Any])

    class Left(Message):
        """No question is open any more."""

    _requests: Sequence[ApprovalRequest] = ()

    def show(self, requests: Sequence[ApprovalRequest]) -> None:
        """Show these open questions, oldest first."""
        had = self.display
        self._requests = list(requests)
        self.display = bool(requests)
        if requests:
            request = requests[0]
            shown = sanitize(json.dumps(dict(request.arguments), ensure_ascii=False))
            more = f" (+{len(requests) - 1})" if len(requests) > 1 else ""
            self.update(Content(f"{request.tool_name}{more}: {shown}\n[y] yes  [n] no  (Tab to answer)"))
        elif had and self.has_focus:
            self.post_message(self.Left())

    def action_decide(self, decision: Literal["allow", "reject"]) -> None:
        """Answer the question that is shown."""
        if self._requests:
            self.post_message(self.Answered(self._requests[0].request_id, decision))
