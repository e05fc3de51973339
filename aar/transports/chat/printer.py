"""What happens in a session, as lines: the answer as it streams, a line for each call and its result."""

from __future__ import annotations

import time
from collections.abc import Callable

from aar.core.agent import RunResult
from aar.protocol.events import (
    AssistantMessage,
    Compaction,
    ErrorEvent,
    Event,
    ModelSwitch,
    Notice,
    PlanEvent,
    Reasoning,
    Retry,
    StreamChunk,
    Subagent,
    ToolCall,
    ToolResult,
    UserMessage,
)
from aar.protocol.messages import TextBlock
from aar.tools.builtin.describe import describe_call
from aar.transports.chat.paper import MarkdownPaper, Paper
from aar.transports.cli.printers import REASONS
from aar.transports.tui.advice import advice_for

_DIFF_LINES = 40
_ERROR_LINES = 6
_SHOWN_OUTPUT = 8
_QUIET = frozenset({"read_file", "list_directory", "find_files", "grep", "todo", "plan", "read_output"})
_MARKS = {
    "done": "x",
    "completed": "x",
    "in_progress": ">",
    "active": ">",
    "executing": ">",
    "failed": "!",
    "blocked": "~",
    "skipped": "-",
    "cancelled": "-",
}


class ChatPrinter:
    """Writes events to paper.

    Args:
        paper: Where they go.
        clock: Monotonic seconds.
    """

    def __init__(self, paper: Paper, clock: Callable[[], float] = time.monotonic) -> None:
        self._paper = paper
        self._markdown = MarkdownPaper(paper)
        self._clock = clock
        self._streamed = False
        self._thinking_since: float | None = None
        self._calls: dict[str, ToolCall] = {}
        self._plan: tuple[tuple[str, str], ...] = ()

    def event(self, event: Event) -> None:
        """Write what is to be seen of an event."""
        if event.agent_id != "main":
            if isinstance(event, Subagent):
                self._subagent(event)
            return
        match event:
            case StreamChunk():
                self._chunk(event)
            case AssistantMessage():
                self._answer(event)
            case Reasoning():
                self._thought()
            case ToolCall():
                self._calls[event.call_id] = event
            case ToolResult():
                self._result(event)
            case _:
                self._other(event)

    def _other(self, event: Event) -> None:
        match event:
            case Notice() if event.code != "provider_progress":
                self._note(event.message, important=event.level != "info")
            case Retry():
                void = " What was shown of this answer is void." if event.discard and self._streamed else ""
                wait = f" in {event.delay_s:.1f} s" if event.delay_s else ""
                self._note(f"{event.message} Asking again{wait}.{void}", important=True)
                self._streamed = False
            case ModelSwitch():
                self._note(f"{event.reason} Going on with {event.to_model}.", important=True)
                self._streamed = False
            case ErrorEvent():
                self._error(event)
            case Compaction():
                before, after = event.tokens_before, event.tokens_after
                self._note(f"The conversation was shortened: {before:,} tokens became {after:,}.")
            case PlanEvent():
                self._show_plan(event)
            case UserMessage() if event.source in ("steer", "queue"):
                words = " ".join(block.text for block in event.content if isinstance(block, TextBlock))
                self._note(f"You: {words}")
            case _:
                pass

    # --- the answer --------------------------------------------------------------------------------------

    def _chunk(self, event: StreamChunk) -> None:
        if event.reasoning_text and self._thinking_since is None:
            self._thinking_since = self._clock()
        if event.text:
            self._thought()
            self._markdown.feed(event.text)
            self._streamed = True

    def _thought(self) -> None:
        if self._thinking_since is not None:
            seconds = self._clock() - self._thinking_since
            self._thinking_since = None
            if not self._streamed:
                self._paper.line(f"(thought for {seconds:.0f} s)", "dim")

    def _answer(self, event: AssistantMessage) -> None:
        if not self._streamed and event.content.strip():
            self._markdown.feed(event.content)
        self._markdown.end()
        self._streamed = False
        if event.partial:
            self._note("The answer was cut here; what is above is kept.")

    def end_answer(self) -> None:
        """End an open answer, so that a question or a prompt begins on a line of its own."""
        self._markdown.end()

    # --- calls -------------------------------------------------------------------------------------------

    def _result(self, event: ToolResult) -> None:
        self.end_answer()
        self._streamed = False
        call = self._calls.pop(event.call_id, None)
        what = describe_call(event.tool_name, call.arguments if call is not None else {})
        self._paper.line(f"* {what} ({_outcome(event)})", "red" if event.is_error else "dim")
        if event.is_error:
            self._some(event.output, _ERROR_LINES)
        elif event.diff:
            self._diff(event.diff)
        elif event.tool_name not in _QUIET and event.output.strip():
            self._some(event.output, _SHOWN_OUTPUT, at_end=True)

    def _some(self, text: str, count: int, *, at_end: bool = False) -> None:
        lines = text.rstrip().split("\n")
        left = len(lines) - count
        if left > 0 and at_end:
            self._paper.line(f"    ... {left} lines before", "dim")
        for line in lines[-count:] if at_end else lines[:count]:
            self._paper.line(f"    {line}", "dim")
        if left > 0 and not at_end:
            self._paper.line(f"    ... {left} more lines", "dim")

    def _diff(self, diff: str) -> None:
        lines = diff.rstrip("\n").split("\n")
        for line in lines[:_DIFF_LINES]:
            head = line.startswith(("+++", "---", "@@"))
            style = "dim" if head else {"+": "green", "-": "red"}.get(line[:1], "")
            self._paper.line(f"    {line}", style)  # pyright: ignore[reportArgumentType] - values are styles
        if len(lines) > _DIFF_LINES:
            self._paper.line(f"    ... {len(lines) - _DIFF_LINES} more lines; /diff shows all", "dim")

    # --- all else ----------------------------------------------------------------------------------------

    def _show_plan(self, event: PlanEvent) -> None:
        items = tuple((item.title, item.status) for item in event.items)
        if items == self._plan:
            return
        self._plan = items
        self._paper.line("Plan:", "bold")
        for title, status in items:
            self._paper.line(f"  [{_MARKS.get(status, ' ')}] {title}")

    def _subagent(self, event: Subagent) -> None:
        self.end_answer()
        if event.action == "start":
            waits = "" if event.queued is None else " (waits for a place)"
            self._paper.line(f"* Agent {event.profile}: {event.task}{waits}", "dim")
        else:
            self._paper.line(f"* Agent {event.profile} is done ({event.stop_reason or 'end_turn'})", "dim")

    def _error(self, event: ErrorEvent) -> None:
        self.end_answer()
        advice = advice_for(str(event.kind))
        self._paper.line(f"! {event.message}", "red")
        if advice:
            self._paper.line(f"  {advice}")

    def _note(self, text: str, *, important: bool = False) -> None:
        self.end_answer()
        self._paper.line(f"! {text}", "yellow" if important else "dim")

    def result(self, result: RunResult) -> None:
        """Write how a run ended: in a line, with what it used."""
        self.end_answer()
        self._calls.clear()
        why = REASONS.get(result.stop_reason)
        if why:
            self._paper.line(f"! {why}", "yellow")
        cost = "" if result.cost_usd is None else f", ${result.cost_usd:.4f}"
        steps = f"{result.steps} step{'s' * (result.steps != 1)}"
        seconds = f"{result.duration_ms / 1000:.1f} s"
        self._paper.line(f"({steps}, {result.usage.total:,} tokens{cost}, {seconds})", "dim")


def _outcome(event: ToolResult) -> str:
    """Return in a few words how a call went."""
    parts: list[str] = []
    if event.is_error:
        parts.append({"denied": "not allowed", "blocked": "refused"}.get(str(event.category), "failed"))
    if event.exit_code not in (None, 0):
        parts.append(f"exit {event.exit_code}")
    added = sum(change.added for change in event.file_changes)
    removed = sum(change.removed for change in event.file_changes)
    if event.file_changes:
        parts.append(f"+{added} -{removed}")
    if event.duration_ms >= 100 or not parts:
        parts.append(f"{event.duration_ms / 1000:.1f} s")
    return ", ".join(parts)
