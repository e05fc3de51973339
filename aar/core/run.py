"""One run of the agent: the verbs that `run_loop` uses, over a session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from aar.core.compaction.compactor import too_long
from aar.core.guardrails import LoopGuardrails, Nudge, Verdict
from aar.core.hook_points import MAX_SENT_BACK, hook_context, refusal_context
from aar.core.limits import RunLimits
from aar.core.prompt_queue import PromptQueue
from aar.core.provider_runner import ActiveModel, Answer, ProviderRunner, error_event
from aar.core.verify.verifier import CheckResult, Verifier, describe_failure
from aar.core.verify.watch import NUDGE, StuckWatch
from aar.protocol.errors import ErrorKind, ProviderError
from aar.protocol.events import ContextEvent, Event, Notice, ToolResult, UserMessage
from aar.protocol.messages import TextBlock
from aar.protocol.ports import Emit, Hooks
from aar.protocol.state import AgentState, StopReason
from aar.protocol.usage import Usage
from aar.providers.base import ProviderRequest
from aar.tools.executor import ToolExecutor

if TYPE_CHECKING:
    from aar.providers.text_tools import Parser

_WELL = frozenset({StopReason.END_TURN, StopReason.VERIFIED})

LAST_ANSWER = {
    StopReason.STOPPED: "The user asked you to stop here.",
    StopReason.MAX_STEPS: "You have used all steps of this run.",
    StopReason.TIMEOUT: "The time of this run is nearly over.",
    StopReason.BUDGET: "The budget of this run is nearly used up.",
    StopReason.REPETITION: "You are repeating yourself without progress.",
}
SUM_UP = "Do not call tools. Say in a few sentences what is done, what is not, and what should come next."


class ScopedEmit(Emit, Protocol):
    """An `Emit` that stamps a step number which moves on."""

    step: int | None


class ModelView(Protocol):
    """How the model sees the session: prompt, messages and tools in its dialect."""

    def request(self, *, tools: bool) -> ProviderRequest:
        """Return the next request."""
        ...

    def make_parser(self, *, tools: bool) -> Callable[[], Parser] | None:
        """Return a maker of parsers for answers that hold calls as text, if the dialect has such."""
        ...

    def ends_turn(self, tool_names: list[str]) -> bool:
        """Tell whether calls of these tools are all that the model has to say."""
        ...

    def review(self, results: Sequence[ToolResult]) -> Event | None:
        """Return what the model should hear about what it just did, before its turn is accepted."""
        ...

    def setback(self, *, failure: str | None = None, objection: str = "") -> None:
        """Take note that an answer was not good enough: of the check that fails, or of what is wrong."""
        ...

    def take_notes(self) -> list[str]:
        """Remove and return sentences for the user."""
        ...


class ContextKeeper(Protocol):
    """Keeps the conversation inside the model's window."""

    async def before_request(self) -> None:
        """Make room where there is too little."""
        ...

    async def after_overflow(self, error: ProviderError) -> None:
        """Make room because the server refused; return when the request may be sent again."""
        ...

    def learn(self, usage: Usage) -> None:
        """Take what the server counted."""
        ...


