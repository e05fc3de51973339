"""Tools as data: what the model is told, what the executor needs, what comes out."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from aar.protocol.errors import ToolCategory
from aar.protocol.messages import ImageBlock
from aar.protocol.text import Text

if TYPE_CHECKING:
    from aar.protocol.ports import ToolContext

ToolHandler = Callable[[Any, "ToolContext"], Awaitable["ToolOutcome"]]
"""``await handler(arguments, context)``: arguments are an instance of ``ToolSpec.arguments``, or a dict."""


class SideEffect(StrEnum):
    """What a tool may do to the world."""

    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    NETWORK = "network"
    EXTERNAL = "external"


class FileChange(BaseModel):
    """One file that a call changed. ``before`` and ``after`` are blob ids (null: no such file)."""

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)

    path: Text
    action: Literal["create", "modify", "delete", "rename"]
    old_path: Text | None = None
    added: int = 0
    removed: int = 0
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a handler returns.

    Attributes:
        output: Text that the model sees, before `[tools] max_output_chars` is applied.
        images: Images that the model sees after the text.
        is_error: Whether the call failed; then ``category`` says how.
        exit_code: Of a process, where one ran.
        truncated: Whether ``output`` is less than all there was.
        output_ref: Name under which ``read_output`` finds the whole output.
        file_changes: What changed on disk.
        diff: Unified diff of the change, for people.
        sandbox: Name of the wall that held, where a process ran.
        would_allow: Rules of ``allow_domains`` that would have let through what the wall blocked.
    """

    output: str
    images: tuple[ImageBlock, ...] = ()
    is_error: bool = False
    category: ToolCategory | None = None
    exit_code: int | None = None
    truncated: bool = False
    output_ref: str | None = None
    file_changes: tuple[FileChange, ...] = ()
    diff: str | None = None
    sandbox: str | None = None
    would_allow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool.

    Attributes:
        name: What the model calls it by.
        description: What it does, when to use it, inputs, outputs, limits (a test lints this).
        input_schema: JSON Schema of the arguments, an object.
        side_effects: Empty means that it touches nothing outside the session.
        handler: Coroutine function that does it; see `ToolHandler`.
        arguments: Pydantic model that the arguments are validated with; without it they stay a dict
            that was checked against ``input_schema``.
        timeout_s: Seconds after which the executor gives up; ``None``: the handler sees to it.
        idempotent: Whether repeating a call changes nothing more.
        concurrency: ``parallel`` calls of one step run side by side when all their effects are reads.
        summary: One short line for small models and for ``aar tools``.
        dry_run: Whether it touches nothing but ``ToolContext.files``, so that running it over files that
            only seem to change tells what it would change.
    """

    name: str
    description: str
    input_schema: dict[str, Any]
    side_effects: frozenset[SideEffect]
    handler: ToolHandler | None
    arguments: type[BaseModel] | None = None
    timeout_s: float | None = None
    idempotent: bool = False
    concurrency: Literal["parallel", "serial"] = "serial"
    summary: str = ""
    dry_run: bool = False
    aliases: dict[str, str] = field(default_factory=dict[str, str])
    """Foreign argument names that are accepted, mapped to ours."""
    waits: bool = False
    """Whether it mostly waits for others, so that it takes none of the places for calls side by side."""

    @property
    def read_only(self) -> bool:
        """Whether the tool can only read."""
        return self.side_effects <= {SideEffect.READ}
