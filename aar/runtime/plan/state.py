"""The plan as a session holds it: stored, changed, approved, dropped. Each change is a new revision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aar.orchestration.plan_text import from_markdown
from aar.protocol.errors import NotThereError, PlanningError, ToolCategory, ToolFailure, UsageError
from aar.protocol.events import Notice, PlanEvent, PlanItem
from aar.tools.builtin.planning_graph import graph_problem, left_without, with_completed

if TYPE_CHECKING:
    from aar.core.session import Session
    from aar.protocol.ports import Emit
    from aar.runtime.parts import Runtime

_SAME = ("id", "title", "detail", "depends_on", "done_when", "agent", "files", "read_only")


def current(session: Session) -> PlanEvent:
    """Return the plan of ``session``.

    Raises:
        UsageError: There is none.
    """
    plan = session.totals.task_plan
    if plan is None or not plan.items:
        raise NotThereError("There is no plan here; /plan GOAL lets the model make one.")
    return plan


def store(session: Session, plan: PlanEvent, emit: Emit | None = None) -> PlanEvent:
    """Store ``plan`` as the next revision and return it as stored."""
    event = PlanEvent(
        items=plan.items,
        revision=session.totals.plan_revision + 1,
        kind="plan",
        goal=plan.goal,
        stage=plan.stage,
        replans=plan.replans,
        reason=plan.reason,
    )
    stored = (emit or session).append(event)[0]
    assert isinstance(stored, PlanEvent)
    return stored


def write(
    session: Session, emit: Emit, items: Sequence[PlanItem], goal: str, *, interactive: bool
) -> Sequence[PlanItem]:
    """Store what a model set down with the tool ``plan``; return the steps as they now stand.

    While a plan is run, its completed steps stay whatever the model says.
    """
    before = session.totals.task_plan
    if before is not None and before.stage == "running":
        items = with_completed(before.items, items)
        problem = graph_problem(items)
        if problem:
            raise ToolFailure(ToolCategory.INVALID_ARGUMENTS, f"With the completed steps: {problem}")
        plan = before.model_copy(update={"items": tuple(items), "reason": "changed by the model"})
        return store(session, plan, emit).items
    same = before is not None and _shape(before.items) == _shape(items)
    stage = before.stage if before is not None and same else "draft"
    goal = goal.strip() or (before.goal if before is not None else "")
    if not items:
        stage = "dropped"
    store(session, PlanEvent(items=tuple(items), goal=goal, stage=stage, reason="written by the model"), emit)
    if items and (before is None or before.stage not in ("draft", "approved")):
        how = "/plan shows it, /plan edit changes it, /plan run does it"
        if not interactive:
            how = (
                f"`aar plan show {session.session_id}` shows it, `aar plan run {session.session_id}` does it"
            )
        emit.append(Notice(message=f"A plan of {len(items)} steps: {how}.", code="plan"))
    return items


def _shape(items: Sequence[PlanItem]) -> list[tuple[object, ...]]:
    return [tuple(getattr(item, name) for name in _SAME) for item in items]


def set_down(session: Session, goal: str, items: Sequence[PlanItem], reason: str) -> PlanEvent:
    """Store a plan of the user's as a draft.

    Raises:
        PlanningError: It cannot be run as it is.
    """
    problem = graph_problem(items)
    if problem:
        raise PlanningError(problem)
    return store(session, PlanEvent(items=tuple(items), goal=goal, reason=reason))


def edit(runtime: Runtime, session: Session, markdown: str) -> PlanEvent:
    """Store the plan as the user edited it.

    Raises:
        PlanningError: The text is no plan that can be run.
    """
    goal, items = from_markdown(markdown, runtime.workspace)
    before = session.totals.task_plan
    old = {item.id: item for item in before.items} if before is not None else {}
    kept = [
        item.model_copy(update={"note": old[item.id].note, "failures": old[item.id].failures})
        if item.id in old
        else item
        for item in items
    ]
    return set_down(session, goal, kept, "edited")


def approve(session: Session, ids: Sequence[str] = ()) -> PlanEvent:
    """Approve the plan, or only the steps ``ids`` of it: the others are left out.

    Raises:
        UsageError: There is no plan or no such step, or a step needs one that is left out.
    """
    plan = current(session)
    known = {item.id for item in plan.items}
    if strange := [each for each in ids if each not in known]:
        raise NotThereError(f"There is no step {', '.join(strange)}; steps are {', '.join(known_ids(plan))}.")
    items = plan.items
    if ids:
        missing = left_without(items, frozenset(ids))
        if missing:
            name, needed = next(iter(missing.items()))
            wanted = ", ".join(needed)
            raise UsageError(
                f"Step {name} needs {wanted}, which you leave out; name {wanted} too, or not {name}."
            )
        items = tuple(_chosen(item, item.id in ids) for item in items)
    return store(session, plan.model_copy(update={"items": items, "stage": "approved", "reason": "approved"}))


def _chosen(item: PlanItem, wanted: bool) -> PlanItem:
    """Return a step as a partial approval leaves it."""
    if item.status == "completed" or (wanted and item.status != "skipped"):
        return item
    return item.model_copy(update={"status": "pending" if wanted else "skipped"})


def known_ids(plan: PlanEvent) -> list[str]:
    """Return the ids of the plan's steps, in its order."""
    return [item.id for item in plan.items]


def skip(session: Session, item_id: str) -> PlanEvent:
    """Leave a step out; those that need it go on without it.

    Raises:
        UsageError: There is no plan, or no such step.
    """
    plan = current(session)
    if item_id not in known_ids(plan):
        raise NotThereError(f"There is no step {item_id}; steps are {', '.join(known_ids(plan))}.")
    items = tuple(
        item.model_copy(update={"status": "skipped"}) if item.id == item_id else item for item in plan.items
    )
    return store(session, plan.model_copy(update={"items": items, "reason": f"step {item_id} left out"}))


def drop(session: Session) -> None:
    """Let the session have no plan any more; what was stored of it stays.

    Raises:
        UsageError: There is none.
    """
    plan = current(session)
    store(session, plan.model_copy(update={"stage": "dropped", "reason": "dropped"}))
