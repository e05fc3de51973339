"""Protocols of the parts of aar that an extension may replace. Part of the stable `aar.extensions.api`.

One extension can hold each part; where two ask for the same, the later one in the order of discovery has it.
A part that fails is put aside for the rest of the session, the user is told once, and aar's own goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from aar.config.schema import GuardrailsConfig
from aar.core.guardrails import Nudge, Verdict
from aar.extensions.api_types import ExtensionContext
from aar.protocol.events import PlanItem, PromptLayer, ToolCall, ToolResult
from aar.protocol.tool import ToolOutcome

PartName = Literal["planner", "memory", "prompt_builder", "guardrails", "call_handler"]
PARTS: tuple[PartName, ...] = ("planner", "memory", "prompt_builder", "guardrails", "call_handler")


@runtime_checkable
class Planner(Protocol):
    """Makes a plan of a task before the model begins; of a goal of ``/plan``, the plan that is run."""

    async def plan(self, task: str, context: ExtensionContext) -> Sequence[PlanItem]:
        """Return the steps of ``task``; none: it needs no plan."""
        ...


@runtime_checkable
class Replanner(Planner, Protocol):
    """A planner that also changes plans whose steps failed; without it the model does that."""

    async def replan(
        self, goal: str, items: Sequence[PlanItem], why: str, context: ExtensionContext
    ) -> Sequence[PlanItem]:
        """Return all steps of a better plan; none: the model shall look for one.

        Args:
            goal: What the plan is for.
            items: Its steps as they stand, with state and last failure (``note``); completed ones stay.
            why: What went wrong.
            context: The session.
        """
        ...


@dataclass(frozen=True, slots=True)
class Recollection:
    """Something that a memory knows.

    Attributes:
        text: What; the model sees it as data.
        source: Where it comes from, for people.
    """

    text: str
    source: str = ""


@runtime_checkable
class Memory(Protocol):
    """Remembers over sessions."""

    async def recall(self, prompt: str, context: ExtensionContext) -> Sequence[Recollection]:
        """Return what may help with ``prompt``, best first; the first five are shown to the model."""
        ...

    async def remember(self, prompt: str, answer: str, context: ExtensionContext) -> None:
        """Take note of a turn that ended well."""
        ...


@runtime_checkable
class PromptBuilder(Protocol):
    """Builds the system prompt."""

    def build(self, layers: tuple[PromptLayer, ...], facts: Mapping[str, Any]) -> Sequence[PromptLayer]:
        """Return the layers that the model gets.

        Args:
            layers: Those that aar would use, rules and additions of extensions included.
            facts: ``workspace``, ``mode``, ``model``, ``dialect`` and ``tools`` (names).
        """
        ...


@runtime_checkable
class Guardrails(Protocol):
    """Watches the answers of one run; `aar.core.guardrails.LoopGuardrails` is aar's own."""

    def world_changed(self) -> None:
        """Forget the steps so far."""
        ...

    def after_answer(self, *, text: str, cut: bool, refused: bool, problem: str | None) -> Verdict:
        """Judge an answer without tool calls: a `Nudge`, a `StopReason`, or ``None`` for nothing to say."""
        ...

    def after_cut_call(self) -> Verdict:
        """Judge an answer whose tool call was cut."""
        ...

    def after_tools(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> Verdict:
        """Judge a step's calls with their results."""
        ...


MakeGuardrails = Callable[[GuardrailsConfig], Guardrails]
"""Makes the guardrails of one run."""


@dataclass(frozen=True, slots=True)
class HandledCall:
    """A call that policy has let through.

    Attributes:
        tool_name: Of which tool.
        arguments: As they were judged.
        call_id: Of the call.
        agent_id: Who made it.
    """

    tool_name: str
    arguments: Mapping[str, Any]
    call_id: str
    agent_id: str


Proceed = Callable[[], Awaitable[ToolOutcome]]
"""Runs the tool as it was judged; at most once."""


@runtime_checkable
class CallHandler(Protocol):
    """Surrounds every tool call: behind policy, approval and checkpoint, in front of the tool."""

    async def handle(self, call: HandledCall, proceed: Proceed) -> ToolOutcome:
        """Return the outcome of ``call``: that of ``proceed()``, another one, or one without running it."""
        ...


__all__ = [
    "PARTS",
    "CallHandler",
    "Guardrails",
    "HandledCall",
    "MakeGuardrails",
    "Memory",
    "Nudge",
    "PartName",
    "Planner",
    "Proceed",
    "PromptBuilder",
    "Recollection",
    "Replanner",
    "Verdict",
]
