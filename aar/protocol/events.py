"""The event union: everything that happens in a session, typed and immutable (DESIGN 3).

Events are the truth. Messages for a provider, the screen, costs and undo are folds over them. A stored
event has a ``seq``; stream events (`StreamChunk`, `ToolProgress`) are shown and forgotten. Types and
fields that this version does not know are kept (`UnknownEvent`, ``extra="allow"``) and skipped by folds.
"""

# No `from __future__ import annotations`: pydantic would compile and evaluate the text of each annotation,
# a fifth of what it takes to define these models.
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import from_json

from aar.protocol.errors import ErrorKind, ToolCategory
from aar.protocol.messages import ContentBlock
from aar.protocol.state import AgentState, StopReason
from aar.protocol.text import JsonObject, Text
from aar.protocol.tool import FileChange
from aar.protocol.usage import Usage

SCHEMA_VERSION = 1
"""Version of the session file format; told in the first event of each file."""


class _Record(BaseModel):
    """A structured field of an event."""

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)


class Event(BaseModel, frozen=True):
    """Base of all events. The envelope is stamped by ``Session.append``; makers leave it empty.

    Attributes:
        id: ULID.
        seq: Position in the session, from 1, no gaps; null for events that are not stored.
        ts: RFC 3339 in UTC.
        session_id: ULID of the session.
        run_id: One for each ``Agent.run``; null outside of a run.
        step: Model request with its tool calls, from 1 in a run; null outside.
        trace_id: One for each session, 32 hex digits.
        agent_id: ``main``, or a sub-agent's.
        parent_id: The event that this one answers or belongs under.
    """

    model_config = ConfigDict(extra="allow", defer_build=True, populate_by_name=True, serialize_by_alias=True)

    stored: ClassVar[bool] = True

    type: str
    id: str = ""
    seq: int | None = None
    ts: str = ""
    session_id: str = ""
    run_id: str | None = None
    step: int | None = None
    trace_id: str = ""
    agent_id: str = "main"
    parent_id: str | None = None

    def to_json(self) -> str:
        """Return the event as one line of compact JSON, without the line end."""
        return self.model_dump_json()


class ForkOrigin(_Record):
    """Where a forked session came from."""

    session_id: str
    seq: int


class SessionEvent(Event, frozen=True):
    """A session starts, goes on, is forked, renamed or ends. The first line of every file.

    Attributes:
        base_url: Address at which ``model`` is asked, where a flag named one.
    """

    type: Literal["session"] = "session"
    action: Literal["start", "resume", "fork", "rename", "end"]
    schema_version: int | None = None
    aar_version: str | None = None
    cwd: Text | None = None
    model: Text | None = None
    base_url: Text | None = None
    title: Text | None = None
    forked_from: ForkOrigin | None = None


class PromptLayer(_Record):
    """One layer of the system prompt."""

    name: str
    source: Text
    text: Text


class PromptEvent(Event, frozen=True):
    """The system prompt and tools, at the start and whenever they change."""

    type: Literal["prompt"] = "prompt"
    layers: tuple[PromptLayer, ...]
    tools: JsonObject
    """``names``: list of tool names; ``sha256``: hash of their schemas."""
    sha256: str


class Setting(Event, frozen=True):
    """A setting of the session changed.

    Attributes:
        base_url: Address at which a model is asked, where a flag named one.
    """

    type: Literal["setting"] = "setting"
    key: Literal["mode", "model", "reasoning", "agent"] | str
    from_: Any = Field(default=None, alias="from")
    to: Any = None
    base_url: Text | None = None
    by: str = "user"


class UserMessage(Event, frozen=True):
    """What the user said."""

    type: Literal["user_message"] = "user_message"
    content: tuple[ContentBlock, ...]
    source: Literal["prompt", "steer", "queue", "continue"] | str = "prompt"


class ContextEvent(Event, frozen=True):
    """Text that aar itself puts before the model. ``trusted`` is false for what came from outside."""

    type: Literal["context"] = "context"
    source: Literal["hook", "verify", "nudge", "advisor", "notes", "diagnostics", "file_change"] | str
    label: Text = ""
    content: tuple[ContentBlock, ...]
    trusted: bool = True


class Reasoning(Event, frozen=True):
    """A block of the model's thinking; ``signature`` and ``data`` go back unchanged."""

    type: Literal["reasoning"] = "reasoning"
    content: Text = ""
    signature: str | None = None
    data: str | None = None
    redacted: bool = False


class AssistantMessage(Event, frozen=True):
    """A block of the model's text. ``partial``: the answer was cut by a cancel, a crash or an error."""

    type: Literal["assistant_message"] = "assistant_message"
    content: Text
    partial: bool = False
    refusal: bool = False


class ToolCall(Event, frozen=True):
    """The model asks for a tool."""

    type: Literal["tool_call"] = "tool_call"
    call_id: Text
    tool_name: Text
    arguments: JsonObject = Field(default_factory=dict)
    raw_arguments: Text | None = None


