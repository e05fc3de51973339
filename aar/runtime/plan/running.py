"""A plan run: the steps of a session's plan done as one run of its agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aar.orchestration.plan_run import PlanRun, unfinished
from aar.orchestration.plan_text import view
from aar.protocol.errors import NotThereError, PlanningError, UsageError
from aar.protocol.events import ContextEvent, PlanEvent
from aar.protocol.messages import TextBlock
from aar.runtime.plan.crew import SessionCrew, reads_only
from aar.runtime.plan.state import current
from aar.safety.outside import framed
from aar.tools.builtin.planning_graph import graph_problem

if TYPE_CHECKING:
    from aar.core.agent import Agent, RunResult, Turn, Work
    from aar.core.run_record import RunRecord
    from aar.core.session import Session
    from aar.protocol.state import StopReason
    from aar.runtime.parts import Runtime


def check_runnable(runtime: Runtime, session: Session) -> PlanEvent:
    """Return the plan of ``session``, ready to be run.

    Raises:
        UsageError: There is no plan, or nothing of it is left to do, or nothing may be changed.
        PlanningError: It cannot be run as it is.
        ConfigurationError: A step names an agent that does not exist.
    """
    plan = current(session)
    if not unfinished(plan):
        raise NotThereError("Every step of the plan is done or left out; /plan edit changes it.")
    problem = graph_problem(plan.items)
    if problem:
        raise PlanningError(problem)
    for item in plan.items:
        if item.agent is not None:
            runtime.extras.profile(item.agent)
    only_reads = all(reads_only(runtime, item) for item in unfinished(plan))
    if runtime.mode == "plan" and not only_reads:
        raise UsageError("Mode plan changes nothing; choose another mode to run the plan.")
    if not runtime.extras.agent_settings["depth"]:
        raise UsageError("Steps of a plan are done by agents, and [agents] depth is 0.")
    return plan


def plan_work(runtime: Runtime, session: Session, agent: Agent) -> tuple[str, Work]:
    """Return the prompt and the work of a run of ``agent`` that runs the plan of ``session``; see `PlanRun`.

    Raises:
        AarError: As `check_runnable`.
    """
    plan = check_runnable(runtime, session)

    async def work(record: RunRecord, turn: Turn) -> StopReason:
        crew = SessionCrew(runtime, session, agent, record, turn)
        await crew.prepare()
        run = PlanRun(plan, crew, runtime.config.plan)
        try:
            return await run.run()
        finally:
            report = view(run.plan)
            record.append(_report(report))
            record.text = report

    return (f"Run the plan: {plan.goal}" if plan.goal else "Run the plan."), work


async def run_plan(runtime: Runtime, session: Session, agent: Agent) -> RunResult:
    """Run the plan of ``session`` as a run of ``agent``, inside its limits.

    Raises:
        AarError: As `check_runnable`.
    """
    prompt, work = plan_work(runtime, session, agent)
    return await agent.run(prompt, session, work=work)


def _report(text: str) -> ContextEvent:
    # Titles and notes come from models that may have read what strangers wrote.
    block = TextBlock(text=f"How the plan stands now:\n{framed(text, 'plan')}")
    return ContextEvent(source="plan", label="Plan report", content=(block,), trusted=False)
