"""What a run tells at its end, folded from its events while they pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from aar.core.guardrails import CONTINUE_LABEL
from aar.core.stamps import Scope
from aar.core.timeline import Timeline
from aar.core.way_on import CODE as WAY_ON
from aar.protocol.events import (
    AssistantMessage,
    ContextEvent,
    ErrorEvent,
    Event,
    Notice,
    ProviderMeta,
    ToolResult,
    UserMessage,
)
from aar.protocol.messages import TextBlock
from aar.protocol.state import ExitCode
from aar.protocol.tool import FileChange
from aar.protocol.usage import Usage


@dataclass
class RunRecord(Scope):
    """The way into the session for one run, which remembers what the run came to.

    Attributes:
        text: The model's last words: the text of its last step that had any; an answer that was cut at
            the output limit and went on is one text.
        usage: Tokens.
        cost_usd: ``None`` when a price was not known.
        changes: By path; the changes of one file joined.
        diffs: Of each change, in order.
        error: The last error.
        exit_code: Of a run that failed; ``None``: the stop reason's.
        prompted: Whether the user's words are stored.
        task: Those words.
        way_on: How the work goes on after a limit, in a sentence.
        timeline: The steps.
    """

    text: str = ""
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    changes: dict[str, FileChange] = field(default_factory=dict[str, FileChange])
    diffs: list[str] = field(default_factory=list[str])
    error: ErrorEvent | None = None
    exit_code: ExitCode | None = None
    prompted: bool = False
    task: str = ""
    way_on: str | None = None
    timeline: Timeline = field(init=False)
    _text_step: int | None = None
    _continues: bool = False

    def __post_init__(self) -> None:
        self.timeline = Timeline(self.agent_id)

    def append(self, *events: Event) -> tuple[Event, ...]:
        """Store events; see `Session.append`."""
        stored = super().append(*events)
        for event in stored:
            self._fold(event)
            self.timeline.apply(event)
        return stored

    def _fold(self, event: Event) -> None:
        match event:
            case AssistantMessage():
                goes_on = self._continues or self._text_step == event.step
                self.text = self.text + event.content if goes_on else event.content
                self._text_step, self._continues = event.step, False
            case ContextEvent():
                self._continues = event.label == CONTINUE_LABEL
            case ProviderMeta():
                self.usage += event.usage
                known = self.cost_usd is not None and event.cost_usd is not None
                self.cost_usd = (self.cost_usd or 0) + (event.cost_usd or 0) if known else None
            case ToolResult():
                self.diffs += [event.diff] if event.diff else []
                for change in event.file_changes:
                    self._change(change)
            case ErrorEvent():
                self.error = event
            case UserMessage():
                self.prompted = True
                self.task = self.task or "\n".join(b.text for b in event.content if isinstance(b, TextBlock))
            case Notice() if event.code == WAY_ON:
                self.way_on = event.message
            case _:
                pass

    def include(
        self, usage: Usage, cost_usd: float | None, changes: Iterable[FileChange], diffs: Iterable[str]
    ) -> None:
        """Count what another agent did for this run."""
        self.usage += usage
        known = self.cost_usd is not None and cost_usd is not None
        self.cost_usd = (self.cost_usd or 0) + (cost_usd or 0) if known else None
        self.diffs += diffs
        for change in changes:
            self._change(change)

    def _change(self, change: FileChange) -> None:
        """Join the changes of one file: created then modified is created."""
        earlier = self.changes.get(change.path)
        if earlier is not None:
            change = change.model_copy(
                update={
                    "action": "create" if earlier.action == "create" else change.action,
                    "added": earlier.added + change.added,
                    "removed": earlier.removed + change.removed,
                    "before": earlier.before,
                }
            )
        self.changes[change.path] = change
