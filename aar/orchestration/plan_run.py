"""A plan run to its end: which step begins when, what is done about failures, how it all ends.

Steps that only read run side by side; a step that may write runs alone, or apart: in a place of its own, from
which its changes are merged in the order of the plan. Each change of the plan is handed to
the crew, which stores it as an event, so that a run that was killed goes on where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from aar.config.schema import PlanConfig
from aar.protocol.errors import PlanningError
from aar.protocol.events import PlanEvent, PlanItem
from aar.protocol.state import StopReason
from aar.tools.builtin.planning_graph import (
    changes,
    graph_problem,
    ready,
    waiting_chain,
    with_completed,
)

_NOTE_CHARS = 4000
_INTERRUPTED = "It was interrupted."


@dataclass(frozen=True, slots=True)
class Attempt:
    """How a piece of work ended.

    Attributes:
        passed: Whether it did what it should.
        text: The report, or what is wrong.
        stop: Why nothing more of the plan may be done; ``None``: it goes on.
        hopeless: Whether trying the same again cannot help.
    """

    passed: bool
    text: str = ""
    stop: StopReason | None = None
    hopeless: bool = False


class Crew(Protocol):
    """Who does the steps of a plan, and keeps it."""

    def keep(self, plan: PlanEvent) -> PlanEvent:
        """Store the plan as it now stands and return it as stored."""
        ...

    def say(self, message: str, *, warn: bool = False) -> None:
        """Tell the user something."""
        ...

    def reads_only(self, item: PlanItem) -> bool:
        """Tell whether a step can change nothing."""
        ...

    def apart(self, item: PlanItem) -> bool:
        """Tell whether a step that writes does so in a place of its own; `merge` brings its changes back."""
        ...

    def limit(self) -> StopReason | None:
        """Return why no further step may begin, if so."""
        ...

    async def work(self, plan: PlanEvent, item: PlanItem) -> Attempt:
        """Do a step."""
        ...

    async def merge(self, item: PlanItem) -> Attempt:
        """Bring what a step changed apart from the others into the project, all of it or nothing."""
        ...

    async def check(self, item: PlanItem) -> Attempt:
        """Look whether a step is done."""
        ...

    async def replan(self, plan: PlanEvent, why: str) -> Sequence[PlanItem] | None:
        """Return the steps of a better plan; ``None``: there is none."""
        ...


class PlanRun:
    """One run of one plan.

    Args:
        plan: The plan; steps that were completed or skipped stay so, the others are done.
        crew: Does them.
        settings: ``[plan]``.

    Raises:
        PlanningError: The plan cannot be run as it is.
    """

    def __init__(self, plan: PlanEvent, crew: Crew, settings: PlanConfig) -> None:
        problem = "The plan has no steps." if not plan.items else graph_problem(plan.items)
        if problem:
            raise PlanningError(problem)
        self.plan = plan
        self._crew = crew
        self._settings = settings
        self._running: dict[asyncio.Task[Attempt], PlanItem] = {}
        self._checking = asyncio.Lock()
        self._unmerged: set[str] = set()
        self._merged = asyncio.Condition()
        self._failed_in_row: list[str] = []
        self._why: str | None = None
        self._checked = False

    # --- the plan as it stands -----------------------------------------------------------------------------

    def _item(self, item_id: str) -> PlanItem:
        return next(item for item in self.plan.items if item.id == item_id)

    def _change(self, item_id: str, **fields: object) -> None:
        items = [item.model_copy(update=fields) if item.id == item_id else item for item in self.plan.items]
        self._keep(items=tuple(items))

    def _keep(self, **fields: object) -> None:
        self.plan = self._crew.keep(self.plan.model_copy(update=fields))

    def _begin(self) -> None:
        """Make everything pending that is neither done nor left out; what was under way begins again."""
        again = self.plan.stage != "running"
        items: list[PlanItem] = []
        for item in self.plan.items:
            if item.status in ("executing", "cancelled", "in_progress"):
                item = item.model_copy(update={"status": "pending", "note": item.note or _INTERRUPTED})
            elif item.status in ("failed", "blocked"):
                note = "" if item.status == "blocked" else item.note
                item = item.model_copy(update={"status": "pending", "failures": 0, "note": note})
            items.append(item)
        replans = 0 if again else self.plan.replans
        self._keep(items=tuple(items), stage="running", replans=replans, reason="begun")

    # --- the run -------------------------------------------------------------------------------------------

    async def run(self) -> StopReason:
        """Do the plan.

        Returns:
            ``verified`` or ``end_turn`` when every step is done, else why it had to stop.

        Raises:
            PlanningError: Steps failed or are blocked; the plan tells which.
            asyncio.CancelledError: The run was interrupted; it can be run again.
        """
        self._begin()
        try:
            stop = await self._steps()
        except BaseException:
            await self._end_all()
            self._interrupt()
            raise
        if stop is not None:
            self._interrupt()
            return stop
        return self._finish()

    async def _steps(self) -> StopReason | None:
        """Do what can be done; return why no more may be done, if so."""
        stop: StopReason | None = None
        while True:
            stop = stop or self._crew.limit()
            if stop is None and self._why is None:
                self._start()
            if self._running:
                done, _ = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    stop = self._settle(self._running.pop(task), task.result()) or stop
            elif stop is not None:
                return stop
            elif self._why is not None:
                await self._replan(self._why)
            elif not ready(self.plan.items):
                return None

    def _start(self) -> None:
        """Begin what may begin now: steps that read or write apart side by side, others alone."""
        free = ready(self.plan.items)
        alone = any(not self._beside(item) for item in self._running.values())
        for item in free:
            if alone or len(self._running) >= self._settings.max_parallel:
                return
            if self._beside(item):
                self._start_one(item)
        if not self._running and free:
            self._start_one(free[0])

    def _beside(self, item: PlanItem) -> bool:
        return self._crew.reads_only(item) or self._crew.apart(item)

    def _start_one(self, item: PlanItem) -> None:
        plan = self.plan
        if not self._crew.reads_only(item) and self._crew.apart(item):
            self._unmerged.add(item.id)
        self._change(item.id, status="executing")
        self._running[asyncio.ensure_future(self._step(plan, item))] = item

    async def _step(self, plan: PlanEvent, item: PlanItem) -> Attempt:
        if self._crew.reads_only(item) or not self._crew.apart(item):
            return await self._after_check(item, await self._crew.work(plan, item))
        try:
            attempt = await self._crew.work(plan, item)
            if not attempt.passed:
                return attempt
            async with self._merged:
                await self._merged.wait_for(lambda: self._is_next(item.id))
            async with self._checking:
                result = await self._crew.merge(item)
        finally:
            self._unmerged.discard(item.id)
            async with self._merged:
                self._merged.notify_all()
        return await self._after_check(item, attempt) if result.passed else result

    def _is_next(self, item_id: str) -> bool:
        """Tell whether no step before this one in the plan has still to be merged."""
        ids = [item.id for item in self.plan.items]
        return not self._unmerged & set(ids[: ids.index(item_id)])

    async def _after_check(self, item: PlanItem, attempt: Attempt) -> Attempt:
        if attempt.stop is not None or not item.done_when:
            return attempt
        async with self._checking:
            checked = await self._crew.check(item)
        # What the check says decides, whatever the report says.
        return Attempt(True, attempt.text) if checked.passed else checked

    def _settle(self, item: PlanItem, attempt: Attempt) -> StopReason | None:
        """Take note of how an attempt ended."""
        note = attempt.text.strip()[-_NOTE_CHARS:]
        if attempt.stop is not None:
            self._change(item.id, status="pending", note=note)
            return attempt.stop
        if attempt.passed:
            self._failed_in_row.clear()
            self._checked = self._checked or bool(item.done_when)
            self._change(item.id, status="completed", note=note)
            return None
        least = self._settings.retries if attempt.hopeless else 0
        failures = max(self._item(item.id).failures + 1, least)
        self._failed_in_row.append(item.id)
        self._crew.say(
            f"Step {item.id} failed ({failures} of {self._settings.retries}): {_first(note)}", warn=True
        )
        self._change(item.id, status="pending", note=note, failures=failures)
        self._judge(item, failures)
        return None

    def _judge(self, item: PlanItem, failures: int) -> None:
        """Decide what is done about a failure: try again, change the plan, or give the step up."""
        row = list(dict.fromkeys(self._failed_in_row))
        tired = failures >= self._settings.retries
        in_row = len(row) >= self._settings.consecutive_failures
        if (tired or in_row) and self.plan.replans < self._settings.max_replans:
            many = f"Steps {' and '.join(row)} failed one after the other."
            self._why = f"Step {item.id} failed {failures} times." if tired else many
        elif tired:
            self._change(item.id, status="failed")

    async def _replan(self, why: str) -> None:
        """Let the plan be changed; without a better one, steps that failed too often are given up."""
        self._why = None
        self._failed_in_row.clear()
        before = self.plan
        self._keep(replans=before.replans + 1, reason=why)
        shown = f"{why} Changing the plan ({self.plan.replans} of {self._settings.max_replans})."
        self._crew.say(shown, warn=True)
        items = await self._crew.replan(self.plan, f"{why}\n{self._failures()}")
        if items is not None:
            items = with_completed(before.items, items)
        difference = [] if items is None else changes(before.items, items)
        if items is None or not difference or graph_problem(items) is not None:
            self._crew.say("There is no other plan.", warn=True)
            self._give_up()
            return
        self._keep(items=items, reason=f"changed: {why}")
        self._crew.say("The plan was changed:\n" + "\n".join(difference))

    def _failures(self) -> str:
        texts = [f"Step {item.id}: {item.note}" for item in self.plan.items if item.failures and item.note]
        return "\n".join(texts)[-2 * _NOTE_CHARS :]

    def _give_up(self) -> None:
        for item in self.plan.items:
            if item.failures >= self._settings.retries and item.status == "pending":
                self._change(item.id, status="failed")

    # --- the end -------------------------------------------------------------------------------------------

    async def _end_all(self) -> None:
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _interrupt(self) -> None:
        """Leave the plan so that it can be run again."""
        items = [
            item.model_copy(update={"status": "cancelled", "note": _INTERRUPTED})
            if item.status == "executing"
            else item
            for item in self.plan.items
        ]
        self._keep(items=tuple(items), stage="interrupted", reason="interrupted")

    def _finish(self) -> StopReason:
        """Tell how the plan ended.

        Raises:
            PlanningError: Not every step is done.
        """
        waiting = [item.id for item in self.plan.items if item.status == "pending"]
        items = self.plan.items
        for name in waiting:
            chain = " needs ".join(waiting_chain(items, name))
            self._change(name, status="blocked", note=f"{chain}.")
        stage: Literal["done", "failed"] = "failed" if unfinished(self.plan) else "done"
        self._keep(stage=stage, reason=stage)
        if stage == "failed":
            raise PlanningError(summary(self.plan))
        return StopReason.VERIFIED if self._checked else StopReason.END_TURN


def _first(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else "no reason is known"


def unfinished(plan: PlanEvent) -> list[PlanItem]:
    """Return the steps that are neither done nor left out."""
    return [item for item in plan.items if item.status not in ("completed", "skipped")]


def summary(plan: PlanEvent) -> str:
    """Return in a sentence or two how a plan ended that did not get through."""
    done = sum(item.status in ("completed", "skipped") for item in plan.items)
    parts = [f"{done} of {len(plan.items)} steps are done."]
    for state, word in (("failed", "failed"), ("blocked", "blocked"), ("cancelled", "stopped")):
        names = [item for item in plan.items if item.status == state]
        if names and state == "blocked":
            parts.append("Blocked: " + " ".join(item.note for item in names))
        elif names:
            parts.append(f"{word.capitalize()}: {', '.join(f'{item.id} ({item.title})' for item in names)}.")
    return " ".join(parts)
