"""View state around the transcript: what goes on, for how long, at what cost, what waits for the user."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aar.protocol.state import AgentState, StopReason

if TYPE_CHECKING:
    from aar.protocol.events import ApprovalRequest, PlanItem
    from aar.protocol.panel import Panel


@dataclass(slots=True)
class ChangedFile:
    """A file that this session changed. ``added`` and ``removed`` count lines over all changes."""

    path: str
    action: str
    added: int = 0
    removed: int = 0


@dataclass(slots=True)
class Status:
    """Facts for header, activity line, side panel and window title.

    Attributes:
        title: Of the session.
        model: ``provider/model`` that answers.
        mode: Permission mode.
        state: Of the main agent.
        activity: What happens now, in a few words (``Thinking``, ``Running pytest -q``); empty when idle.
        since: Monotonic seconds when that began.
        run_since: Monotonic seconds when the run began; ``None``: no run.
        stop_reason: Why the last run ended.
        step: Of the present run.
        run_tokens: Tokens that the present run used.
        context_tokens: Tokens of the last request with its answer: how full the window is.
        context_window: Tokens that the model can see; ``None``: not known.
        cost_usd: Of the session.
        cost_known: False where some request had no known price: then ``cost_usd`` is a lower bound.
        tokens: Of the session.
        pending: Questions that wait for the user, oldest first.
        plan: Items of the plan or todo list.
        files: Changed files by path.
        last_seq: Of the last stored event that was taken.
        project: Name of the project's folder.
        branch: That is checked out there; empty: none.
        wall: Around commands; empty: not known yet.
        reasoning: How much the model is told to think; empty: its default.
        panels: Of extensions.
    """

    title: str = ""
    model: str = ""
    mode: str = ""
    state: AgentState = AgentState.IDLE
    activity: str = ""
    since: float = 0.0
    run_since: float | None = None
    stop_reason: StopReason | None = None
    step: int | None = None
    run_tokens: int = 0
    context_tokens: int = 0
    context_window: int | None = None
    cost_usd: float = 0.0
    cost_known: bool = True
    tokens: int = 0
    pending: list[ApprovalRequest] = field(default_factory=lambda: list["ApprovalRequest"]())
    plan: tuple[PlanItem, ...] = ()
    panels: tuple[Panel, ...] = ()
    files: dict[str, ChangedFile] = field(default_factory=dict[str, ChangedFile])
    last_seq: int = 0
    project: str = ""
    branch: str = ""
    wall: str = ""
    reasoning: str = ""

    @property
    def working(self) -> bool:
        """Whether a run is under way."""
        return self.run_since is not None
