"""Steps of a plan that write side by side: each in a work tree of git, merged into the project one by one.

An agent there asks nobody, inside the wall. What it changed comes into the project as one edit of the main
agent, by the rules of the mode: where edits are asked for, this one is, with its whole difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aar.orchestration.merge_back import left_out, listed, problem_of, put_in
from aar.orchestration.plan_run import Attempt
from aar.orchestration.work_merge import fit
from aar.orchestration.work_places import Changes, Git
from aar.protocol.errors import AarError
from aar.protocol.events import Notice, Subagent
from aar.protocol.ids import new_id
from aar.protocol.state import StopReason
from aar.protocol.usage import Usage
from aar.runtime.small import store_cost
from aar.runtime.work_trees import places_of, repository_of, runtime_in

if TYPE_CHECKING:
    from aar.core.agent import Agent, RunResult
    from aar.core.run_record import RunRecord
    from aar.core.session import Session
    from aar.orchestration.profiles import Profile
    from aar.orchestration.work_places import Place, Places
    from aar.protocol.events import PlanItem
    from aar.runtime.parts import Runtime


class StepTrees:
    """Work trees for the steps of one run of a plan.

    Args:
        runtime: All parts.
        session: The session of the plan.
        agent: The main agent, through which changes come into the project.
        record: The way into the session for its run.
    """

    def __init__(self, runtime: Runtime, session: Session, agent: Agent, record: RunRecord) -> None:
        self._runtime, self._session, self._agent, self._record = runtime, session, agent, record
        self._done: dict[str, tuple[str, str, Changes]] = {}

    async def problem(self) -> str:
        """Return why steps cannot work in work trees here; empty: they can."""
        try:
            await repository_of(self._runtime)
        except AarError as error:
            return str(error)
        return ""

    # --- work --------------------------------------------------------------------------------------------

    async def work(self, profile: Profile, item: PlanItem, prompt: str) -> RunResult | Attempt:
        """Let an agent do a step in a work tree of the project as it is now; return how it ended."""
        agent_id = f"step-{item.id}-{new_id()[-4:].lower()}"[:60]
        shown = {"profile": profile.name, "task": f"step {item.id}: {item.title}", "agent_id": agent_id}
        self._session.append(Subagent.model_validate({"action": "start", **shown}))
        text, reason = "called off", StopReason.CANCELLED
        try:
            result = await self._worked(profile, item, prompt, agent_id)
            text, reason = result.text, result.stop_reason
            return result
        except AarError as error:
            text, reason = str(error), StopReason.ERROR
            return Attempt(False, text)
        finally:
            end = {"action": "end", "result": text, "stop_reason": reason}
            self._session.append(Subagent.model_validate({**shown, **end}))

    async def _worked(self, profile: Profile, item: PlanItem, prompt: str, agent_id: str) -> RunResult:
        async with places_of(self._runtime, "plan") as places:
            place = await places.make("step", "")
            return await self._in_place(places, place, profile, item, prompt, agent_id)

    async def _in_place(
        self, places: Places, place: Place, profile: Profile, item: PlanItem, prompt: str, agent_id: str
    ) -> RunResult:
        parent = self._agent
        async with runtime_in(self._runtime, place.folder) as inner:
            inner.profile = profile
            if profile.model is not None:
                inner.active = self._runtime.opened.open(profile.model)
            session = inner.open_session(title=f"Step {item.id}: {item.title[:60]}")
            try:
                agent = inner.agent(session)
                agent.budget, agent.parent_limits = parent.budget, lambda: parent.limits
                result = await agent.run(prompt, session)
                if agent.executor.outside.came:
                    parent.executor.outside.mark()
            finally:
                await session.aclose()
            store_cost(self._session, inner.active, result.usage, result.cost_usd, agent_id)
            self._record.include(result.usage, result.cost_usd, (), ())
            self._done[item.id] = (agent_id, place.base, await places.changes(place))
        return result

    # --- back into the project ---------------------------------------------------------------------------

    async def merge(self, item: PlanItem) -> Attempt:
        """Bring what a step changed into the project, all of it or nothing."""
        agent_id, base, changes = self._done.pop(item.id)
        if problem := problem_of(changes):
            return Attempt(False, f"Nothing of it was taken over: {problem}.", hopeless=True)
        runtime = self._runtime
        try:
            changes, conflicts = await fit(Git(runtime.spawner, runtime.workspace), base, changes.tree)
        except AarError as error:
            return Attempt(False, str(error), hopeless=True)
        if conflicts:
            return Attempt(
                False,
                "Nothing of it was taken over: another step, or the user, changed the same lines of "
                f"{listed(conflicts)} meanwhile. Do the step again with these files as they are now.",
            )
        if not changes.patch:
            return Attempt(True)
        return await self._put_in(item, changes, agent_id)

    async def _put_in(self, item: PlanItem, changes: Changes, agent_id: str) -> Attempt:
        done = await put_in(
            self._agent.executor, self._session.scope(self._record.run_id, agent_id), changes.text
        )
        result = done.results[0]
        if result.is_error:
            stop = StopReason.DENIED if done.ends_run else None
            return Attempt(False, f"Nothing of it was taken over. {result.output}", stop)
        self._record.include(Usage(), 0.0, result.file_changes, [result.diff] if result.diff else [])
        if note := left_out(changes.text):
            said = f"The changes of step {item.id} are in the project. {note}"
            self._session.append(Notice(level="warning", code="work_tree", message=said))
        return Attempt(True)
