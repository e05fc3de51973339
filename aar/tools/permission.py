"""May a call run? Policy first, then whoever answers what policy leaves open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from aar.protocol.errors import AarError, ToolCategory, ToolFailure
from aar.protocol.events import Approval, ApprovalRequest, Notice
from aar.protocol.ids import new_id
from aar.protocol.ports import Approver, Emit, Hooks
from aar.protocol.tool import SideEffect, ToolOutcome, ToolSpec
from aar.safety.policy import Decision, SafetyPolicy
from aar.tools.dry_run import Foresight
from aar.tools.pending_call import PendingCall, failure
from aar.tools.schema import validate_arguments

LogFailure = Callable[[str, BaseException], None]
_NOT_IN_PLAN = frozenset({SideEffect.WRITE, SideEffect.NETWORK, SideEffect.EXTERNAL})
Waiting = Callable[[bool], None]
"""Told when somebody is asked (true), and when no question is open any more (false)."""


Foresee = Callable[[PendingCall], Awaitable[Foresight]]
"""``await foresee(call)``: what it would come to, as far as it can be told."""


class StepPermissions:
    """Decides on the calls of one step. Questions are asked all at once and answered in any order.

    Args:
        policy: Decides first.
        approver: Answers what policy leaves open; ``None`` means no.
        emit: Into the session.
        log: Gets exceptions of policy and approver.
        waiting: See `Waiting`.
        outside: Tells whether text from outside has come into the run.
        hooks: May answer a question before it is put to a person.
        foresee: See `Foresee`.
    """

    def __init__(
        self,
        policy: SafetyPolicy,
        approver: Approver | None,
        emit: Emit,
        *,
        log: LogFailure | None = None,
        waiting: Waiting | None = None,
        outside: Callable[[], bool] = lambda: False,
        hooks: Hooks | None = None,
        foresee: Foresee | None = None,
    ) -> None:
        self._hooks = hooks
        self._foresee = foresee
        self._outside = outside
        self._policy = policy
        self._approver = approver
        self._emit = emit
        self._log = log
        self._waiting = waiting
        self._asked: list[PendingCall] = []

    async def consider(self, item: PendingCall) -> None:
        """Judge a call before its turn; a question about it is asked now, not waited for.

        Nobody is asked about a call that cannot succeed, whatever the answer: it is refused.
        """
        if item.spec is None:
            return
        item.decision = self.judge(item.spec, item.raw)
        if item.decision.decision != "ask" or (self._approver is None and not self._answers(item)):
            return
        seen = await self._seen(item)
        if seen.failure is not None and not item.after_effects:
            item.refusal = seen.failure
        else:
            await self._ask(item, item.decision, seen.diff)

    def judge(self, spec: ToolSpec, arguments: dict[str, Any]) -> Decision:
        """Return what policy says; a policy that fails says no."""
        try:
            if self._policy.mode == "plan" and spec.side_effects & _NOT_IN_PLAN:
                # Said here too, so that no rule, hook or defect of the policy lets a plan change things.
                return Decision("deny", reasons=("mode plan only reads",), by="mode")
            return self._policy.decide(spec, arguments, outside=self._outside())
        except AarError as error:
            return Decision("deny", reasons=(str(error),), by="policy")
        except Exception as error:
            if self._log is not None:
                self._log(f"the policy failed on {spec.name}", error)
            return Decision("deny", reasons=("this call could not be judged",), by="policy")

    async def refusal(self, item: PendingCall) -> ToolOutcome | None:
        """Wait until it is settled whether the call may run now; return the refusal if it may not.

        What a person allowed is judged again, with the arguments as they edited them: a denial still
        holds, and for a reason that they were not shown they are asked again.
        """
        if item.spec is None or item.decision is None:
            return failure(ToolCategory.UNKNOWN_TOOL, "There is no such tool.")
        if item.decision.decision == "allow" and (item.after_effects or self._outside()):
            item.decision = self.judge(item.spec, item.raw)
        while item.decision.decision == "ask":
            if self._approver is None and not self._answers(item):
                return self._nobody(item, item.decision)
            question = item.question or await self._ask(item, item.decision, (await self._seen(item)).diff)
            await asyncio.wait({question})
            item.question = None
            if question.cancelled():  # withdrawn: another answer settled this question as well
                item.decision = self.judge(item.spec, item.raw)
                continue
            answer, item.request = question.result(), None
            refused = self._heed(item, item.spec, answer)
            if refused is not None:
                return refused
            shown, item.decision = item.decision, self.judge(item.spec, item.raw)
            if item.decision.decision == "allow" or _covers(shown, item.decision):
                item.unlocked = item.decision.unlocks
                return None
        return self._by_policy(item, item.decision, item.spec)

    def _by_policy(self, item: PendingCall, decision: Decision, spec: ToolSpec) -> ToolOutcome | None:
        """Record what policy decided on its own."""
        if decision.decision == "deny":
            self._emit.append(_policy_approval(item, "reject"))
            return failure(ToolCategory.BLOCKED, _why_not(decision))
        if not spec.read_only or item.request is not None:
            self._emit.append(_policy_approval(item, "allow"))
        return None

    def _nobody(self, item: PendingCall, decision: Decision) -> ToolOutcome:
        self._emit.append(_policy_approval(item, "reject"))
        item.ends_run = True
        return failure(ToolCategory.DENIED, f"{_why_not(decision)} Nobody is there to allow it.")

    # --- questions -----------------------------------------------------------------------------------

    async def _seen(self, item: PendingCall) -> Foresight:
        return Foresight() if self._foresee is None else await self._foresee(item)

    async def _ask(self, item: PendingCall, decision: Decision, diff: str | None) -> asyncio.Task[Approval]:
        rule = {"text": decision.rule.text, "layer": decision.rule.layer} if decision.rule else None
        request = ApprovalRequest(
            request_id=new_id(),
            call_id=item.call.call_id,
            tool_name=item.tool_name,
            arguments=item.raw,
            diff=diff,
            wall=self._policy.wall,
            why={"rule": rule, "reasons": list(decision.reasons)},
            proposed_rule=decision.proposed_rule,
            scopes=self._policy.scopes if decision.proposed_rule else ("once",),
            parent_id=item.call.id or None,
        )
        self._emit.append(request)
        item.request = request
        item.question = asyncio.ensure_future(self._answer(item, request))
        self._asked.append(item)
        if len(self._asked) == 1 and self._waiting is not None:
            self._waiting(True)
        return item.question

    async def _answer(self, item: PendingCall, request: ApprovalRequest) -> Approval:
        """Return the answer to a question, recorded as soon as it is given."""
        try:
            answer = await self._by_hook(item, request) or await self._decide(request)
            stamp = {"call_id": item.call.call_id, "request_id": request.request_id}
            answer = answer.model_copy(update={**stamp, "parent_id": item.call.id or None})
            self._emit.append(answer)
        finally:
            self._asked.remove(item)
            if not self._asked and self._waiting is not None:
                self._waiting(False)
        if answer.decision == "allow" and answer.scope != "once":
            self._withdraw_settled()
        return answer

    def _answers(self, item: PendingCall) -> bool:
        return item.hook_allows or (self._hooks is not None and self._hooks.wants("approval_needed"))

    async def _by_hook(self, item: PendingCall, request: ApprovalRequest) -> Approval | None:
        """Return the answer of a hook; ``None``: it leaves the question open. Hard stops it cannot allow."""
        hard = item.decision is not None and item.decision.hard_stop
        if item.hook_allows and not hard:
            return Approval(call_id=request.call_id, decision="allow", by="hook")
        if self._hooks is None or not self._hooks.wants("approval_needed"):
            return None
        data = {"tool_name": request.tool_name, "arguments": item.raw, "reasons": request.why.get("reasons")}
        said = await self._hooks.fire("approval_needed", data)
        if said.refusal is not None:
            return Approval(call_id=request.call_id, decision="reject", by="hook", feedback=said.refusal)
        if said.allow and not hard:
            return Approval(call_id=request.call_id, decision="allow", by="hook")
        return None

    async def _decide(self, request: ApprovalRequest) -> Approval:
        if self._approver is None:
            return Approval(call_id=request.call_id, decision="reject", by="policy")
        try:
            return await self._approver.decide(request)
        except Exception as error:
            if self._log is not None:
                self._log("a question could not be asked", error)
            message = f"The question about {request.tool_name} could not be asked ({error}); it counts as no."
            self._emit.append(Notice(level="error", message=message, code="approver_failed"))
            return Approval(call_id=request.call_id, decision="reject", by="policy")

    def _withdraw_settled(self) -> None:
        """Take back open questions that a rule just kept has answered."""
        for other in tuple(self._asked):
            if other.spec is not None and self.judge(other.spec, other.raw).decision == "allow":
                assert other.question is not None
                other.question.cancel()

    def _heed(self, item: PendingCall, spec: ToolSpec, answer: Approval) -> ToolOutcome | None:
        """Do what an answer says; return the refusal if it was no, or if its arguments are wrong."""
        if answer.decision == "cancelled":
            return failure(ToolCategory.CANCELLED, "The question was cancelled, the call did not run.")
        if answer.decision == "reject":
            item.ends_run = not answer.feedback
            who = "The user did not allow this call." if answer.by == "user" else "This call was not allowed."
            said = f" They said: {answer.feedback}" if answer.feedback else ""
            return failure(ToolCategory.DENIED, who + said)
        if answer.edited_arguments is not None:
            try:
                item.set_arguments(validate_arguments(spec, answer.edited_arguments))
            except ToolFailure as error:
                return failure(error.category, f"The user edited this call's arguments. {error.message}")
        return None

    def abandon(self, items: Sequence[PendingCall]) -> None:
        """Record that open questions will not be answered any more."""
        self._waiting = None
        for item in items:
            if item.request is not None and item.question is not None and not item.question.done():
                self._emit.append(_policy_approval(item, "cancelled"))
                item.request = None


def _covers(shown: Decision, now: Decision) -> bool:
    """Whether who allowed a call for the reasons of ``shown`` allowed it for those of ``now`` too."""
    return (
        now.decision == "ask"
        and (shown.hard_stop or not now.hard_stop)
        and set(now.reasons) <= set(shown.reasons)
    )


def _policy_approval(item: PendingCall, decision: Literal["allow", "reject", "cancelled"]) -> Approval:
    verdict = item.decision
    rule = verdict.rule.text if verdict is not None and verdict.rule is not None else None
    return Approval(
        request_id=item.request.request_id if item.request is not None else None,
        call_id=item.call.call_id,
        decision=decision,
        by="policy" if rule is not None or verdict is None else verdict.by,
        rule=rule,
        parent_id=item.call.id or None,
    )


def _why_not(decision: Decision) -> str:
    reasons = " ".join(f"{reason[:1].upper()}{reason[1:].rstrip('.')}." for reason in decision.reasons)
    return reasons or "The rules do not allow this call."
