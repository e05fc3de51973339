"""What hooks, commands and panels get and give back. Part of the stable `aar.extensions.api`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aar.protocol.events import Event, PlanItem


@dataclass(frozen=True, slots=True)
class HookEvent:
    """A moment of a run.

    Attributes:
        name: Such as ``before_tool``; see `aar.extensions.api.EVENTS`.
        data: What is known of it; docs/extensions.md lists the keys.
    """

    name: str
    data: Mapping[str, Any]

    @property
    def tool_name(self) -> str:
        """Name of the tool; empty where the event is about none."""
        return str(self.data.get("tool_name") or "")

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Arguments of the call; empty where the event is about none."""
        found: Mapping[str, Any] = self.data.get("arguments") or {}
        return found

    @property
    def prompt(self) -> str:
        """What the user said, of ``prompt_submit``."""
        return str(self.data.get("prompt") or "")


@dataclass(frozen=True, slots=True)
class BlockResult:
    """It may not go on; the reason is shown to the model (of a prompt: to the user)."""

    reason: str


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """Other arguments for the call, added over those of the model. They are judged like any others."""

    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ContextResult:
    """Text for the model."""

    text: str


@dataclass(frozen=True, slots=True)
class AllowResult:
    """A question is answered with yes, where the extension is the user's own; denials and hard stops stay."""


HookResult = BlockResult | RewriteResult | ContextResult | AllowResult | str | None
"""What a hook returns; a plain string is text for the model. A list of these says several things."""


@dataclass(frozen=True, slots=True)
class RunNumbers:
    """Numbers of the session so far.

    Attributes:
        steps: Model requests with their tool calls.
        tool_calls: Calls that models asked for.
        tool_errors: Results that were errors.
        tokens: All tokens.
        cost_usd: US dollars, as far as prices are known.
        cost_known: Whether all prices are known.
    """

    steps: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    cost_known: bool = True


@dataclass(frozen=True, slots=True)
class ExtensionContext:
    """A read-only view of the session at one moment; each call of an extension gets a fresh one.

    Attributes:
        extension: Name of the extension.
        session_id: Of the session.
        workspace: Root of the project.
        data_folder: Where the extension may keep files of its own; it exists.
        settings: ``[extensions.settings.NAME]``.
        model: ``provider/model`` that answers.
        mode: Permission mode.
        wall: Name of the wall around commands; ``none``: there is none.
        agent_id: ``main``, or the sub-agent's that the call is about.
        state: Of the agent, such as ``running``.
        title: Of the session.
        plan: Items of the plan or todo list.
        numbers: Counts and costs.
        read_events: See `events`.
    """

    extension: str
    session_id: str
    workspace: Path
    data_folder: Path
    settings: Mapping[str, Any]
    model: str
    mode: str
    wall: str
    agent_id: str
    state: str
    title: str
    plan: tuple[PlanItem, ...]
    numbers: RunNumbers
    read_events: Callable[[int], Sequence[Event]]

    def events(self, last: int = 100) -> tuple[Event, ...]:
        """Return the last stored events of the session, oldest first; at most 10,000."""
        return tuple(self.read_events(max(1, min(last, 10_000))))


@dataclass(frozen=True, slots=True)
class Send:
    """What a command sends to the model as the user's prompt.

    Attributes:
        prompt: The text; ``@file`` in it is expanded.
        note: Tells the user what is sent.
    """

    prompt: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Rows:
    """A table that a command answers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


CommandResult = str | Send | Rows | None
"""What a command returns; a string is Markdown."""
