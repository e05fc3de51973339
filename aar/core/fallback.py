"""Which model goes on when one has finally failed, and who must agree to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from aar.core.active_model import ActiveModel
from aar.protocol.errors import ConfigurationError, ErrorKind, ProviderError
from aar.protocol.events import ApprovalRequest, Notice, StateEvent
from aar.protocol.ids import new_id
from aar.protocol.ports import Approver, Emit
from aar.protocol.state import AgentState

FALLBACK_KINDS = frozenset(
    {
        ErrorKind.AUTH,
        ErrorKind.QUOTA,
        ErrorKind.RATE_LIMIT,
        ErrorKind.OVERLOADED,
        ErrorKind.NETWORK,
        ErrorKind.TIMEOUT,
        ErrorKind.INCOMPLETE_STREAM,
        ErrorKind.MALFORMED_RESPONSE,
        ErrorKind.PROVIDER_INTERNAL,
        ErrorKind.UNKNOWN_MODEL,
    }
)
"""Failures of one server or account, which another model need not share.

Not among them: ``invalid_request`` (the request itself is wrong, elsewhere too), ``content_filter`` (a
decision, which must not be got around by asking elsewhere) and ``context_overflow`` (the conversation is made
shorter).
"""

CONSENT_TOOL = "model_fallback"
"""Stands in an approval request where the name of a tool does: whether a remote model may be asked."""

_WAY_OUT = ' To let it, set [model] fallback_remote = "allow" in your own config.'

OpenModel = Callable[[str], ActiveModel]
Consent = Callable[[ActiveModel, ActiveModel, ProviderError, Emit], Awaitable[bool]]
"""``await consent(local, remote, error, emit)``: whether the conversation may leave this machine."""


class FallbackChain:
    """The models of ``[model] fallback``, in order; each is opened when its turn comes.

    Who opens them closes them.

    Args:
        names: ``provider/model``.
        open_model: Makes a model ready to be asked; raises `ConfigurationError`. Runs in a thread.
        consent: Asks whether a remote model may go on after a local one; ``None``: nobody is there to ask.
        allow_remote: Whether that was allowed by configuration.
    """

    def __init__(
        self,
        names: Sequence[str],
        open_model: OpenModel,
        *,
        consent: Consent | None = None,
        allow_remote: bool = False,
    ) -> None:
        self.names = tuple(names)
        self._open_model = open_model
        self._consent = consent
        self._allow_remote = allow_remote
        self._place = 0

    def restart(self) -> None:
        """Begin with the first name again: a new prompt is asked of the first model again."""
        self._place = 0

    @property
    def exhausted(self) -> bool:
        """Whether no name is left for this prompt."""
        return self._place >= len(self.names)

    async def next(
        self, home: ActiveModel, failed: ActiveModel, error: ProviderError, emit: Emit
    ) -> ActiveModel | None:
        """Return the model that goes on, or ``None`` when there is none, or none that may.

        Args:
            home: The first model: where it is local, the conversation was meant to stay here.
            failed: The model that failed.
            error: Its failure.
            emit: Gets the question, and a notice for each model that is passed over.
        """
        if error.error_kind not in FALLBACK_KINDS:
            return None
        while not self.exhausted:
            name = self.names[self._place]
            self._place += 1
            if name in {home.name, failed.name}:
                continue
            candidate = await self._ready(name, emit)
            if candidate is not None and await self._may_ask(home, candidate, error, emit):
                return candidate
        return None

    async def _ready(self, name: str, emit: Emit) -> ActiveModel | None:
        try:
            return await asyncio.to_thread(self._open_model, name)
        except ConfigurationError as problem:
            message = f"The fallback {name} cannot be used. {problem}"
            emit.append(Notice(level="warning", message=message, code="fallback_unusable"))
            return None

    async def _may_ask(
        self, home: ActiveModel, candidate: ActiveModel, error: ProviderError, emit: Emit
    ) -> bool:
        if home.remote or not candidate.remote or self._allow_remote:
            return True
        if self._consent is not None and await self._consent(home, candidate, error, emit):
            return True
        way_out = "" if self._consent is not None else _WAY_OUT
        message = (
            f"{candidate.name} was not asked: this conversation was with a model on this machine, "
            f"and would have left it.{way_out}"
        )
        emit.append(Notice(level="warning", message=message, code="fallback_refused"))
        return False


def consent_by(approver: Approver) -> Consent:
    """Return a consent that asks a person, as for a tool call; "for the session" is remembered."""
    agreed: set[str] = set()

    async def consent(local: ActiveModel, remote: ActiveModel, error: ProviderError, emit: Emit) -> bool:
        if remote.name in agreed:
            return True
        request = _question(local, remote, error)
        emit.append(request, StateEvent(state=AgentState.WAITING_FOR_INPUT))
        answer = await approver.decide(request)
        answer = answer.model_copy(update={"call_id": request.call_id, "request_id": request.request_id})
        emit.append(answer, StateEvent(state=AgentState.RUNNING))
        if answer.decision == "allow" and answer.scope == "session":
            agreed.add(remote.name)
        return answer.decision == "allow"

    return consent


def _question(local: ActiveModel, remote: ActiveModel, error: ProviderError) -> ApprovalRequest:
    server = remote.server or remote.provider.name
    reasons = [
        str(error),
        f"{remote.name} could go on. The whole conversation, with what was read of your files, "
        f"would be sent to {server}.",
    ]
    return ApprovalRequest(
        request_id=new_id(),
        call_id=f"fallback_{new_id()}",
        tool_name=CONSENT_TOOL,
        arguments={"from": local.name, "to": remote.name, "server": server},
        why={"rule": None, "reasons": reasons},
        scopes=("once", "session"),
    )
