"""Questions of a model to the user: `ask_user` goes the way of approvals, so that every door answers it."""

from __future__ import annotations

from collections.abc import Sequence

from aar.core.approvals import PermissionManager
from aar.protocol.events import Approval, ApprovalRequest, ToolCall
from aar.protocol.ids import new_id
from aar.protocol.ports import Ask, Emit

ASK_TOOL = "ask_user"
"""Tool name of an `ApprovalRequest` that is a question: ``arguments`` holds ``question`` and ``options``, and
the answer's ``feedback`` is what the user said."""


def make_ask(approvals: PermissionManager | None, call: ToolCall, emit: Emit) -> Ask:
    """Return what asks the user in the name of ``call``; without ``approvals`` nobody answers."""
    if approvals is None:
        return _nobody

    async def ask(question: str, options: Sequence[str]) -> str | None:
        request = ApprovalRequest(
            request_id=new_id(),
            call_id=call.call_id,
            tool_name=ASK_TOOL,
            arguments={"question": question, "options": list(options)},
            why={"rule": None, "reasons": ["the model has a question"]},
            parent_id=call.id or None,
        )
        emit.append(request)
        try:
            answer = await approvals.decide(request)
        except BaseException:
            emit.append(
                Approval(
                    request_id=request.request_id, call_id=call.call_id, decision="cancelled", by="policy"
                )
            )
            raise
        emit.append(answer)
        return answer.feedback or "" if answer.decision == "allow" else ""

    return ask


async def _nobody(question: str, options: Sequence[str]) -> str | None:
    """Answer for the user where nobody can."""
    return None
