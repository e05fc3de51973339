"""Approvals: each question has a future of its own, found again by its request id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

from aar.protocol.errors import UsageError
from aar.protocol.events import Approval, ApprovalRequest

Scope = Literal["once", "session", "project", "user"]
SaveRule = Callable[[str, Scope], None]


class PermissionManager:
    """Holds open questions until a door answers them (the `Approver` port).

    Many questions may be open at once and are answered in any order. A rule that an answer asks to keep
    goes to ``save_rule`` (the session's rules, or a config file).
    """

    def __init__(self, save_rule: SaveRule | None = None) -> None:
        self._open: dict[str, asyncio.Future[Approval]] = {}
        self._requests: dict[str, ApprovalRequest] = {}
        self._save_rule = save_rule

    @property
    def pending(self) -> tuple[ApprovalRequest, ...]:
        """The questions that wait for an answer, oldest first."""
        return tuple(request for name, request in self._requests.items() if not self._open[name].done())

    async def decide(self, request: ApprovalRequest) -> Approval:
        """Wait until `answer` is called for ``request``; there is no time limit for a person."""
        future: asyncio.Future[Approval] = asyncio.get_running_loop().create_future()
        self._open[request.request_id] = future
        self._requests[request.request_id] = request
        try:
            return await future
        finally:
            self._open.pop(request.request_id, None)
            self._requests.pop(request.request_id, None)

    def answer(
        self,
        request_id: str,
        decision: Literal["allow", "reject", "cancelled"],
        *,
        scope: Scope = "once",
        rule: str | None = None,
        edited_arguments: dict[str, Any] | None = None,
        feedback: str | None = None,
    ) -> None:
        """Answer one open question.

        Raises:
            UsageError: No such question is open (it was answered, or its run has ended), or ``scope`` was
                not offered with it.
            ConfigurationError: ``rule`` is not a rule.
        """
        future = self._open.get(request_id)
        if future is None or future.done():
            raise UsageError(f"No question {request_id} is open; it was answered or its run has ended.")
        request = self._requests[request_id]
        if scope not in request.scopes:
            raise UsageError(f"This question can be answered for {' or '.join(request.scopes)} only.")
        kept = rule or request.proposed_rule if scope != "once" else None
        if kept is not None and decision == "allow" and self._save_rule is not None:
            self._save_rule(kept, scope)
        future.set_result(
            Approval(
                request_id=request_id,
                call_id=request.call_id,
                decision=decision,
                scope=scope,
                by="user",
                rule=kept,
                edited_arguments=edited_arguments,
                feedback=feedback,
            )
        )

    def cancel_all(self) -> None:
        """Answer every open question with ``cancelled``."""
        for request_id in list(self._open):
            self.answer(request_id, "cancelled")
