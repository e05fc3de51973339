"""View state of the transcript: a block for each thing that is shown, without a word about how it is drawn.

Blocks are made and changed by the `Presenter` alone. Widgets read them; ``revision`` tells when to draw.
All text is as the session has it: whoever draws it sanitises it first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    # The screen is drawn before the events' models are imported.
    from aar.protocol.events import PlanItem
    from aar.protocol.tool import FileChange

ToolStatus = Literal["writing", "waiting", "asking", "running", "done", "failed", "denied", "cancelled"]
"""``writing``: the model still writes the arguments; ``waiting``: for its turn; ``asking``: for an answer."""

MAX_TAIL_CHARS = 20_000
"""Characters of a running tool's output that are kept for the screen."""


@dataclass(slots=True, eq=False, repr=False)
class Block:
    """One thing in the transcript.

    Attributes:
        key: Unique; it does not change while the block lives.
        seq: Of the stored event that it stands for; ``None`` while only streamed.
        agent_id: Whose it is.
        live: Whether it may still change.
        revision: Counts changes.
    """

    key: int
    seq: int | None = None
    agent_id: str = "main"
    live: bool = False
    revision: int = 0


@dataclass(slots=True, eq=False, repr=False)
class UserBlock(Block):
    """What the user said; ``attachments`` are names of images and files."""

    text: str = ""
    attachments: tuple[str, ...] = ()
    source: str = "prompt"


@dataclass(slots=True, eq=False, repr=False)
class _TextBlock(Block):
    """Text that may be streaming."""

    _pieces: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        """All text so far."""
        if len(self._pieces) > 1:
            self._pieces[:] = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def add(self, piece: str) -> None:
        """Take the next piece of a stream."""
        self._pieces.append(piece)
        self.revision += 1

    def settle(self, text: str, seq: int | None) -> None:
        """Take the whole text as it was stored."""
        self._pieces[:] = [text]
        self.seq, self.live = seq, False
        self.revision += 1


@dataclass(slots=True, eq=False, repr=False)
class AnswerBlock(_TextBlock):
    """Text of the model, in Markdown."""

    partial: bool = False
    refusal: bool = False


@dataclass(slots=True, eq=False, repr=False)
class ThinkingBlock(_TextBlock):
    """Thinking of the model. ``seconds``: how long it took, where it was watched."""

    seconds: float | None = None
    redacted: bool = False


@dataclass(slots=True, eq=False, repr=False)
class ToolBlock(Block):
    """A tool call with its result.

    Attributes:
        call_id: Empty while the model writes the call.
        name: Of the tool.
        arguments: As the model gave them (or as the user edited them).
        draft: Arguments as JSON text, while they are being written, or when they were no JSON.
        status: See `ToolStatus`.
        tail: Last part of the output while the tool runs.
        output: What the model sees; empty until the tool has ended.
        category: Of an error.
        diff: Unified diff of what it changed.
        wall: Wall that held around a process.
        output_ref: For the whole output, where it was cut.
        images: Number of images in the result.
        feedback: What the user said when they did not allow it.
        typed: Whether it is a command that the user typed.
    """

    call_id: str = ""
    name: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    status: ToolStatus = "writing"
    output: str = ""
    is_error: bool = False
    category: str | None = None
    duration_ms: float | None = None
    exit_code: int | None = None
    diff: str | None = None
    changes: tuple[FileChange, ...] = ()
    wall: str | None = None
    truncated: bool = False
    output_ref: str | None = None
    images: int = 0
    feedback: str | None = None
    typed: bool = False
    _draft: list[str] = field(default_factory=list[str])
    _tail: deque[str] = field(default_factory=deque[str])
    _tail_chars: int = 0

    @property
    def draft(self) -> str:
        """Arguments as the model writes them."""
        if len(self._draft) > 1:
            self._draft[:] = ["".join(self._draft)]
        return self._draft[0] if self._draft else ""

    def add_draft(self, piece: str) -> None:
        """Take the next piece of the arguments."""
        self._draft.append(piece)
        self.revision += 1

    def settle_draft(self, raw: str | None) -> None:
        """Forget the draft; keep ``raw``, arguments that were no JSON."""
        self._draft[:] = [raw] if raw else []

    @property
    def tail(self) -> str:
        """The end of what a running tool wrote so far."""
        return "".join(self._tail)

    def add_progress(self, text: str) -> None:
        """Take the next piece of output of the running tool; only the last `MAX_TAIL_CHARS` are kept."""
        self._tail.append(text[-MAX_TAIL_CHARS:])
        self._tail_chars += len(self._tail[-1])
        while self._tail_chars > MAX_TAIL_CHARS and len(self._tail) > 1:
            self._tail_chars -= len(self._tail.popleft())
        self.revision += 1

    def drop_tail(self) -> None:
        """Forget the running output: the result has it."""
        self._tail.clear()
        self._tail_chars = 0


@dataclass(slots=True, eq=False, repr=False)
class PlanBlock(Block):
    """The plan or todo list; one block that is brought up to date while the run lasts."""

    items: tuple[PlanItem, ...] = ()


@dataclass(slots=True, eq=False, repr=False)
class SubagentBlock(Block):
    """Another agent at work: its task, what it does now, and its report.

    ``waits``: how many wait for a place before it; ``None``: it has one.
    """

    profile: str = ""
    task: str = ""
    activity: str = ""
    steps: int = 0
    waits: int | None = None
    result: str | None = None
    stop_reason: str | None = None


@dataclass(slots=True, eq=False, repr=False)
class NoticeBlock(Block):
    """Something the user should know. ``count``: how often it was said in a row."""

    level: Literal["info", "warning", "error"] = "info"
    message: str = ""
    code: str | None = None
    count: int = 1


@dataclass(slots=True, eq=False, repr=False)
class ErrorBlock(Block):
    """Something failed; ``advice`` says what to do next."""

    kind: str = ""
    message: str = ""
    advice: str = ""


MarkKind = Literal[
    "session", "model", "mode", "compaction", "checkpoint", "rewind", "retry", "end", "context"
]


@dataclass(slots=True, eq=False, repr=False)
class MarkBlock(Block):
    """A thin line in the transcript: a compaction, a checkpoint, another model. ``detail`` unfolds."""

    kind: MarkKind = "session"
    label: str = ""
    detail: str = ""


AnyBlock = (
    UserBlock
    | AnswerBlock
    | ThinkingBlock
    | ToolBlock
    | PlanBlock
    | SubagentBlock
    | NoticeBlock
    | ErrorBlock
    | MarkBlock
)
