"""One open session with its agent: what every interactive door (screen, line mode, editor, web) holds.

A door collects input and shows events. Whether a prompt starts a run, steers one or waits in the queue, and
how model, mode and session are changed, is the same for all of them and stands here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from aar.config.schema import PermissionMode
from aar.config.tighten import stricter_mode
from aar.core.agent import Agent, RunResult, Work
from aar.core.context_parts import Part, context_breakdown
from aar.core.prompt import MODE_NOTES
from aar.core.prompt_queue import Prompt, as_prompt
from aar.core.session import Session
from aar.protocol.errors import AarError, UsageError
from aar.protocol.events import Compaction, ContextEvent, Event, Notice, Setting
from aar.protocol.messages import ContentBlock, TextBlock
from aar.protocol.state import StopReason
from aar.runtime.audit import keep_audit
from aar.runtime.base import log_failure
from aar.runtime.parts import Runtime
from aar.runtime.sessions import rename_stored
from aar.runtime.titles import Titles

if TYPE_CHECKING:
    from aar.runtime.undo import Undo
    from aar.runtime.voice import Voice

EventHandler = Callable[[Event], None]
SessionHandler = Callable[[Session], None]
ResultHandler = Callable[[RunResult], None]
T = TypeVar("T")


class Conversation:
    """A runtime, a session in it, and the agent that works on it.

    Attributes:
        runtime: All parts.
        session: The open session; another one after `new_session`, `resume` or `fork`.
        agent: The agent of that session.
        last_result: How the last run ended.
        titles: Titles new sessions, where ``[model] small`` is set.
        mode_before_plan: Mode in which a plan was asked for, which it is run in.
    """

    def __init__(self, runtime: Runtime, session: Session) -> None:
        self.runtime = runtime
        runtime.takes_commands = True
        self.session = session
        self.agent: Agent = runtime.agent(session)
        self.last_result: RunResult | None = None
        self.titles = Titles(runtime)
        self.mode_before_plan: PermissionMode | None = None
        self._task: asyncio.Task[None] | None = None
        self._cut_short = False
        self._beside: asyncio.Task[Any] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._on_event: list[EventHandler] = []
        self._on_session: list[SessionHandler] = []
        self._on_result: list[ResultHandler] = []
        self._unwatch = session.on_event(self._hand_on)

    # --- who watches -------------------------------------------------------------------------------------

    def watch(
        self,
        on_event: EventHandler,
        *,
        on_session: SessionHandler | None = None,
        on_result: ResultHandler | None = None,
    ) -> None:
        """Call ``on_event`` with each event of the open session, whichever that is.

        Handlers run inside `Session.append` and must be short (put the event into a queue or a fold).

        Args:
            on_event: Gets events as they happen.
            on_session: Told when another session was opened in place of the present one.
            on_result: Told how each run ended.
        """
        self._on_event.append(on_event)
        if on_session is not None:
            self._on_session.append(on_session)
        if on_result is not None:
            self._on_result.append(on_result)

    def _hand_on(self, event: Event) -> None:
        for handler in tuple(self._on_event):
            handler(event)

    # --- prompts -----------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether a run is under way, or the next one is about to begin."""
        return self._task is not None

    def _need_idle(self) -> None:
        if self.running:
            raise UsageError("A run is under way; interrupt it (Esc) or wait for its end.")

    def submit(self, prompt: str | Sequence[ContentBlock]) -> Literal["run", "steer"]:
        """Say something: it starts a run, or steers the one under way at its next safe point."""
        if self.running:
            self.agent.steer(prompt)
            return "steer"
        if self.runtime.extras.counsel.routing:
            self._task = asyncio.get_running_loop().create_task(self._routed(as_prompt(prompt)))
        else:
            self._start(as_prompt(prompt), "prompt")
        return "run"

    async def _routed(self, prompt: Prompt) -> None:
        """Let the router choose who takes a prompt, then start its run."""
        from aar.runtime.review import route_prompt

        words = "\n".join(block.text for block in prompt if isinstance(block, TextBlock))
        chosen = None
        try:
            chosen = await route_prompt(self.runtime, self.session, words)
        finally:
            self._task = None
        agent, model = chosen or (None, None)
        try:
            if agent is not None:
                self.set_agent(None if agent == "none" else agent, by="router")
            if model is not None:
                self.set_model(model, by="router")
        except AarError as error:
            self.session.append(Notice(level="warning", code="router", message=str(error)))
        self._start(prompt, "prompt")

    async def beside(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Do what is no run of the agent, such as a review; `interrupt` ends it, and gives ``None``.

        Raises:
            UsageError: A run is under way.
        """
        if self.running:
            work.close()
        self._need_idle()
        task = asyncio.get_running_loop().create_task(work)
        self._beside = task
        self._task = until = asyncio.get_running_loop().create_task(self._until(task))
        try:
            await asyncio.wait({until})
        finally:
            task.cancel()
            self._beside = None
        return None if task.cancelled() else task.result()

    def enqueue(self, prompt: str | Sequence[ContentBlock]) -> None:
        """Let ``prompt`` wait until the present run is over; it starts at once where none is."""
        if self.running:
            self.agent.queue.add(prompt)
        else:
            self._start(as_prompt(prompt), "queue")

    def go_on(self) -> bool:
        """Start the next prompt of the queue after a run that was interrupted; tell whether one waited."""
        if self.running:
            return False
        prompt = self.agent.queue.next_prompt()
        if prompt is not None:
            self._start(prompt, "queue")
        return prompt is not None

    def interrupt(self) -> None:
        """End the present run at once. What was shown is kept; what waits in the queue goes on waiting."""
        if self._beside is not None:
            self._beside.cancel()
        elif self.agent.running:
            self.agent.cancel()
        elif self._task is not None:
            # The run is about to begin: it begins, so that the prompt is in the session, and ends.
            self._cut_short = True

    def run_plan(self) -> None:
        """Start a run of the session's plan; `interrupt` ends it, and it can be started again.

        Raises:
            UsageError: A run is under way, or there is nothing to do.
            PlanningError: The plan cannot be run as it is.
        """
        self._need_idle()
        from aar.runtime.plan.running import plan_work

        prompt, work = plan_work(self.runtime, self.session, self.agent)
        self._start(as_prompt(prompt), "prompt", work)

    def _start(self, prompt: Prompt, source: str, work: Work | None = None) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work(prompt, source, work))

    async def _work(self, prompt: Prompt, source: str, work: Work | None) -> None:
        """Run ``prompt`` and what waits behind it, until something ends otherwise than well."""
        following: Prompt | None = prompt
        try:
            while following is not None:
                if self._cut_short:
                    self._cut_short = False
                    asyncio.get_running_loop().call_soon(self.agent.cancel)
                result = await self.agent.run(following, self.session, source=source, work=work)
                self.last_result = result
                if work is None and result.stop_reason is StopReason.VERIFIED and self.session.totals.goal:
                    self.set_goal(None, by="verify")
                work = None
                for handler in tuple(self._on_result):
                    handler(result)
                well = result.exit_code == 0
                following, source = (self.agent.queue.next_prompt() if well else None), "queue"
            self.titles.after_run(self.session, self.agent.budget)
        except UsageError:
            raise
        except Exception as error:
            log_failure("a run could not start", error)
            raise
        finally:
            self._task, self._cut_short = None, False

    async def wait(self) -> None:
        """Return when nothing runs any more.

        Raises:
            AarError: The run could not start.
        """
        while self._task is not None:
            await asyncio.shield(self._task)

    async def stop(self) -> None:
        """Interrupt the present run and wait for its end."""
        self.interrupt()
        if self._task is not None:
            await asyncio.wait({self._task})

    def answer(
        self, request_id: str, decision: Literal["allow", "reject", "cancelled"], **details: Any
    ) -> None:
        """Answer an approval request or a question; ``details`` as for `PermissionManager.answer`."""
        self.agent.answer(request_id, decision, **details)

    @property
    def undo(self) -> Undo:
        """Undo, redo and rewind of the open session.

        Raises:
            UsageError: A run is under way, or ``[checkpoints] enabled`` is off.
        """
        self._need_idle()
        from aar.runtime.undo import Undo

        checkpoints = self.runtime.checkpoints(self.session)
        if checkpoints is None:
            raise UsageError("No checkpoints are kept: [checkpoints] enabled is off.")
        return Undo(checkpoints.store, self.session)

    async def compact(self, focus: str = "") -> Compaction | None:
        """Sum up the oldest turns for the model now; `interrupt` ends it. See `Agent.compact`.

        Raises:
            UsageError: A run is under way.
        """
        self._need_idle()
        work = asyncio.get_running_loop().create_task(self.agent.compact(self.session, focus))
        self._task = asyncio.get_running_loop().create_task(self._until(work))
        return await asyncio.shield(work)

    async def _until(self, work: asyncio.Task[Any]) -> None:
        try:
            await asyncio.wait({work})
        finally:
            self._task = None

    def context(self) -> list[Part]:
        """Return what fills the window of the model that answers now."""
        return context_breakdown(self.session, self.agent.view_of(self.session))

    # --- settings of the session -------------------------------------------------------------------------

    @property
    def mode(self) -> PermissionMode:
        """Permission mode of the next tool call."""
        return self.runtime.mode

    def set_mode(self, mode: str, *, by: str = "user") -> None:
        """Change the permission mode, from the next tool call on.

        Raises:
            UsageError: There is no such mode, or it cannot be had while aar runs (``unsafe`` only by flag).
            ConfigurationError: The mode needs a wall that is not there.
        """
        modes: dict[str, PermissionMode] = {known: known for known in get_args(PermissionMode)}
        wanted = modes.get(mode)
        if wanted is None:
            raise UsageError(f"There is no mode {mode!r}; modes are {', '.join(modes)}.")
        if mode == "unsafe" and self.runtime.mode != "unsafe":
            raise UsageError(
                "Mode unsafe takes the wall away; start aar with --mode unsafe if you want that."
            )
        ceiling = self.runtime.base.loaded.mode_ceiling
        if stricter_mode(wanted, ceiling) != wanted:
            raise UsageError(f"Mode {ceiling} is the loosest that is allowed here.")
        before = self.runtime.mode
        if mode == before:
            return
        self.runtime.set_mode(wanted)
        self.agent.executor.policy.change_mode(wanted, self.runtime.wall())
        note = ContextEvent(source="nudge", label="mode", content=(TextBlock(text=MODE_NOTES[mode]),))
        self.session.append(_setting("mode", before, mode, by), note)

    def set_model(self, name: str, *, by: str = "user") -> None:
        """Let another model answer, from the next run on; the conversation stays.

        Raises:
            ConfigurationError: There is no such provider, or its settings are wrong.
            UsageError: A run is under way.
        """
        self._need_idle()
        before = self.runtime.active.name
        self.runtime.set_model(name)
        self.agent = self._agent_again()
        self._close_left()
        active = self.runtime.active
        self.session.append(_setting("model", before, active.name, by, base_url=active.kept_address))

    def set_agent(self, name: str | None, *, by: str = "user") -> None:
        """Let another agent work in this session, from the next run on; ``None``: aar itself.

        Raises:
            UsageError: A run is under way.
            ConfigurationError: There is no such agent, or its model cannot be used.
        """
        self._need_idle()
        before = self.runtime.profile
        self.runtime.set_agent(name)
        self.agent = self._agent_again()
        self._close_left()
        self.session.append(_setting("agent", before and before.name, name, by))

    def set_goal(self, criterion: str | None, *, by: str = "user") -> None:
        """Let every run go on until ``criterion`` holds (see `aar.tools.criteria`); ``None``: no goal."""
        self.session.append(_setting("goal", self.session.totals.goal, criterion, by))

    def set_reasoning(self, level: str | int | None, *, by: str = "user") -> None:
        """Set how much the model thinks first, from the next run on."""
        before = self.runtime.reasoning
        self.runtime.reasoning = level
        self.session.append(_setting("reasoning", before, level, by))

    def renew_agent(self) -> None:
        """Take what was read again into the agent, from the next run on.

        Raises:
            UsageError: A run is under way.
        """
        self.agent = self._agent_again()

    def _close_left(self) -> None:
        closing = asyncio.get_running_loop().create_task(self.runtime.close_left())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _agent_again(self) -> Agent:
        """Return a new agent for the same session, with the queue and the rules that the old one had."""
        self._need_idle()
        agent = self.runtime.agent(self.session)
        agent.queue, agent.budget = self.agent.queue, self.agent.budget
        policy, profile = self.agent.executor.policy.base, self.runtime.profile
        agent.executor.policy = policy if profile is None else policy.narrowed(profile.mode)
        return agent

    # --- other sessions ----------------------------------------------------------------------------------

    async def new_session(self, title: str | None = None) -> None:
        """Begin a fresh session; the present one stays on disk."""
        await self._change(self.runtime.open_session(title=title))

    async def resume(self, session_id: str) -> None:
        """Go on with a stored session.

        Raises:
            ConfigurationError: There is no such session.
            StorageError: Another process has it open.
        """
        if session_id == self.session.session_id:
            return
        await self._change(await asyncio.to_thread(self.runtime.open_session, session_id=session_id))

    async def fork(self, at_seq: int | None = None) -> None:
        """Go on with a copy of the present session, up to ``at_seq``; the original stays as it is."""
        await self.stop()
        copy = Session.fork(self.runtime.store, self.session.session_id, at_seq, self.runtime.workspace)
        keep_audit(self.runtime.base, self.runtime.store, copy)
        await self._change(copy)

    async def rename(self, session_id: str, title: str) -> str:
        """Give this or a stored session another title; return it as it is kept.

        Raises:
            StorageError: It is open elsewhere, or cannot be written.
        """
        if session_id == self.session.session_id:
            return self.session.rename(title)
        return await asyncio.to_thread(rename_stored, self.runtime.store, session_id, title)

    async def delete(self, session_id: str) -> None:
        """Remove a stored session for good.

        Raises:
            UsageError: It is the one that is open here.
            StorageError: It is open elsewhere, or the disk refuses.
        """
        if session_id == self.session.session_id:
            raise UsageError("This is the open session; begin another one (/clear), then delete it.")
        await asyncio.to_thread(self.runtime.store.delete, session_id)

    async def _change(self, session: Session) -> None:
        await self.stop()
        self._unwatch()
        old, self.session = self.session, session
        await old.aclose()
        self.agent = self.runtime.agent(session)
        self._close_left()
        self._unwatch = session.on_event(self._hand_on)
        for handler in tuple(self._on_session):
            handler(session)
        if old.lost:
            session.append(Notice(level="error", code="store_lost", message=old.lost))

    @cached_property
    def voice(self) -> Voice:
        """Dictation and reading aloud."""
        from aar.runtime.voice import Voice

        return Voice(self)

    def stop_voice(self) -> bool:
        """End what is heard or read aloud; tell whether there was anything. See `Voice.stop`."""
        return "voice" in self.__dict__ and self.voice.stop()

    async def aclose(self) -> None:
        """End the run, close the session and the runtime."""
        await self.stop()
        if "voice" in self.__dict__:
            await self.voice.aclose()
        self._unwatch()
        await self.session.aclose()
        await self.runtime.aclose()


def _setting(key: str, before: object, now: object, by: str, **more: object) -> Setting:
    return Setting.model_validate({"key": key, "from": before, "to": now, "by": by, **more})
