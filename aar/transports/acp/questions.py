"""Questions to the user of an editor: permissions, and what a model wants to know."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

from aar.protocol.errors import AarError
from aar.protocol.events import Approval, ApprovalRequest
from aar.runtime.conversation import Conversation
from aar.runtime.questions import ASK_TOOL
from aar.safety.rules import RuleSet
from aar.safety.sanitize import sanitize
from aar.transports.acp import tool_calls
from aar.transports.acp.content import text_block
from aar.transports.acp.greeting import ClientCapabilities
from aar.transports.acp.messages import RpcError
from aar.transports.acp.translate import Translator

Ask = Callable[[str, dict[str, Any]], Awaitable[Any]]
_ALWAYS = {"session": "for this session", "project": "in this project", "user": "in all projects"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What the user said; fields as for `PermissionManager.answer`."""

    decision: Literal["allow", "reject", "cancelled"]
    scope: str = "once"
    feedback: str | None = None


_REASONS = 4
"""Reasons that are shown with a question."""
_LATER = "The question was shown to the user, who will answer in the next message. End your turn now."


class Questions:
    """Puts each open question of a session to the client, and takes it back when it is settled otherwise.

    Args:
        conversation: Whose questions.
        translator: Knows how calls were told.
        client: What the client can ask.
        ask: Sends a request of this session to the client.
        leave: Ends the turn as the user wished.
    """

    def __init__(
        self,
        conversation: Conversation,
        translator: Translator,
        client: ClientCapabilities,
        ask: Ask,
        leave: Callable[[], None],
    ) -> None:
        self._conversation = conversation
        self._translator = translator
        self._client = client
        self._ask = ask
        self._leave = leave
        self._open: dict[str, asyncio.Task[None]] = {}

    def put(self, request: ApprovalRequest) -> None:
        """Ask; returns at once."""
        work = self._question(request) if request.tool_name == ASK_TOOL else self._permission(request)
        task = asyncio.get_running_loop().create_task(self._settle(request, work))
        self._open[request.request_id] = task
        task.add_done_callback(lambda _: self._open.pop(request.request_id, None))

    def settled(self, answer: Approval) -> None:
        """Take a question back that has an answer."""
        task = self._open.get(answer.request_id or "")
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def take_back(self) -> None:
        """Take all questions back."""
        for task in tuple(self._open.values()):
            task.cancel()

    async def _settle(self, request: ApprovalRequest, work: Awaitable[Answer]) -> None:
        try:
            answer = await work
        except RpcError as error:
            answer = Answer("reject", feedback=f"The editor could not ask: {error.message}")
        # Whoever was faster has settled it; a late answer changes nothing.
        pending = self._conversation.agent.approvals.pending
        if not any(other.request_id == request.request_id for other in pending):
            return
        if answer.decision == "cancelled":
            self._leave()
            return
        try:
            self._conversation.answer(
                request.request_id, answer.decision, scope=answer.scope, feedback=answer.feedback
            )
        except AarError as error:
            feedback = f"The answer could not be kept: {error}"
            self._conversation.answer(request.request_id, "reject", feedback=feedback)

    # --- permissions -------------------------------------------------------------------------------------

    async def _permission(self, request: ApprovalRequest) -> Answer:
        outcome = await self._ask(
            "session/request_permission", {"toolCall": self._tool_call(request), "options": options(request)}
        )
        chosen = _chosen(outcome)
        if chosen is None:
            return Answer("cancelled")
        verb, _, scope = chosen.partition(":")
        if verb == "allow":
            return Answer("allow", scope=scope or "once")
        if scope == "session" and request.proposed_rule:
            policy = self._conversation.agent.executor.policy
            policy.rules = (*policy.rules, RuleSet.parse("session", deny=(request.proposed_rule,)))
        return Answer("reject")

    def _tool_call(self, request: ApprovalRequest) -> dict[str, Any]:
        """Return all that is needed to judge the call, for a client that shows only this."""
        tool, arguments, root = request.tool_name, request.arguments, self._translator.facts.root
        update = self._translator.call_update(request.call_id) or {"toolCallId": request.call_id}
        update.pop("sessionUpdate", None)
        old = tool_calls.replaced_text(tool, arguments, self._translator.facts.peek)
        content = tool_calls.preview(tool, arguments, root, old)
        reasons = [str(reason) for reason in request.why.get("reasons") or ()]
        if tool == "bash":
            command = tool_calls.fenced(sanitize(str(arguments.get("command", ""))), "sh")
            content.append({"type": "content", "content": text_block(command)})
        if reasons:
            more = f"; and {len(reasons) - _REASONS} more" if len(reasons) > _REASONS else ""
            why = "; ".join(sanitize(reason) for reason in reasons[:_REASONS]) + more
            content.append({"type": "content", "content": text_block(f"Why it is asked: {why}.")})
        return {
            **update,
            "title": tool_calls.title_of(tool, arguments),
            "kind": tool_calls.kind_of(tool),
            "status": "pending",
            "rawInput": dict(arguments),
            "locations": tool_calls.locations_of(tool, arguments, root),
            **({"content": content} if content else {}),
        }

    # --- what a model wants to know ----------------------------------------------------------------------

    async def _question(self, request: ApprovalRequest) -> Answer:
        question = sanitize(str(request.arguments.get("question", "")))
        choices = [sanitize(str(choice)) for choice in request.arguments.get("options") or ()]
        if self._client.forms:
            return await self._form(request, question, choices)
        if choices:
            return await self._choice(request, question, choices)
        self._translator.say(f"\n{question}\n", request.id)
        return Answer("allow", feedback=_LATER)

    async def _form(self, request: ApprovalRequest, question: str, choices: list[str]) -> Answer:
        answer = {"type": "string", "title": "Answer"}
        schema: dict[str, Any] = {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
        if choices:
            chosen = {"type": "string", "title": "Answer", "enum": choices}
            other = {"type": "string", "title": "Another answer"}
            schema = {"type": "object", "properties": {"choice": chosen, "answer": other}}
        call = self._translator.call_update(request.call_id) or {}
        params = {"mode": "form", "message": question, "requestedSchema": schema}
        if "toolCallId" in call:
            params["toolCallId"] = call["toolCallId"]
        told = await self._ask("elicitation/create", params)
        answered = _fields(told)
        action = answered.get("action")
        if action == "cancel":
            return Answer("cancelled")
        if action != "accept" or not isinstance(answered.get("content"), dict):
            return Answer("reject")
        content = _fields(answered["content"])
        return Answer("allow", feedback=str(content.get("answer") or content.get("choice") or ""))

    async def _choice(self, request: ApprovalRequest, question: str, choices: list[str]) -> Answer:
        """Ask by the dialog for permissions, which every client has."""
        call = self._translator.call_update(request.call_id) or {"toolCallId": request.call_id}
        call.pop("sessionUpdate", None)
        content = [{"type": "content", "content": text_block(question)}]
        offered = [
            {"optionId": f"answer:{place}", "name": choice, "kind": "allow_once"}
            for place, choice in enumerate(choices)
        ]
        offered.append({"optionId": "none", "name": "None of these", "kind": "reject_once"})
        tool_call = {**call, "title": question, "kind": "other", "status": "pending", "content": content}
        outcome = await self._ask("session/request_permission", {"toolCall": tool_call, "options": offered})
        chosen = _chosen(outcome)
        if chosen is None:
            return Answer("cancelled")
        number = chosen.partition(":")[2]
        if number.isdigit() and int(number) < len(choices):
            return Answer("allow", feedback=choices[int(number)])
        return Answer("allow", feedback="None of these.")


def options(request: ApprovalRequest) -> list[dict[str, Any]]:
    """Return the answers that a permission request offers: once, always, and the same for no."""
    rule = sanitize(request.proposed_rule or "", keep_newlines=False)
    offered = [{"optionId": "allow:once", "name": "Allow", "kind": "allow_once"}]
    offered += [
        {
            "optionId": f"allow:{scope}",
            "name": f"Always allow {rule} {_ALWAYS[scope]}",
            "kind": "allow_always",
        }
        for scope in request.scopes
        if rule and scope in _ALWAYS
    ]
    offered.append({"optionId": "reject:once", "name": "Reject", "kind": "reject_once"})
    if rule:
        name = f"Always reject {rule} for this session"
        offered.append({"optionId": "reject:session", "name": name, "kind": "reject_always"})
    return offered


def _chosen(result: Any) -> str | None:
    """Return the option that was selected; ``None``: the turn was cancelled.

    Raises:
        RpcError: The answer is none.
    """
    outcome = _fields(_fields(result).get("outcome"))
    if outcome.get("outcome") == "cancelled":
        return None
    chosen = outcome.get("optionId")
    if outcome.get("outcome") == "selected" and isinstance(chosen, str):
        return chosen
    raise RpcError(0, "its answer named no option")


def _fields(value: Any) -> dict[str, Any]:
    """Return a JSON object of a client; empty where it sent something else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
