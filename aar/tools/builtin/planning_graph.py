"""The steps of a plan as a graph: what is wrong with it, what may start, what waits for what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final

from aar.protocol.events import PlanItem

SATISFIED: Final = frozenset({"completed", "skipped"})
"""States of a step that those behind it need not wait for."""
OVER: Final = frozenset({"completed", "skipped", "failed", "cancelled"})
"""States of a step that nobody will work on any more in the present run."""
MANY_STEPS: Final = 20
"""Steps from which a plan is likely cut too finely."""


def graph_problem(items: Sequence[PlanItem]) -> str | None:
    """Return what is wrong with the ids and dependencies of ``items``, or ``None``."""
    ids = [item.id for item in items]
    twice = sorted({each for each in ids if ids.count(each) > 1})
    if twice:
        return f"Two items have the id {', '.join(twice)}; ids must differ."
    for item in items:
        for needed in item.depends_on:
            if needed not in ids:
                return (
                    f"Item {item.id} depends on {needed}, which does not exist: {item.id} needs {needed}. "
                    f"There are: {', '.join(ids)}."
                )
    try:
        TopologicalSorter({item.id: item.depends_on for item in items}).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return f"These items wait for each other in a circle: {' needs '.join(reversed(circle))}."
    return None


def in_order(items: Sequence[PlanItem]) -> list[PlanItem]:
    """Return ``items``, which have no circle, so that each stands behind what it depends on."""
    by_id = {item.id: item for item in items}
    order = TopologicalSorter({item.id: item.depends_on for item in items}).static_order()
    return [by_id[each] for each in order]


def ready(items: Sequence[PlanItem]) -> list[PlanItem]:
    """Return the pending steps whose dependencies are done or left out, in the order of the plan."""
    states = {item.id: item.status for item in items}
    return [
        item
        for item in items
        if item.status == "pending" and all(states[each] in SATISFIED for each in item.depends_on)
    ]


def waiting_chain(items: Sequence[PlanItem], item_id: str) -> list[str]:
    """Return the ids from ``item_id`` down to the step that holds it up; only itself where none does."""
    by_id = {item.id: item for item in items}
    chain = [item_id]
    while True:
        held = [each for each in by_id[chain[-1]].depends_on if by_id[each].status not in SATISFIED]
        # A failed step is the cause; what merely waits is only on the way to it.
        held.sort(key=lambda each: by_id[each].status not in OVER)
        if not held or held[0] in chain:
            return chain
        chain.append(held[0])


def left_without(items: Sequence[PlanItem], kept: frozenset[str]) -> dict[str, list[str]]:
    """Return by id which steps outside ``kept`` the kept ones need."""
    return {
        item.id: missing
        for item in items
        if item.id in kept
        and (missing := [each for each in item.depends_on if each not in kept and not _done(items, each)])
    }


def _done(items: Sequence[PlanItem], item_id: str) -> bool:
    return next(item.status for item in items if item.id == item_id) in SATISFIED


def with_completed(before: Sequence[PlanItem], after: Sequence[PlanItem]) -> tuple[PlanItem, ...]:
    """Return ``after`` with every completed step of ``before`` in it as it was.

    A step is new when it differs in more than its state; it begins as pending, with no failures.
    """
    old = {item.id: item for item in before}
    done = [item for item in before if item.status == "completed"]
    kept = {item.id for item in done}
    rest = [_begun_again(old.get(item.id), item) for item in after if item.id not in kept]
    return (*done, *rest)


def _begun_again(old: PlanItem | None, new: PlanItem) -> PlanItem:
    status = old.status if old is not None and old.status == "skipped" else "pending"
    return new.model_copy(update={"status": status, "failures": 0, "note": ""})


def changes(before: Sequence[PlanItem], after: Sequence[PlanItem]) -> list[str]:
    """Return the difference of two plans, one line for each step that differs; ``+ - ~`` begin it."""
    old: Mapping[str, PlanItem] = {item.id: item for item in before}
    new = {item.id: item for item in after}
    lines = [f"- {item.id}. {item.title}" for item in before if item.id not in new]
    for item in after:
        was = old.get(item.id)
        if was is None:
            lines.append(f"+ {item.id}. {item.title}{_facts(item)}")
        elif different := _different(was, item):
            lines.append(f"~ {item.id}. {item.title}: {'; '.join(different)}")
    return lines


def _facts(item: PlanItem) -> str:
    after = f" (after {', '.join(item.depends_on)})" if item.depends_on else ""
    return after + (f" — done when {item.done_when}" if item.done_when else "")


def _different(was: PlanItem, now: PlanItem) -> list[str]:
    found: list[str] = []
    for name in ("title", "detail", "done_when", "agent", "read_only"):
        before, after = getattr(was, name), getattr(now, name)
        if before != after:
            found.append(f"{name} {before or 'none'!s} → {after or 'none'!s}")
    for name in ("depends_on", "files"):
        before, after = getattr(was, name), getattr(now, name)
        if before != after:
            found.append(f"{name} {', '.join(before) or 'none'} → {', '.join(after) or 'none'}")
    return found


def advice(items: Sequence[PlanItem]) -> list[str]:
    """Return sentences about what would make the plan better; it can be run without."""
    found: list[str] = []
    if len(items) > MANY_STEPS:
        found.append(f"{len(items)} steps are many; join those that belong together.")
    unchecked = [item.id for item in items if not item.done_when]
    if unchecked and len(items) > 1:
        found.append(f"Nothing tells when {', '.join(unchecked)} is done; give done_when.")
    return found