class ProviderMeta(Event, frozen=True):
    """Facts about one model request; ends the answer's block of events."""

    type: Literal["provider_meta"] = "provider_meta"
    provider: str
    model: Text
    usage: Usage
    cost_usd: float | None = None
    duration_ms: float = 0
    first_token_ms: float | None = None
    stop_reason_raw: Text | None = None
    attempts: int = 1
    request_id: Text | None = None
    cache_saved_usd: float | None = None
    """What the prompt cache spared, in US dollars; below 0 where writing it cost more; null: not known."""

    @property
    def full_model(self) -> str:
        """Who answered, as ``provider/model``."""
        return self.model if self.model.startswith(f"{self.provider}/") else f"{self.provider}/{self.model}"


class ApprovalRequest(Event, frozen=True):
    """A person, a hook or a policy program is asked whether a call may run."""

    type: Literal["approval_request"] = "approval_request"
    request_id: str
    call_id: Text
    tool_name: Text
    arguments: JsonObject
    diff: Text | None = None
    wall: str | None = None
    why: JsonObject = Field(default_factory=dict)
    """``rule``: the rule that asks, if one does; ``reasons``: list of sentences."""
    proposed_rule: Text | None = None
    scopes: tuple[str, ...] = ("once",)


class Approval(Event, frozen=True):
    """The answer to an `ApprovalRequest`, or a decision of policy that needed no question."""

    type: Literal["approval"] = "approval"
    request_id: str | None = None
    call_id: Text
    decision: Literal["allow", "reject", "cancelled"]
    scope: Literal["once", "session", "project", "user"] = "once"
    by: Literal["user", "policy", "hook", "mode"] = "user"
    rule: Text | None = None
    edited_arguments: JsonObject | None = None
    feedback: Text | None = None


class CheckpointEvent(Event, frozen=True):
    """The state of the workspace was kept, so that it can be brought back."""

    type: Literal["checkpoint"] = "checkpoint"
    checkpoint_id: str
    kind: Literal["auto", "manual", "undo", "redo"] = "auto"
    paths: tuple[Text, ...] = ()


class ToolResult(Event, frozen=True):
    """The one result of a tool call. ``would_allow``: rules for what the wall blocked, for this session."""

    type: Literal["tool_result"] = "tool_result"
    call_id: Text
    tool_name: Text
    output: Text
    content: tuple[ContentBlock, ...] = ()
    is_error: bool = False
    category: ToolCategory | str | None = None
    duration_ms: float = 0
    exit_code: int | None = None
    truncated: bool = False
    output_ref: str | None = None
    file_changes: tuple[FileChange, ...] = ()
    diff: Text | None = None
    sandbox: str | None = None
    would_allow: tuple[Text, ...] = ()


class Retry(Event, frozen=True):
    """A model request failed and is sent again. ``discard``: chunks shown for that attempt are void."""

    type: Literal["retry"] = "retry"
    attempt: int
    delay_s: float
    error_kind: ErrorKind | str
    message: Text
    discard: bool = False


class ModelSwitch(Event, frozen=True):
    """Another model goes on with the session. ``discard``: chunks shown for the failed attempt are void."""

    type: Literal["model_switch"] = "model_switch"
    from_model: Text
    to_model: Text
    reason: Text
    discard: bool = False


class ShrunkOutput(_Record):
    """A tool result whose output is shown to the model as ``note`` from now on."""

    seq: int
    note: Text
    output_ref: str | None = None
    """Where the whole output is kept, for ``read_output``."""


class Compaction(Event, frozen=True):
    """The conversation that the model is sent becomes shorter; the events before it stay as they are.

    Events before ``first_kept_seq`` are replaced by ``summary``, if there is one.
    """

    type: Literal["compaction"] = "compaction"
    summary: Text = ""
    first_kept_seq: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    trigger: str = "auto"
    """``auto``: the window was nearly full; ``overflow``: the model refused; ``manual``: the user asked."""
    shrunk: tuple[ShrunkOutput, ...] = ()
    """Old outputs that give way to a note."""
    kept_seqs: tuple[int, ...] = ()
    """User messages before ``first_kept_seq`` that stay word for word."""
    notes: dict[str, tuple[Text, ...]] = Field(default_factory=dict[str, tuple[Text, ...]])
    """What a model wrote of ``summary``, by section: the next compaction adds to it."""


class Rewind(Event, frozen=True):
    """The conversation or the files (or both) went back to ``to_seq``."""

    type: Literal["rewind"] = "rewind"
    to_seq: int
    scope: Literal["conversation", "files", "both"]


class PlanItem(_Record):
    """One item of a plan or todo list.

    Attributes:
        id: Its name in the plan.
        title: What is to be done.
        status: ``pending in_progress completed cancelled``; of a step that is run also ``executing failed
            blocked skipped``.
        depends_on: Ids of items that come first.
        done_when: The check that tells that it is done.
        detail: More of what is to be done.
        agent: Who does it; ``None``: whoever fits.
        files: Paths that it is about.
        read_only: Whether it changes nothing.
        note: How its last attempt ended.
        failures: Attempts that failed since the plan was last changed here.
    """

    id: str
    title: Text
    status: str = "pending"
    depends_on: tuple[str, ...] = ()
    done_when: Text | None = None
    detail: Text = ""
    agent: str | None = None
    files: tuple[Text, ...] = ()
    read_only: bool = False
    note: Text = ""
    failures: int = 0


