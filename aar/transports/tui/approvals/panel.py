"""Open questions, above the prompt: what a tool would do, in full, and one key to decide."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static

from aar.safety.sanitize import sanitize
from aar.transports.tui.approvals import view
from aar.transports.tui.approvals.input import AnswerInput
from aar.transports.tui.approvals.lines import LinesView
from aar.transports.tui.approvals.view import Line

if TYPE_CHECKING:
    from aar.protocol.events import ApprovalRequest

STILL_S = 0.7
"""Seconds without typing after which a question may take keys."""

_OTHER_ROWS = 15
"""Rows that the other parts of the screen and of a question need."""

Asked = Literal["", "edit", "feedback", "rule", "answer"]
_KEPT = (("session", "s", "session"), ("project", "a", "this project"), ("user", "u", "everywhere"))
"""Scopes in which a rule is kept, with key and words."""
_LABELS: dict[Asked, str] = {
    "edit": "Edit, Enter runs it so, Esc back",
    "feedback": "What should it do instead? Enter sends, Esc back",
    "rule": "The rule to keep. Enter takes it, Esc back",
    "answer": "Your answer. Enter sends, Esc back",
}


def _s(names: Sequence[str]) -> str:
    return "s" if len(names) == 1 else ""


@dataclass(slots=True)
class _State:
    """What the user did about one question so far."""

    seen: bool = False
    rule: str = ""
    error: str = ""
    chosen: int = 0
    texts: dict[str, str] = field(default_factory=dict[str, str])


class ApprovalPanel(Vertical, can_focus=True):
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
        self._requests: list[ApprovalRequest] = []
        self._states: dict[str, _State] = {}
        self._place = 0
        self._asked: Asked = ""
        self._shown_id = ""
        self._came = 0.0
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        """Put head, text, reasons, box and keys below each other."""
        yield Static(id="approval-head", markup=False)
        yield LinesView()
        yield Static(id="approval-why", markup=False)
        yield AnswerInput()
        yield Static(id="approval-keys", markup=False)

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
            or _State(rule=request.proposed_rule or "")
            for request in requests
        }
        places = [place for place, one in enumerate(requests) if one.request_id == shown]
        self._place = places[0] if places else min(self._place, max(0, len(requests) - 1))
        self.display = bool(requests)
        if new:
            self._came = time.monotonic()
            self._wait_for_stillness()
        self._show_current()

    @property
    def current(self) -> ApprovalRequest | None:
        """The question that is shown."""
        return self._requests[self._place] if self._requests else None

    @property
    def _state(self) -> _State:
        request = self.current
        return self._states[request.request_id] if request is not None else _State()

    def show_error(self, request_id: str, message: str) -> None:
        """Tell why an answer was not taken; the question stays open with all that was typed."""
        state = self._states.get(request_id)
        if state is not None:
            state.error = message
            self._draw()

    def _show_current(self) -> None:
        request = self.current
        if request is None:
            self._shown_id, had = "", self.has_focus or self.query_one(AnswerInput).has_focus
            self._close_input()
            if had:
                self.post_message(self.Left())
            return
        if request.request_id != self._shown_id:
            if self._asked:
                self._close_input()
                self.focus()
            self._shown_id = request.request_id
            self.query_one(LinesView).set_lines(self._lines(request))
            self._mark(self._state.chosen)
        self._fit()
        self._draw()

    def _lines(self, request: ApprovalRequest) -> list[Line]:
        lines = view.lines(request)
        offered = [
            Line(f"{number}. {view.safe(option)}", "option")
            for number, option in enumerate(view.options(request), 1)
        ]
        return [*lines, *offered] if view.is_question(request) else lines

    def _fit(self) -> None:
        """Leave room for the rest of the screen."""
        height = self.screen.size.height
        self.query_one(LinesView).styles.max_height = max(3, min(height - _OTHER_ROWS, height * 3 // 5))

    def on_resize(self) -> None:
        """Fit the new size."""
        self._fit()

    def on_lines_view_scrolled(self) -> None:
        """Note what has been seen; a question is not answered before all of it was."""
        if self.current is not None and self.query_one(LinesView).seen:
            self._state.seen = True
        self._draw()

    def _draw(self) -> None:
        request = self.current
        if request is None or not self.is_mounted:
            return
        place = f"  {self._place + 1} of {len(self._requests)}" if len(self._requests) > 1 else ""
        head = Content.styled(view.headline(request), "bold $warning")
        below = self.query_one(LinesView).below
        more = Content.styled(f"  ↓ {below} more lines" if below else "", "bold $accent")
        self.query_one("#approval-head", Static).update(head + Content.styled(place, "$text-muted") + more)
        why = self.query_one("#approval-why", Static)
        why.update(Content("\n").join(self._why(request)))
        why.display = not view.is_question(request)
        self.query_one("#approval-keys", Static).update(self._keys(request))

    def _why(self, request: ApprovalRequest) -> list[Content]:
        parts = [part for part in (view.wall(request), view.reasons(request)) if part]
        style = "$error" if request.wall == "none" else "$text-muted"
        told = [Content.styled(" · ".join(parts), style)] if parts else []
        if len(request.scopes) > 1 and self._state.rule:
            rule = sanitize(self._state.rule, keep_newlines=False)
            keys = [key for scope, key, _ in _KEPT if scope in request.scopes]
            told.append(
                Content.styled(f"{', '.join(keys)} also allow{_s(keys)} later: {rule}", "$text-muted")
            )
        return told

    def _keys(self, request: ApprovalRequest) -> Content:
        error = self._state.error
        told = Content.styled(sanitize(error, keep_newlines=False) + "\n", "$error") if error else Content("")
        if self._asked:
            return told + Content.styled(_LABELS[self._asked], "$text-muted")
        if not self.has_focus:
            return told + Content.styled("Tab to answer", "bold")
        if view.is_question(request):
            return told + Content.styled(self._question_keys(request), "bold")
        if not self._state.seen and not error:
            told += Content.styled("Space reads on; yes works at the end.\n", "$accent")
        return told + Content.styled(self._decision_keys(request), "bold")

    def _question_keys(self, request: ApprovalRequest) -> str:
        pick = "1-9 or Enter picks · " if view.options(request) else ""
        return f"{pick}t type an answer · n no answer{self._next_key()} · i prompt"

    def _decision_keys(self, request: ApprovalRequest) -> str:
        """Return the keys, yes before no; in two rows where one is too short."""
        yes = ["y once", *(f"{key} {words}" for scope, key, words in _KEPT if scope in request.scopes)]
        change = ["r rule"] if len(request.scopes) > 1 else []
        no = " · ".join([*change, "e edit", "n no", "f no, because"]) + f"{self._next_key()} · i prompt"
        line = " · ".join([*yes, no])
        # Without room around it the panel was not laid out yet.
        width = self.content_size.width or len(line)
        return line if len(line) <= width else " · ".join(yes) + "\n" + no

    def _next_key(self) -> str:
        return " · Tab next" if len(self._requests) > 1 else ""

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

    def watch_has_focus(self, value: bool) -> None:
        """Tell the keys, or how to come to them."""
        super().watch_has_focus(value)
        if value and self._timer is not None:
            # Who has been here and left comes back by a key of their own.
            self._timer.stop()
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
        if len(self._requests) > 1:
            self._place = (self._place + 1) % len(self._requests)
            self._show_current()

    def action_leave(self) -> None:
        """Go back to the prompt; the question stays open."""
        self.post_message(self.Left())

    # --- deciding --------------------------------------------------------------------------------------

    def action_allow(self, scope: str) -> None:
        """Allow the call, once or with a rule that is kept."""
        request = self.current
        if request is None or view.is_question(request):
            return
        if scope == "project" and "project" not in request.scopes and "user" in request.scopes:
            scope = "user"
        if scope not in request.scopes:
            known = {"once": "y once", **{name: f"{key} {words}" for name, key, words in _KEPT}}
            offered = " or ".join(known.get(name, name) for name in request.scopes)
            self._refuse_key(f"Nothing wider can be allowed for this call: {offered}.")
        elif not self._state.seen:
            self._refuse_key("Read to the end first: Space or End.")
        else:
            kept = {"rule": self._state.rule} if scope != "once" and self._state.rule else {}
            self._answer("allow", {"scope": scope, **kept})

    def action_refuse(self) -> None:
        """Say no."""
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
        if request is None or not view.is_question(request):
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
        if request is None or (what == "answer") != view.is_question(request):
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
