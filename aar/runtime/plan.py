"""The plan of a session: set down by the model, changed by the user, run by agents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aar.core.agent import RunResult, Turn, Work
from aar.core.run_record import RunRecord
from aar.core.session import Session
from aar.core.verify_checks import CheckResult, Checks, Evidence
from aar.orchestration.delegate import Delegation
from aar.orchestration.plan_prompts import again_prompt, replan_prompt, step_prompt
from aar.orchestration.plan_run import Attempt, PlanRun, unfinished
from aar.orchestration.plan_text import from_markdown, view
from aar.protocol.errors import PlanningError, ToolCategory, ToolFailure, UsageError
from aar.protocol.events import (
    ContextEvent,
    ErrorEvent,
    Notice,
    PlanEvent,
    PlanItem,
    ToolCall,
    UserMessage,
)
from aar.protocol.ids import new_id
from aar.protocol.messages import TextBlock
from aar.protocol.ports import Emit
from aar.protocol.state import StopReason
from aar.runtime.judge import make_judge
from aar.runtime.questions import make_ask
from aar.safety.outside import framed
from aar.tools.builtin.planning_graph import graph_problem, left_without, with_completed
from aar.tools.criteria import parse_criterion

if TYPE_CHECKING:
    from aar.core.agent import Agent
    from aar.orchestration.profiles import Profile
    from aar.runtime.parts import Runtime

AGENT = "plan"
"""Id under which the checks of a plan's steps are stored."""
_REPORT_CHARS = 1200
_CHECK_CHARS = 3000
_SAME = ("id", "title", "detail", "depends_on", "done_when", "agent", "files", "read_only")


# --- what the plan is -------------------------------------------------------------------------------------


def current(session: Session) -> PlanEvent:
    """Return the plan of ``session``.

    Raises:
        UsageError: There is none.
    """
    plan = session.totals.task_plan
    if plan is None or not plan.items:
        raise UsageError("There is no plan here; /plan GOAL lets the model make one.")
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
        raise UsageError(f"There is no step {', '.join(strange)}; steps are {', '.join(known_ids(plan))}.")
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
        raise UsageError(f"There is no step {item_id}; steps are {', '.join(known_ids(plan))}.")
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


# --- a plan run -------------------------------------------------------------------------------------------


def check_runnable(runtime: Runtime, session: Session) -> PlanEvent:
    """Return the plan of ``session``, ready to be run.

    Raises:
        UsageError: There is no plan, or nothing of it is left to do, or nothing may be changed.
        PlanningError: It cannot be run as it is.
        ConfigurationError: A step names an agent that does not exist.
    """
    plan = current(session)
    if not unfinished(plan):
        raise UsageError("Every step of the plan is done or left out; /plan edit changes it.")
    problem = graph_problem(plan.items)
    if problem:
        raise PlanningError(problem)
    for item in plan.items:
        if item.agent is not None:
            runtime.extras.profile(item.agent)
    only_reads = all(_reads_only(runtime, item) for item in unfinished(plan))
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


def _profile(runtime: Runtime, item: PlanItem) -> Profile:
    found = runtime.extras.profile(item.agent or ("explore" if item.read_only else "coder"))
    return replace(found, mode="plan") if item.read_only else found


def _reads_only(runtime: Runtime, item: PlanItem) -> bool:
    return item.read_only or _profile(runtime, item).mode == "plan"


