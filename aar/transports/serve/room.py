"""One open session of a server: its conversation, and what those who watch it are told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from itertools import islice
from typing import Any

from aar.config.schema import PermissionMode
from aar.core.agent import RunResult
from aar.protocol.events import Event, Retry, StreamChunk
from aar.protocol.ids import now
from aar.runtime.conversation import Conversation
from aar.runtime.questions import ASK_TOOL
from aar.transports.serve.overrides import demand_no_looser

_BEHIND = 20_000
"""Events that may wait for a slow reader; then its stream ends, and it takes up again where it was."""
_READ_AT_ONCE = 500
_ASKED = {"request_id", "call_id", "tool_name", "arguments", "diff", "wall", "why", "proposed_rule"}
OFFERED_SCOPES = ("once", "session")
"""How long an answer over HTTP may hold; what loosens later sessions is for whoever sits at the machine."""


class Room:
    """A session that is open here.

    Args:
        conversation: The session with its agent.
        ceiling: The loosest mode that a client may choose.
        headless: Whether nobody can answer questions in it.

    Attributes:
        conversation: See above.
        headless: Whether nobody can answer questions in it.
        used: Monotonic seconds of the last request about it.
    """

    def __init__(
        self, conversation: Conversation, ceiling: PermissionMode, *, headless: bool = False
    ) -> None:
        self.conversation = conversation
        self.session = conversation.session
        self.headless = headless
        self.used = time.monotonic()
        self._ceiling: PermissionMode = ceiling
        self._partial: list[StreamChunk] = []
        self._result: RunResult | None = None
        conversation.watch(self._take, on_result=self._take_result)

    @property
    def session_id(self) -> str:
        """Id of the session."""
        return self.session.session_id

    @property
    def busy(self) -> bool:
        """Whether a run is under way."""
        return self.conversation.running

    def _take(self, event: Event) -> None:
        """Remember the pieces of the answer that is arriving, for who begins to watch in the middle of it."""
        if isinstance(event, StreamChunk):
            if event.agent_id == "main":
                self._partial.append(event)
        elif event.agent_id == "main" and (not isinstance(event, Retry) or event.discard):
            self._partial.clear()

    def _take_result(self, result: RunResult) -> None:
        self._result = result

    # --- what it is --------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return what a client shows of the session."""
        conversation, totals = self.conversation, self.session.totals
        runtime = conversation.runtime
        result = self._result
        return {
            "id": self.session_id,
            "title": self.session.title,
            "cwd": str(runtime.workspace),
            "model": runtime.active.name,
            "mode": conversation.mode,
            "agent": runtime.profile.name if runtime.profile is not None else None,
            "state": str(totals.state("main")),
            "running": conversation.running,
            "headless": self.headless,
            "last_seq": self.session.last_seq,
            "usage": totals.usage.model_dump(),
            "cost_usd": totals.cost_usd if totals.cost_known else None,
            "approvals": self.approvals(),
            "last_stop_reason": None if result is None else str(result.stop_reason),
            "last_error": None if result is None else result.error,
        }

    def approvals(self) -> list[dict[str, Any]]:
        """Return the open questions, oldest first."""
        return [
            {
                **request.model_dump(mode="json", include=_ASKED),
                "scopes": [scope for scope in request.scopes if scope in OFFERED_SCOPES],
                "question": request.tool_name == ASK_TOOL,
            }
            for request in self.conversation.agent.approvals.pending
        ]

    def set_mode(self, mode: PermissionMode) -> None:
        """Change the mode.

        Raises:
            UsageError: The server does not allow it.
        """
        demand_no_looser(mode, self._ceiling)
        self.conversation.set_mode(mode)

    # --- who watches -------------------------------------------------------------------------------------

    async def events(self, after: int, *, pieces: bool = True) -> AsyncGenerator[Event]:
        """Yield stored events behind ``after``, then what happens, until the session is closed.

        Args:
            after: Seq of the last event that the reader has.
            pieces: Whether events that are not stored are wanted too.
        """
        watching = self.session.subscribe("serve")
        try:
            last = self.session.last_seq
            partial = tuple(self._partial) if pieces else ()
            if after < last:
                async for event in read_slowly(self.session.events(after + 1)):
                    if (event.seq or 0) > last:
                        break
                    yield event
            if partial:
                yield _joined(partial)
            async for event in watching:
                if event.seq is None and not pieces:
                    continue
                if event.seq is not None and event.seq <= max(last, after):
                    continue
                yield event
                if watching.backlog > _BEHIND:
                    return
        finally:
            watching.close()

    async def aclose(self) -> None:
        """End the run and close the session with all its processes."""
        await self.conversation.aclose()


async def read_slowly(events: Iterator[Event]) -> AsyncGenerator[Event]:
    """Yield stored events, read a few at a time in a thread: neither the loop nor memory is held up."""
    while some := await asyncio.to_thread(lambda: list(islice(events, _READ_AT_ONCE))):
        for event in some:
            yield event


def _joined(pieces: tuple[StreamChunk, ...]) -> StreamChunk:
    """Return what of an answer has arrived, as one piece."""
    return pieces[-1].model_copy(
        update={
            "text": "".join(piece.text for piece in pieces),
            "reasoning_text": "".join(piece.reasoning_text for piece in pieces),
            "tool_call_fragment": None,
            "finished": False,
            "ts": now(),
        }
    )