class Run:
    """The state of one run. Everything that must survive it is an event.

    Args:
        emit: Into the session, stamped with this run.
        view: How the model sees the session.
        runner: Asks the model.
        executor: Runs tool calls.
        guardrails: Help for a stuck model.
        limits: Steps, time, tokens, money.
        queue: Where steering words wait.
        verifier: Checks that must pass, if there are some.
        remake_view: Makes the view anew when another model goes on.
        sync: Makes the session durable.
        set_state: Records the agent's state.
        keeper: Keeps the conversation inside the model's window.
    """

    def __init__(
        self,
        emit: ScopedEmit,
        view: ModelView,
        runner: ProviderRunner,
        executor: ToolExecutor,
        guardrails: LoopGuardrails,
        limits: RunLimits,
        queue: PromptQueue,
        *,
        verifier: Verifier | None = None,
        remake_view: Callable[[], Awaitable[ModelView]] | None = None,
        sync: Callable[[], object] | None = None,
        set_state: Callable[[AgentState], object] = lambda state: None,
        keeper: ContextKeeper | None = None,
    ) -> None:
        self._keeper = keeper
        self._emit = emit
        self._view = view
        self._runner = runner
        self._executor = executor
        self._guardrails = guardrails
        self._queue = queue
        self._verifier = verifier
        self._remake_view = remake_view
        self._sync = sync
        self._set_state = set_state
        self._watch = StuckWatch()
        self._stop_asked = False
        self.limits = limits
        self.hooks: Hooks | None = None
        self.agent_id = "main"
        self.reviewers: Sequence[Callable[[], Awaitable[Event | None]]] = ()
        self._sent_back = 0

    def stop(self) -> None:
        """Ask for an end at the next safe point, with one last answer."""
        self._stop_asked = True

    def limit_reached(self) -> StopReason | None:
        """Return why the run must end now, if it must; shows warnings that are due."""
        for warning in self.limits.warnings():
            self._emit.append(Notice(level="warning", message=warning, code="budget_warning"))
        return StopReason.STOPPED if self._stop_asked else self.limits.reached()

    def take_steering(self) -> None:
        """Store what the user said meanwhile, so that the next request holds it."""
        for content in self._queue.take_steering():
            self._guardrails.world_changed()
            self._emit.append(UserMessage(content=content, source="steer"))

    async def ask(self) -> Answer:
        """Request the next answer with tools."""
        return await self._request(tools=True)

    async def _request(self, *, tools: bool) -> Answer:
        self.limits.steps += 1
        self._emit.step = self.limits.steps
        answer = await self._ask_in_window(tools)
        self.limits.count(answer.usage, answer.cost_usd)
        for note in self._view.take_notes():
            self._emit.append(Notice(message=note, code="coach"))
        return answer

    async def _ask_in_window(self, tools: bool) -> Answer:
        """Ask; when the server finds the conversation too long, shorten it and ask once more."""
        keeper = self._keeper
        if keeper is None:
            return await self._ask_model(tools)
        await keeper.before_request()
        try:
            answer = await self._ask_model(tools)
        except ProviderError as error:
            if error.error_kind is not ErrorKind.CONTEXT_OVERFLOW:
                raise
            await keeper.after_overflow(error)
            try:
                answer = await self._ask_model(tools)
            except ProviderError as again:
                raise (too_long(again) if again.error_kind is error.error_kind else again) from error
        keeper.learn(answer.usage)
        return answer

    async def _ask_model(self, tools: bool) -> Answer:
        await self._tell_hooks("before_model", {})
        answer = await self._runner.request(
            self._view.request(tools=tools),
            self._emit,
            make_parser=self._view.make_parser(tools=tools),
            remaining_s=lambda: self.limits.remaining_seconds,
            remake=partial(self._remake, tools),
        )
        await self._tell_hooks("after_model", {"text": answer.text})
        return answer

    async def _tell_hooks(self, event: str, data: dict[str, object]) -> None:
        if self.hooks is not None and self.hooks.wants(event):
            said = await self.hooks.fire(event, {**data, "agent_id": self.agent_id})
            self._emit.append(*hook_context(said, event))

    async def _remake(
        self, tools: bool, active: ActiveModel
    ) -> tuple[ProviderRequest, Callable[[], Parser] | None]:
        """Return the request as the model that goes on needs it."""
        if self._remake_view is None:
            request = self._view.request(tools=tools)
            return replace(request, model=active.model), self._view.make_parser(tools=tools)
        self._view = await self._remake_view()
        return self._view.request(tools=tools), self._view.make_parser(tools=tools)

    async def act(self, answer: Answer) -> StopReason | None:
        """Run the answer's calls; nudge or stop a model that goes round in circles.

        A model whose calls are its whole turn (`ModelView.ends_turn`) is not asked what comes next.
        """
        if answer.refused:
            self._executor.refuse(
                answer.calls, self._emit, "The answer was declined, so its calls did not run."
            )
            return StopReason.REFUSAL
        self._set_state(AgentState.WAITING_FOR_TOOL)
        step = await self._executor.execute(
            answer.calls, self._emit, cut=answer.cut_call, waiting=self._wait_for_input
        )
        self._set_state(AgentState.RUNNING)
        if self._sync is not None:
            self._sync()
        if step.acted:
            self._watch.acted()
        if step.ends_run:
            return StopReason.DENIED
        if answer.cut_call:
            return self._obey(self._guardrails.after_cut_call())
        if answer.problem is not None:
            self._nudge(Nudge(answer.problem, "unreadable answer"))
        failed = any(result.is_error for result in step.results)
        if (
            not failed
            and answer.problem is None
            and self._view.ends_turn([r.tool_name for r in step.results])
        ):
            return await self._accept(step.results)
        return self._obey(self._guardrails.after_tools(answer.calls, step.results))

    def _wait_for_input(self, waiting: bool) -> None:
        self._set_state(AgentState.WAITING_FOR_INPUT if waiting else AgentState.WAITING_FOR_TOOL)

    async def weigh(self, answer: Answer) -> StopReason | None:
        """Accept an answer without calls, after the checks passed; or make the model go on."""
        verdict = self._guardrails.after_answer(
            text=answer.text, cut=answer.cut, refused=answer.refused, problem=answer.problem
        )
        if verdict is not None:
            return self._obey(verdict)
        return await self._accept()

    async def _accept(self, results: Sequence[ToolResult] = ()) -> StopReason | None:
        """Take the model's turn for its last, unless the user said something or a check fails."""
        if self._queue.has_steering:
            return None
        objection = self._view.review(results) if results else None
        if objection is not None:
            self._view.setback(objection=_said(objection))
            self._emit.append(objection)
            return None
        reason = StopReason.END_TURN if self._verifier is None else await self._verify(self._verifier)
        if reason is None or await self._sent_back_by_hook(reason) or await self._sent_back_by_review(reason):
            return None
        return reason

    async def _sent_back_by_review(self, reason: StopReason) -> bool:
        """Let reviewers look at the work; whether one lets the model go on, with its words before it."""
        if reason not in _WELL:
            return False
        for reviewer in self.reviewers:
            said = await reviewer()
            if said is not None:
                self._emit.append(said)
                return True
        return False

    async def _sent_back_by_hook(self, reason: StopReason) -> bool:
        """Tell hooks that the model wants to end; whether one lets it go on, with the reason before it."""
        event = "stop" if self.agent_id == "main" else "subagent_stop"
        if reason not in _WELL or self.hooks is None or not self.hooks.wants(event):
            return False
        data = {"reason": str(reason), "stop_hook_active": self._sent_back > 0, "agent_id": self.agent_id}
        said = await self.hooks.fire(event, data)
        self._emit.append(*hook_context(said, event))
        if said.refusal is None or self._sent_back >= MAX_SENT_BACK:
            return False
        self._sent_back += 1
        self._emit.append(refusal_context(said, event))
        return True

    async def first_check(self) -> CheckResult | None:
        """Run the checks before the model has done anything; ``None`` when there are none."""
        return await self._verifier.run() if self._verifier is not None else None

    async def _verify(self, verifier: Verifier) -> StopReason | None:
        self._set_state(AgentState.WAITING_FOR_TOOL)
        result = await verifier.run()
        self._set_state(AgentState.RUNNING)
        if result.passed:
            return StopReason.VERIFIED
        self._view.setback(failure=describe_failure(result))
        self._emit.append(check_context(result))
        finding = self._watch.failed(result.signature)
        if finding == "nudge":
            self._nudge(Nudge(NUDGE.format(count=self._watch.same), "another approach"))
        return await self._stuck(verifier, result) if finding == "stuck" else None

    async def _stuck(self, verifier: Verifier, result: CheckResult) -> StopReason | None:
        """Ask the user how to go on; where nobody is, a model that did nothing at all is stopped."""
        ask = verifier.senses.ask
        question = (
            f"The check `{result.command}` has failed in the same way {self._watch.same} times. Shall I go "
            "on? Say what I should try, if you know."
        )
        said = None if ask is None else await ask(question, ("Go on", "Stop"))
        if said is None:
            return StopReason.REPETITION if self._watch.hopeless else None
        word = said.strip().lower()
        if word in ("stop", "no", ""):
            return StopReason.STOPPED
        self._watch.start_over()
        if word != "go on":
            self._emit.append(UserMessage(content=(TextBlock(text=said.strip()),), source="steer"))
        return None

    def _obey(self, verdict: Verdict) -> StopReason | None:
        if isinstance(verdict, Nudge):
            self._nudge(verdict)
            return None
        return verdict

    def _nudge(self, nudge: Nudge) -> None:
        self._view.setback()
        self._emit.append(
            ContextEvent(source="nudge", label=nudge.label, content=(TextBlock(text=nudge.text),))
        )

    async def conclude(self, reason: StopReason) -> StopReason:
        """Ask for one last answer without tools, if the limits leave room for it."""
        if self.limits.exhausted:
            return reason
        words = f"{LAST_ANSWER.get(reason, 'This run ends here.')} {SUM_UP}"
        self._nudge(Nudge(words, "last answer"))
        try:
            answer = await self._request(tools=False)
        except ProviderError as error:
            self._emit.append(error_event(error))
        else:
            self._executor.refuse(
                answer.calls, self._emit, "No tools were offered any more; this call did not run."
            )
        return reason


def check_context(result: CheckResult) -> Event:
    """Return the event that puts a failed check before the model."""
    return ContextEvent(
        source="verify",
        label="The check fails",
        content=(TextBlock(text=describe_failure(result)),),
        trusted=False,
    )


def _said(event: Event) -> str:
    """Return the text of a context event."""
    if not isinstance(event, ContextEvent):
        return ""
    return "\n".join(block.text for block in event.content if isinstance(block, TextBlock))