class PlanEvent(Event, frozen=True):
    """The plan or todo list as it stands now; ``revision`` counts from 1.

    ``kind`` tells a plan, which can be run, from a todo list. The other fields are a plan's: what it is for,
    how it stands (``draft approved running done failed dropped``), how often it was made anew after failures,
    and why this revision came.
    """

    type: Literal["plan"] = "plan"
    items: tuple[PlanItem, ...]
    revision: int = 1
    kind: Literal["todo", "plan"] | str = "todo"
    goal: Text = ""
    stage: str = "draft"
    replans: int = 0
    reason: Text = ""


class Subagent(Event, frozen=True):
    """A sub-agent starts or ends.

    ``queued`` tells at the start how many wait for a place before it; ``None``: it works at once. Its first
    own event tells that its turn has come. ``work_tree`` is the copy of the project in which it works.
    """

    type: Literal["subagent"] = "subagent"
    action: Literal["start", "end"]
    profile: str
    task: Text = ""
    work_tree: Text | None = None
    queued: int | None = None
    result: Text | None = None
    stop_reason: StopReason | None = None


class StateEvent(Event, frozen=True):
    """The agent's state changed; at the end of a run with its stop reason."""

    type: Literal["state"] = "state"
    state: AgentState
    stop_reason: StopReason | None = None
    detail: Text | None = None


class Notice(Event, frozen=True):
    """Something that the user should know (budget warning, sandbox lost, store degraded …)."""

    type: Literal["notice"] = "notice"
    level: Literal["info", "warning", "error"] = "info"
    message: Text
    code: str | None = None


class ErrorEvent(Event, frozen=True):
    """Something failed."""

    type: Literal["error"] = "error"
    kind: ErrorKind | str
    stage: Literal["planning", "model", "tool", "context", "storage"] = "model"
    severity: Literal["warning", "error", "fatal"] = "error"
    message: Text
    retryable: bool = False
    detail: Text | None = None


class StreamChunk(Event, frozen=True):
    """A piece of an answer as it comes; not stored. ``finished`` is true exactly once for a stream."""

    stored: ClassVar[bool] = False

    type: Literal["stream_chunk"] = "stream_chunk"
    text: Text = ""
    reasoning_text: Text = ""
    tool_call_fragment: JsonObject | None = None
    finished: bool = False


class ToolProgress(Event, frozen=True):
    """A piece of a running tool's output; not stored."""

    stored: ClassVar[bool] = False

    type: Literal["tool_progress"] = "tool_progress"
    call_id: Text
    text: Text


class UnknownEvent(Event, frozen=True):
    """An event of a newer version: kept as it is, skipped by folds."""


KnownEvent = Annotated[
    SessionEvent
    | PromptEvent
    | Setting
    | UserMessage
    | ContextEvent
    | Reasoning
    | AssistantMessage
    | ToolCall
    | ProviderMeta
    | ApprovalRequest
    | Approval
    | CheckpointEvent
    | ToolResult
    | Retry
    | ModelSwitch
    | Compaction
    | Rewind
    | PlanEvent
    | Subagent
    | StateEvent
    | Notice
    | ErrorEvent
    | StreamChunk
    | ToolProgress,
    Field(discriminator="type"),
]
"""The discriminated union, for schemas and type narrowing. To parse, use `parse_event`."""

_KNOWN: tuple[type[Event], ...] = (
    SessionEvent,
    PromptEvent,
    Setting,
    UserMessage,
    ContextEvent,
    Reasoning,
    AssistantMessage,
    ToolCall,
    ProviderMeta,
    ApprovalRequest,
    Approval,
    CheckpointEvent,
    ToolResult,
    Retry,
    ModelSwitch,
    Compaction,
    Rewind,
    PlanEvent,
    Subagent,
    StateEvent,
    Notice,
    ErrorEvent,
    StreamChunk,
    ToolProgress,
)

EVENT_TYPES: dict[str, type[Event]] = {str(model.model_fields["type"].default): model for model in _KNOWN}
"""Every known event model by its ``type``."""


def event_from_dict(data: dict[str, Any]) -> Event:
    """Build the event that ``data`` describes; an unknown ``type`` gives an `UnknownEvent`.

    Raises:
        pydantic.ValidationError: ``data`` is not an event, or a known field has a wrong value.
    """
    return EVENT_TYPES.get(str(data.get("type")), UnknownEvent).model_validate(data)


def parse_event(line: str | bytes) -> Event:
    """Build the event that is written in ``line`` (one JSON object).

    Raises:
        ValueError: ``line`` is no JSON object or no event (`pydantic.ValidationError` is a ValueError).
    """
    data = from_json(line)
    if not isinstance(data, dict):
        raise ValueError("an event must be a JSON object")
    return event_from_dict(data)  # pyright: ignore[reportUnknownArgumentType]
