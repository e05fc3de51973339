"""Open questions, above the prompt: what a tool would do, in full, and one key to decide."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.timer import Timer

from aar.transports.tui.approvals import view, words
from aar.transports.tui.approvals.box import QuestionBox, State
from aar.transports.tui.approvals.input import AnswerInput
from aar.transports.tui.approvals.lines import LinesView
from aar.transports.tui.approvals.view import Line
from aar.transports.tui.approvals.words import Asked
from aar.transports.tui.textual_private import hand_on_key, run_own_key

if TYPE_CHECKING:
    from aar.protocol.events import ApprovalRequest

STILL_S = 0.7
"""Seconds without typing after which a question may take keys."""


class ApprovalPanel(QuestionBox, can_focus=True):
    """Shows one of the open questions; each answer goes to its own call."""

    DEFAULT_CSS = """
    ApprovalPanel {
        height: auto; padding: 0 1; border-left: thick $warning; display: none;
    }
    ApprovalPanel > Static { height: auto; }
    ApprovalPanel > AnswerInput { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "allow('once')", "once", id="approval.once", show=False),
        Binding("s", "allow('session')", "session", id="approval.session", show=False),
        Binding("a", "allow('project')", "always here", id="approval.project", show=False),
        Binding("u", "allow('user')", "always", id="approval.user", show=False),
        Binding("e", "write('edit')", "edit", id="approval.edit", show=False),
        Binding("r", "write('rule')", "rule", id="approval.rule", show=False),
        Binding("n", "refuse", "no", id="approval.no", show=False),
        Binding("f", "write('feedback')", "no, because", id="approval.feedback", show=False),
        Binding("t", "write('answer')", "type", id="approval.answer", show=False),
        Binding("enter", "pick", "pick", id="approval.pick", show=False),
        Binding("tab", "next", "next", id="approval.next", show=False),
        Binding("i,ctrl+down", "leave", "prompt", id="approval.leave", show=False),
        Binding("up,k", "move(-1)", "up", id="approval.up", show=False),
        Binding("down,j", "move(1)", "down", id="approval.down", show=False),
        Binding("pageup", "page(-1)", "page up", id="approval.page_up", show=False),
        Binding("pagedown,space", "page(1)", "page down", id="approval.page_down", show=False),
        Binding("home", "page(-1000000)", "top", id="approval.top", show=False),
        Binding("end", "page(1000000)", "end", id="approval.end", show=False),
        *(Binding(str(number), f"pick_number({number})", str(number), show=False) for number in range(1, 10)),
    ]

    @dataclass
    class Answered(Message):
        """The user decided; ``details`` are for `PermissionManager.answer`."""

        request_id: str
        decision: Literal["allow", "reject", "cancelled"]
        details: dict[str, Any] = field(default_factory=dict[str, Any])

    class Left(Message):
        """The keys go back to the prompt."""

    def __init__(self) -> None:
        super().__init__()
        self.last_key: Callable[[], float] = lambda: 0.0
        self.may_take_focus: Callable[[], bool] = lambda: True
        self.go_back: Callable[[], object] = lambda: None
        self._shown_id = ""
        self._came = 0.0
        self._timer: Timer | None = None
        self._waking: Timer | None = None

    # --- what is shown ---------------------------------------------------------------------------------

    def show(self, requests: Sequence[ApprovalRequest]) -> None:
        """Show these open questions, oldest first; the one that is shown stays while it is open."""
        known = {request.request_id for request in self._requests}
        new = [request for request in requests if request.request_id not in known]
        if [request.request_id for request in requests] == [one.request_id for one in self._requests]:
            return
        shown = self._shown_id
        self._requests = list(requests)
        self._states = {
            request.request_id: self._states.get(request.request_id)
            or State(rule=request.proposed_rule or "")
            for request in requests
        }
        places = [place for place, one in enumerate(requests) if one.request_id == shown]
        self._place = places[0] if places else min(self._place, max(0, len(requests) - 1))
        self.display = bool(requests)
        if new:
            self._came = time.monotonic()
            self._wait_for_stillness()
        self._show_current()

    def show_error(self, request_id: str, message: str) -> None:
        """Tell why an answer was not taken; the question stays open with all that was typed."""
        state = self._states.get(request_id)
        if state is not None:
            state.error = message
            self._draw()

    def _show_current(self, *, by_key: bool = False) -> None:
        request = self.current
        if request is None:
            self._shown_id, had = "", self.has_focus or self.query_one(AnswerInput).has_focus
            self._close_input()
            if had:
                self.post_message(self.Left())
            return
        if request.request_id != self._shown_id:
            # Also what goes on being typed into the box of a question that is gone is meant for that one.
            has_keys = self.has_focus or bool(self._asked)
            if self._asked:
                self._close_input()
                self.focus()
            self._shown_id = request.request_id
            self._wake_at = 0.0
            if has_keys and not by_key:
                self._wake_at = time.monotonic() + STILL_S
                self._wake_later()
            self.query_one(LinesView).set_lines(self._lines(request))
            self._mark(self._state.chosen)
        self._draw()

    def _lines(self, request: ApprovalRequest) -> list[Line]:
        lines = view.lines(request)
        offered = [
            Line(f"{number}. {view.safe(option)}", "option")
            for number, option in enumerate(view.options(request), 1)
        ]
        return [*lines, *offered] if view.is_question(request) else lines

    def on_lines_view_scrolled(self) -> None:
        """Note what has been seen; a question is not answered before all of it was."""
        if self.current is not None and self.query_one(LinesView).seen:
            self._state.seen = True
        self._draw()

    # --- who has the keys ------------------------------------------------------------------------------

    def _wait_for_stillness(self) -> None:
        """Take the keys once nothing was typed for a moment, so that no letter of a draft decides."""
        if self._timer is not None:
            self._timer.stop()
        still = time.monotonic() - max(self._came, self.last_key())
        if still < STILL_S:
            self._timer = self.set_timer(STILL_S - still + 0.01, self._wait_for_stillness)
        elif self.display and self.may_take_focus():
            self.focus()

    def _too_soon(self) -> bool:
        """Tell whether a key was meant for the question before, whose place this one took just now."""
        asleep = self._asleep
        if asleep:
            self._wake_at = time.monotonic() + STILL_S
            self._wake_later()
        return asleep

    def _wake_later(self) -> None:
        if self._waking is not None:
            self._waking.stop()
        self._waking = self.set_timer(max(0.0, self._wake_at - time.monotonic()) + 0.01, self._draw)

    def watch_has_focus(self, value: bool) -> None:
        """Tell the keys, or how to come to them."""
        super().watch_has_focus(value)
        if value and self._timer is not None:
            # Who has been here and left comes back by a key of their own.
            self._timer.stop()
        if not value:
            self._wake_at = 0.0
        if value and self._wants_text():
            self.call_later(self.action_write, "answer")
        self._draw()

    def _wants_text(self) -> bool:
        """Tell whether this is a question that only words can answer, and that was not left with Esc."""
        request = self.current
        return (
            request is not None
            and view.is_question(request)
            and not view.options(request)
            and "answer" not in self._state.texts
        )

    def action_next(self) -> None:
        """Show the next open question; with but one the keys stay here.

        Tab goes to a question that has not taken the keys yet. Whoever presses it a moment after the question
        took them means the same.
        """
        self._wake_at = 0.0
        if len(self._requests) > 1:
            self._place = (self._place + 1) % len(self._requests)
            self._show_current(by_key=True)
        else:
            self._draw()

    async def _on_key(self, event: events.Key) -> None:
        # What is typed behind `i` is meant for the prompt, also where it comes at once.
        if not hand_on_key(self, event):
            await run_own_key(self, event, letters=True)

    def action_leave(self) -> None:
        """Go back to the prompt; the question stays open."""
        self.go_back()
        self.post_message(self.Left())

    # --- deciding --------------------------------------------------------------------------------------

    def action_allow(self, scope: str) -> None:
        """Allow the call, once or with a rule that is kept."""
        request = self.current
        if request is None or view.is_question(request) or self._too_soon():
            return
        if scope == "project" and "project" not in request.scopes and "user" in request.scopes:
            scope = "user"
        if scope not in request.scopes:
            offered = words.offered(request.scopes)
            self._refuse_key(f"Nothing wider can be allowed for this call: {offered}.")
        elif not self._state.seen:
            self._refuse_key("Read to the end first: Space or End.")
        else:
            kept = {"rule": self._state.rule} if scope != "once" and self._state.rule else {}
            self._answer("allow", {"scope": scope, **kept})

    def action_refuse(self) -> None:
        """Say no."""
        if not self._too_soon():
            self._answer("reject", {})

    def _refuse_key(self, message: str) -> None:
        self._state.error = message
        self._draw()

    def _answer(self, decision: Literal["allow", "reject"], details: dict[str, Any]) -> None:
        request = self.current
        if request is not None:
            self._state.error = ""
            self.post_message(self.Answered(request.request_id, decision, details))

    # --- scrolling and picking -------------------------------------------------------------------------

    def action_move(self, step: int) -> None:
        """Go to the next option, or scroll a line."""
        request = self.current
        if request is not None and view.options(request) and view.is_question(request):
            self._mark(self._state.chosen + step)
        else:
            lines = self.query_one(LinesView)
            lines.scroll_relative(y=step, animate=False, force=True)

    def action_page(self, pages: int) -> None:
        """Scroll a page."""
        lines = self.query_one(LinesView)
        lines.scroll_relative(y=pages * max(1, lines.size.height - 1), animate=False, force=True)

    def _mark(self, option: int) -> None:
        request = self.current
        if request is None or not view.is_question(request) or not view.options(request):
            return
        count = len(view.options(request))
        self._state.chosen = min(max(option, 0), count - 1)
        lines = self.query_one(LinesView)
        lines.choose(len(view.lines(request)) + self._state.chosen)

    def action_pick(self) -> None:
        """Answer a question with the marked option; without options type an answer."""
        request = self.current
        if request is None or not view.is_question(request) or self._too_soon():
            return
        if view.options(request):
            self._answer("allow", {"feedback": view.options(request)[self._state.chosen]})
        else:
            self.action_write("answer")

    def action_pick_number(self, number: int) -> None:
        """Answer a question with an option by its number."""
        request = self.current
        if request is not None and view.is_question(request) and number <= len(view.options(request)):
            self._mark(number - 1)
            self.action_pick()

    # --- writing ---------------------------------------------------------------------------------------

    def action_write(self, what: Asked) -> None:
        """Open the text box for edited arguments, a rule, feedback or an answer."""
        request = self.current
        if request is None or (what == "answer") != view.is_question(request) or self._too_soon():
            return
        if what == "rule" and len(request.scopes) < 2:
            self._refuse_key("No rule can be kept for this call.")
            return
        text = self._state.texts.get(what)
        if text is None:
            text = view.editable(request) if what == "edit" else self._state.rule if what == "rule" else ""
        box = self.query_one(AnswerInput)
        self._asked = what
        box.text = text
        box.display = True
        box.move_cursor(box.document.end)
        box.focus()
        self._draw()

    def on_answer_input_abandoned(self) -> None:
        """Go back to the keys; what was typed is kept."""
        self._state.texts[self._asked] = self.query_one(AnswerInput).text
        self._state.error = ""
        self._close_input()
        self.focus()
        self._draw()

    def on_answer_input_taken(self, message: AnswerInput.Taken) -> None:
        """Do what the text is for."""
        request, text = self.current, message.text
        if request is None:
            return
        self._state.texts[self._asked] = text
        if self._asked == "edit":
            self._run_edited(request, text)
        elif self._asked == "rule":
            self._state.rule = text.strip() or request.proposed_rule or ""
            self._back_to_keys()
        elif self._asked == "feedback":
            self._back_to_keys()
            self._answer("reject", {"feedback": text.strip()} if text.strip() else {})
        elif text.strip():
            self._back_to_keys()
            self._answer("allow", {"feedback": text.strip()})

    def _run_edited(self, request: ApprovalRequest, text: str) -> None:
        try:
            arguments = view.edited(request, text)
        except ValueError as error:
            self._refuse_key(str(error))
            return
        self._back_to_keys()
        self._answer("allow", {"edited_arguments": arguments})

    def _back_to_keys(self) -> None:
        self._state.error = ""
        self._close_input()
        self.focus()
        self._draw()

    def _close_input(self) -> None:
        self._asked = ""
        self.query_one(AnswerInput).display = False
