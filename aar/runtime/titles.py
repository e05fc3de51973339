"""Titles of new sessions by ``[model] small``, beside the conversation and never in its way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from aar.core.budget import Budget
from aar.core.session import Session
from aar.core.session_title import improve_title
from aar.protocol.errors import AarError
from aar.runtime.base import log_failure

if TYPE_CHECKING:
    from aar.runtime.parts import Runtime

_AGENT: Final = "title"
_PATIENCE_S: Final = 60
_MAX_TOKENS: Final = 100


class Titles:
    """Has a session titled once, after the first run of its life.

    Without ``[model] small`` nothing is asked: the main model may be slow or dear. What goes wrong is told in
    the log only.

    Args:
        runtime: All parts.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._seen: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def after_run(self, session: Session, budget: Budget | None) -> None:
        """Begin to title ``session``, if this was its first run; return at once.

        Args:
            session: It need not be idle for long; closing it ends the question.
            budget: Counts what the title costs; once it is used up, no title is asked for.
        """
        begun_here = session.opened_seq == 1 and session.session_id not in self._seen
        self._seen.add(session.session_id)
        if not begun_here or self._runtime.base.config.model.small is None:
            return
        if budget is not None and budget.exhausted:
            return
        self._task = asyncio.get_running_loop().create_task(self._work(session, budget))
        session.before_close.append(self.stop)

    async def wait(self) -> None:
        """Return when no title is being asked for."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def stop(self) -> None:
        """Ask no longer."""
        if self._task is not None:
            self._task.cancel()
            await self.wait()

    async def _work(self, session: Session, budget: Budget | None) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._improve(session, budget)
        except Exception as error:
            log_failure("the session got no title from the small model", error)

    async def _improve(self, session: Session, budget: Budget | None) -> None:
        from aar.runtime.small import SmallJobs, count_cost, small_model

        main = self._runtime.active
        jobs = SmallJobs(small_model(self._runtime.base, main), self._runtime.base)
        before = session.title

        async def ask(question: str) -> str:
            try:
                answer = await jobs.ask_once(question, max_tokens=_MAX_TOKENS)
            except AarError as error:
                log_failure("the small model gave no title", error)
                raise
            count_cost(session, budget, jobs, _AGENT)
            # Whoever named the session in the meantime knew better.
            return answer if session.title == before else ""

        try:
            await improve_title(session, ask)
        finally:
            await jobs.aclose(main)
