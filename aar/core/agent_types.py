"""What an agent is told about its runs, the parts that it is given, and how a run ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aar.config.schema import BudgetConfig, Config, ContextConfig, GuardrailsConfig, LimitsConfig, ModelConfig
from aar.core.limits import RunLimits
from aar.core.run_record import RunRecord
from aar.core.session import Session
from aar.core.verify.verifier import Verifier
from aar.core.view import SessionView
from aar.protocol.events import Event
from aar.protocol.messages import ContentBlock
from aar.protocol.state import ExitCode, StopReason, exit_code
from aar.protocol.tool import FileChange
from aar.protocol.usage import Usage


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """What an agent is told about its runs.

    Attributes:
        limits: Of each run.
        guardrails: Help for a stuck model.
        budget: When warnings are shown.
        max_prompt_chars: Longest prompt that is taken.
        max_attachment_bytes: Largest file that a prompt may attach with ``@``.
        context: When the conversation is compacted.
        model: How the model is asked that sums it up.
    """

    limits: LimitsConfig = field(default_factory=LimitsConfig)
    guardrails: GuardrailsConfig = field(default_factory=GuardrailsConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    max_prompt_chars: int = 2_000_000
    max_attachment_bytes: int = 10_000_000
    context: ContextConfig = field(default_factory=ContextConfig)
    model: ModelConfig = field(default_factory=ModelConfig)

    @classmethod
    def from_config(cls, config: Config) -> AgentConfig:
        """Take what concerns the agent from the whole configuration."""
        return cls(
            limits=config.limits,
            guardrails=config.guardrails,
            budget=config.budget,
            max_prompt_chars=config.context.max_prompt_chars,
            max_attachment_bytes=config.context.max_attachment_bytes,
            context=config.context,
            model=config.model,
        )


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended: the fields of ``aar run --output json`` (DESIGN 9)."""

    session_id: str
    run_id: str
    stop_reason: StopReason
    exit_code: ExitCode
    text: str
    usage: Usage
    cost_usd: float | None
    steps: int
    duration_ms: float
    file_changes: tuple[FileChange, ...]
    diffs: tuple[str, ...]
    error: dict[str, Any] | None
    way_on: str | None = None
    """How the work goes on, where a limit ended it."""


Turn = Callable[[str], Awaitable[StopReason]]
"""``await turn(prompt)``: lets the model work on ``prompt`` inside the present run, without its checks."""
Work = Callable[[RunRecord, Turn], Awaitable[StopReason]]
"""``await work(record, turn)``: what a run does in place of the loop; it stores by ``record``."""
MakeView = Callable[[Session], SessionView]
MakeVerifier = Callable[[], Verifier | None]
Survey = Callable[[], Awaitable[Sequence[str]]]
Prepare = Callable[[tuple[ContentBlock, ...]], Awaitable[tuple[tuple[ContentBlock, ...], Sequence[str]]]]
"""``await prepare(prompt)``: the prompt with what it names elsewhere, and sentences for the user."""
Counsel = Callable[[str], Awaitable[Sequence[Event]]]
"""``await counsel(prompt)``: what is put before the model beside a prompt, such as notes and advice."""
Reviewer = Callable[[RunRecord], Awaitable[Event | None]]
"""``await reviewer(record)``: what the model is to do better before its work counts as done, if anything."""


def result_of(
    reason: StopReason, session: Session, record: RunRecord, limits: RunLimits, seconds: float
) -> RunResult:
    """Return how a run ended that took ``seconds``."""
    error = None
    if reason is StopReason.ERROR and record.error is not None:
        error = {"kind": str(record.error.kind), "message": record.error.message}
    return RunResult(
        session_id=session.session_id,
        run_id=record.run_id,
        stop_reason=reason,
        exit_code=exit_code(reason) if record.exit_code is None else record.exit_code,
        text=record.text,
        usage=record.usage,
        cost_usd=record.cost_usd,
        steps=limits.steps,
        duration_ms=round(seconds * 1000, 3),
        file_changes=tuple(record.changes.values()),
        diffs=tuple(record.diffs),
        error=error,
        way_on=record.way_on,
    )
