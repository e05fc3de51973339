"""The planner of an extension in one session: plans of tasks, and other plans where steps failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from aar.extensions.api_parts import Planner, Replanner
from aar.extensions.in_session import ExtensionsInSession
from aar.extensions.manager import Extension
from aar.extensions.worker import ExtensionTroubleError
from aar.protocol.events import PlanItem
from aar.tools.builtin.planning_graph import graph_problem, with_completed

_MOST_STEPS = 200


class SessionPlanner:
    """Asks an extension's planner; what it gives is looked at, and one that fails is put aside.

    Args:
        here: The session's extensions.
        extension: Whose it is.
        planner: The planner.
    """

    def __init__(self, here: ExtensionsInSession, extension: Extension, planner: Planner) -> None:
        self._here, self._extension = here, extension
        self._planner: Planner | None = planner
        self._declined = ""

    @property
    def name(self) -> str:
        """Name of the extension."""
        return self._extension.name

    def asked_before(self, prompt: str) -> bool:
        """Tell whether ``prompt`` is about the goal that it had no plan for."""
        return bool(self._declined) and self._declined in prompt

    async def plan(self, task: str) -> tuple[PlanItem, ...]:
        """Return the steps of ``task``; none: it needs no plan, or the planner failed."""
        if self._planner is None:
            return ()
        try:
            made = await self._here.call(
                self._extension, self._planner.plan, task, self._here.context(self._extension)
            )
            items = _steps(made)
        except Exception as error:
            self._failed(error, "work goes on without a plan")
            return ()
        self._declined = "" if items else task.strip()
        return items

    async def replan(self, goal: str, items: Sequence[PlanItem], why: str) -> tuple[PlanItem, ...]:
        """Return the steps of another plan; none: it has no other, cannot make one, or failed.

        Args:
            goal: What the plan is for.
            items: Its steps as they stand.
            why: What went wrong.
        """
        planner = self._planner
        if not isinstance(planner, Replanner):
            return ()
        try:
            context = self._here.context(self._extension)
            made = await self._here.call(self._extension, planner.replan, goal, tuple(items), why, context)
            found = _steps(made, items)
        except Exception as error:
            self._failed(error, "the model changes the plan")
            return ()
        return found

    def _failed(self, error: Exception, then: str) -> None:
        self._planner = None
        self._here.failed(self._extension, "planner", error, then)


def _steps(made: object, before: Sequence[PlanItem] = ()) -> tuple[PlanItem, ...]:
    """Return what a planner made as steps that nobody has begun.

    Raises:
        ExtensionTroubleError: They are no steps, or cannot be done in any order.
    """
    given = list(cast("Sequence[object]", made or ()))
    if not all(isinstance(item, PlanItem) for item in given):
        raise ExtensionTroubleError("a plan must be a list of PlanItem")
    if len(given) > _MOST_STEPS:
        raise ExtensionTroubleError(f"a plan may have {_MOST_STEPS} steps and this one has {len(given)}")
    plain = {"status": "pending", "failures": 0, "note": ""}
    items = tuple(item.model_copy(update=plain) for item in cast("list[PlanItem]", given))
    problem = graph_problem(with_completed(before, items))
    if problem:
        raise ExtensionTroubleError(problem.rstrip("."))
    return items
