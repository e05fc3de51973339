"""Who does the steps of a plan in a session: its agents, its checks, and its model for another plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aar.core.verify.checks import CheckResult, Checks, Evidence
from aar.core.verify.output import shortened
from aar.orchestration.delegate import Delegation
from aar.orchestration.plan_prompts import again_prompt, replan_prompt, step_prompt
from aar.orchestration.plan_run import Attempt
from aar.protocol.errors import ToolFailure
from aar.protocol.events import ErrorEvent, Notice, PlanEvent, PlanItem, ToolCall, UserMessage
from aar.protocol.ids import new_id
from aar.protocol.messages import TextBlock
from aar.protocol.state import StopReason
from aar.runtime.judge import make_judge
from aar.runtime.plan.apart import StepTrees
from aar.runtime.plan.state import store
from aar.runtime.questions import ASK_TOOL, make_ask
from aar.tools.criteria import parse_criterion

if TYPE_CHECKING:
    from aar.core.agent import Agent, RunResult, Turn
    from aar.core.run_record import RunRecord
    from aar.core.session import Session
    from aar.orchestration.profiles import Profile
    from aar.runtime.parts import Runtime

AGENT = "plan"
"""Id under which the checks of a plan's steps are stored."""
_REPORT_CHARS = 1200
_CHECK_CHARS = 3000


def profile_of(runtime: Runtime, item: PlanItem) -> Profile:
    """Return who does a step.

    Raises:
        ConfigurationError: The step names an agent that does not exist.
    """
    found = runtime.extras.profile(item.agent or ("explore" if item.read_only else "coder"))
    return replace(found, mode="plan") if item.read_only else found


def reads_only(runtime: Runtime, item: PlanItem) -> bool:
    """Tell whether a step can change nothing."""
    return item.read_only or profile_of(runtime, item).mode == "plan"


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
    _trees: StepTrees | None = None

    async def prepare(self) -> None:
        """Look whether steps can work in work trees, where the settings want that; tell why not."""
        if not self.runtime.config.plan.worktrees:
            return
        trees = StepTrees(self.runtime, self.session, self.agent, self.record)
        problem = await trees.problem()
        if problem:
            self.say(f"Steps that write are done one by one: {problem}", warn=True)
        else:
            self._trees = trees

    def keep(self, plan: PlanEvent) -> PlanEvent:
        """Store the plan as it now stands."""
        return store(self.session, plan, self.record)

    def say(self, message: str, *, warn: bool = False) -> None:
        """Tell the user something."""
        self.record.append(Notice(level="warning" if warn else "info", message=message, code="plan"))

    def reads_only(self, item: PlanItem) -> bool:
        """Tell whether a step can change nothing."""
        return reads_only(self.runtime, item)

    def apart(self, item: PlanItem) -> bool:
        """Tell whether a step that writes does so in a work tree."""
        return self._trees is not None

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
        told = self._steering()
        if self._trees is not None and not self.reads_only(item):
            prompt = step_prompt(plan, item, told)
            ended = await self._trees.work(profile_of(self.runtime, item), item, prompt)
            if isinstance(ended, Attempt):
                return ended
            self._evidence[item.id] = Evidence(ended.text, ended.diffs, prompt)
            return self._attempt(ended)
        again = self._agents.get(item.id) if item.failures else None
        prompt = again_prompt(item) if again else step_prompt(plan, item, told)
        place = self.runtime.extras.main_place(self.session, lambda: self.agent)
        delegation = Delegation(place, ToolCall(call_id=new_id(), tool_name="plan"), self.record)
        try:
            child, _ = await delegation.employ(
                profile_of(self.runtime, item), prompt, f"step {item.id}: {item.title}", agent_id=again
            )
        except ToolFailure as error:
            return Attempt(False, error.message)
        self._agents[item.id] = child.agent_id
        if child.result is None:
            return Attempt(False, "The agent gave no report.")
        self._evidence[item.id] = Evidence(child.result.text, child.result.diffs, prompt)
        return self._attempt(child.result)

    async def merge(self, item: PlanItem) -> Attempt:
        """Bring what a step changed in its work tree into the project."""
        assert self._trees is not None
        return await self._trees.merge(item)

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
            call = ToolCall(call_id=new_id(), tool_name=ASK_TOOL)
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
        text = shortened(f"Check: {result.command}\n{result.output}", _CHECK_CHARS)
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
        """Let an extension that plans, else the main agent's model, change the plan; both may only read."""
        planner = await self.runtime.extras.extensions.planner(self.session)
        items = () if planner is None else await planner.replan(plan.goal, plan.items, why)
        return self._begun_anew(items) if items else await self._replan_by_model(plan, why)

    async def _replan_by_model(self, plan: PlanEvent, why: str) -> Sequence[PlanItem] | None:
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
        return self._begun_anew(after.items)

    def _begun_anew(self, items: Sequence[PlanItem]) -> Sequence[PlanItem]:
        """Let a step that is new under an old id begin with an agent and a check of its own."""
        for item in items:
            if item.status == "pending":
                self._agents.pop(item.id, None)
                self._checks.pop(item.id, None)
        return items