@dataclass
class SessionCrew:
    """The `aar.orchestration.plan_run.Crew` of a session: its agents do the steps.

    Attributes:
        runtime: All parts.
        session: The session.
        agent: The main agent, in whose run all this happens.
        record: The way into the session for that run.
        turn: Lets the main agent's model work.
    """

    runtime: Runtime
    session: Session
    agent: Agent
    record: RunRecord
    turn: Turn
    _agents: dict[str, str] = field(default_factory=dict[str, str])
    _checks: dict[str, Checks] = field(default_factory=dict[str, Checks])
    _evidence: dict[str, Evidence] = field(default_factory=dict[str, Evidence])

    def keep(self, plan: PlanEvent) -> PlanEvent:
        """Store the plan as it now stands."""
        return store(self.session, plan, self.record)

    def say(self, message: str, *, warn: bool = False) -> None:
        """Tell the user something."""
        self.record.append(Notice(level="warning" if warn else "info", message=message, code="plan"))

    def reads_only(self, item: PlanItem) -> bool:
        """Tell whether a step can change nothing."""
        return _reads_only(self.runtime, item)

    def limit(self) -> StopReason | None:
        """Return why no further step may begin."""
        if self.agent.stop_asked:
            return StopReason.STOPPED
        return None if self.agent.limits is None else self.agent.limits.reached()

    # --- work ----------------------------------------------------------------------------------------------

    async def work(self, plan: PlanEvent, item: PlanItem) -> Attempt:
        """Let an agent do a step."""
        if item.done_when and item.id not in self._checks:
            checks = self._checks[item.id] = self._make_checks()
            checks.begin([parse_criterion(item.done_when)])
        again = self._agents.get(item.id) if item.failures else None
        told = self._steering()
        prompt = again_prompt(item) if again else step_prompt(plan, item, told)
        place = self.runtime.extras.main_place(self.session, lambda: self.agent)
        delegation = Delegation(place, ToolCall(call_id=new_id(), tool_name="plan"), self.record)
        try:
            child, _ = await delegation.employ(
                _profile(self.runtime, item), prompt, f"step {item.id}: {item.title}", agent_id=again
            )
        except ToolFailure as error:
            return Attempt(False, error.message)
        self._agents[item.id] = child.agent_id
        if child.result is None:
            return Attempt(False, "The agent gave no report.")
        self._evidence[item.id] = Evidence(child.result.text, child.result.diffs, prompt)
        return self._attempt(child.result)

    def _attempt(self, result: RunResult) -> Attempt:
        text = result.text.strip()[:_REPORT_CHARS]
        reason = result.stop_reason
        if reason is StopReason.DENIED:
            return Attempt(False, text or "A call that it needed was not allowed.", StopReason.DENIED)
        if reason is StopReason.ERROR:
            error = result.error or {}
            message = str(error.get("message", "no reason is known"))
            self.record.append(ErrorEvent(kind=str(error.get("kind", "internal")), message=message))
            self.record.exit_code = result.exit_code
            return Attempt(False, message, StopReason.ERROR)
        if result.exit_code == 0 and reason is not StopReason.STOPPED:
            return Attempt(True, text)
        return Attempt(False, f"{text}\nIts agent ended with: {reason}.".strip(), self.limit())

    def _steering(self) -> str:
        """Return what the user said since the last step began, and store it."""
        said: list[str] = []
        for content in self.agent.queue.take_steering():
            self.record.append(UserMessage(content=content, source="steer"))
            said += [block.text for block in content if isinstance(block, TextBlock)]
        return "\n".join(said)

    # --- checks --------------------------------------------------------------------------------------------

    def _make_checks(self) -> Checks:
        limits = self.agent.limits
        ask = None
        if self.runtime.interactive:
            call = ToolCall(call_id=new_id(), tool_name="ask_user")
            ask = make_ask(self.agent.approvals, call, self.record)
        judge = make_judge(
            self.runtime, self.session, (lambda usage, cost: None) if limits is None else limits.count
        )
        return Checks(self._command, self.runtime.files(), ask, judge)

    async def check(self, item: PlanItem) -> Attempt:
        """Look whether a step is done; a command goes the way of every command of a model."""
        criterion = parse_criterion(item.done_when or "")
        result = await self._checks[item.id].check(criterion, self._evidence.get(item.id, Evidence()))
        command = criterion.kind == "command"
        stop = StopReason.DENIED if result.unknown and command else None
        text = f"Check: {result.command}\n{result.output}"
        if len(text) > _CHECK_CHARS:
            text = f"{text[: _CHECK_CHARS // 3]}\n…\n{text[-_CHECK_CHARS * 2 // 3 :]}"
        never = result.unknown or (command and result.exit_code is None and not result.passed)
        return Attempt(result.passed, text, None if result.passed else stop, hopeless=never)

    async def _command(self, command: str) -> CheckResult:
        scope = self.session.scope(self.record.run_id, AGENT)
        seconds = min(self.runtime.config.verify.timeout, 600)
        arguments = {"command": command, "timeout_s": seconds}
        call = ToolCall(call_id=new_id(), tool_name="bash", arguments=arguments)
        stored = scope.append(call)[0]
        assert isinstance(stored, ToolCall)
        step = await self.agent.executor.execute([stored], scope)
        result = step.results[0]
        passed = not result.is_error and result.exit_code == 0
        return CheckResult(passed, command, result.output, result.exit_code, unknown=step.ends_run)

    # --- another plan --------------------------------------------------------------------------------------

    async def replan(self, plan: PlanEvent, why: str) -> Sequence[PlanItem] | None:
        """Let the main agent's model, which knows the conversation, change the plan; it may only read."""
        executor = self.agent.executor
        policy = executor.policy
        executor.policy = policy.narrowed("plan")
        before = self.session.totals.plan_revision
        try:
            await self.turn(replan_prompt(plan, why))
        finally:
            executor.policy = policy
        after = self.session.totals.task_plan
        if after is None or after.revision <= before:
            return None
        # A step that is new under an old id begins with an agent and a check of its own.
        for item in after.items:
            if item.status == "pending":
                self._agents.pop(item.id, None)
                self._checks.pop(item.id, None)
        return after.items
