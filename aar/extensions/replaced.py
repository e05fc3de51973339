"""Parts of aar that an extension replaced: each fails over to aar's own, and the user hears of it once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from aar.config.schema import GuardrailsConfig
from aar.core.guardrails import LoopGuardrails, Nudge, Verdict
from aar.core.prompt import SystemPrompt
from aar.extensions.api_parts import (
    CallHandler,
    Guardrails,
    HandledCall,
    MakeGuardrails,
    Memory,
    PromptBuilder,
    Recollection,
)
from aar.extensions.in_session import ExtensionsInSession
from aar.extensions.manager import Extension
from aar.extensions.replaced_planner import SessionPlanner
from aar.extensions.worker import ExtensionTroubleError
from aar.protocol.errors import AarError, ErrorKind, ProviderError, ToolFailure
from aar.protocol.events import (
    AssistantMessage,
    Event,
    PlanEvent,
    PromptLayer,
    StateEvent,
    ToolCall,
    ToolResult,
    UserMessage,
)
from aar.protocol.messages import TextBlock
from aar.protocol.ports import HookVerdict
from aar.protocol.state import StopReason
from aar.protocol.tool import ToolOutcome
from aar.providers.base import Delta, Provider, ProviderCapabilities, ProviderRequest

_NOW_S = 1.0
"""Seconds for a part that is asked where nothing can be awaited."""
_MAX_RECALLED = 5
_MAX_RECALLED_CHARS = 8000
_WELL = frozenset({StopReason.END_TURN, StopReason.VERIFIED})

Failed = Callable[[Extension, str, BaseException, str], None]


class ReplacedGuardrails(LoopGuardrails):
    """Guardrails of an extension for one run, with aar's own behind them.

    Args:
        extension: Whose.
        make: Makes them.
        config: Settings.
        failed: Told once when they fail.
    """

    def __init__(
        self, extension: Extension, make: MakeGuardrails, config: GuardrailsConfig, failed: Failed
    ) -> None:
        super().__init__(config)
        self._extension, self._failed = extension, failed
        self._theirs: Guardrails | None = None
        try:
            made = extension.worker.call_now(make, config, seconds=_NOW_S)
            if not isinstance(made, Guardrails):
                raise ExtensionTroubleError("what it made are no guardrails")
            self._theirs = made
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._theirs = None
        self._failed(self._extension, "guardrails", error, "aar's own go on")

    def _ask(self, own: Verdict, method: str, *arguments: Any, **named: Any) -> Verdict:
        theirs = self._theirs
        if theirs is None:
            return own
        try:
            function: Callable[..., Any] = getattr(theirs, method)
            said = self._extension.worker.call_now(lambda: function(*arguments, **named), seconds=_NOW_S)
            if said is not None and not isinstance(said, Nudge | StopReason):
                raise ExtensionTroubleError(f"guardrails cannot return {type(said).__name__}")
        except Exception as error:
            self._give_up(error)
            return own
        return said

    def world_changed(self) -> None:
        """See `Guardrails`."""
        super().world_changed()
        self._ask(None, "world_changed")

    def after_answer(self, *, text: str, cut: bool, refused: bool, problem: str | None) -> Verdict:
        """See `Guardrails`."""
        facts: dict[str, Any] = {"text": text, "cut": cut, "refused": refused, "problem": problem}
        return self._ask(super().after_answer(**facts), "after_answer", **facts)

    def after_cut_call(self) -> Verdict:
        """See `Guardrails`."""
        return self._ask(super().after_cut_call(), "after_cut_call")

    def after_tools(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> Verdict:
        """See `Guardrails`."""
        return self._ask(super().after_tools(calls, results), "after_tools", tuple(calls), tuple(results))


def rebuilt_prompt(
    extension: Extension,
    builder: PromptBuilder,
    prompt: SystemPrompt,
    facts: Mapping[str, Any],
    failed: Failed,
) -> SystemPrompt:
    """Return the prompt that an extension builds; aar's own where it fails."""
    try:
        made = extension.worker.call_now(builder.build, prompt.layers, facts, seconds=_NOW_S)
        layers = tuple(cast("Sequence[object]", made))
        if not layers or not all(isinstance(layer, PromptLayer) for layer in layers):
            raise ExtensionTroubleError("a prompt must have layers, each a PromptLayer")
        return replace(prompt, layers=cast("tuple[PromptLayer, ...]", layers))
    except Exception as error:
        failed(extension, "prompt builder", error, "aar's own prompt is used")
        return prompt


class ReplacedCallHandler:
    """Surrounds tool calls with an extension's handler. What policy judged is what runs, at most once.

    Args:
        extension: Whose.
        handler: What surrounds.
        failed: Told once when it fails.
        seconds: That the handler may take besides the tool.
    """

    def __init__(self, extension: Extension, handler: CallHandler, failed: Failed, seconds: float) -> None:
        self._extension, self._handler, self._failed, self._seconds = extension, handler, failed, seconds
        self._off = False

    async def __call__(
        self, call: ToolCall, arguments: Mapping[str, Any], proceed: Callable[[], Awaitable[ToolOutcome]]
    ) -> ToolOutcome:
        """Return the outcome of a call."""
        if self._off:
            return await proceed()
        given = HandledCall(call.tool_name, dict(arguments), call.call_id, call.agent_id)
        running = _Running(proceed)
        task = asyncio.ensure_future(
            self._extension.worker.call(self._handler.handle, given, running.from_there, seconds=None)
        )
        try:
            await running.watch(task, self._seconds)
            outcome = task.result()
            if not isinstance(outcome, ToolOutcome):
                raise ExtensionTroubleError(f"a call handler cannot return {type(outcome).__name__}")
        except ToolFailure:
            raise
        except Exception as error:
            if error is running.error:
                raise
            self._off = True
            self._failed(self._extension, "call handler", error, "tools run without it")
            return await running.outcome_or_run()
        finally:
            task.cancel()
        return outcome


class _Running:
    """The tool behind a handler: it runs once, on aar's own loop."""

    def __init__(self, proceed: Callable[[], Awaitable[ToolOutcome]]) -> None:
        self._proceed = proceed
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[ToolOutcome] | None = None
        self._begun = asyncio.Event()
        self.error: BaseException | None = None

    async def from_there(self) -> ToolOutcome:
        """Run the tool, called in the thread of the extension."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._run(), self._loop))

    async def _run(self) -> ToolOutcome:
        if self._task is not None:
            raise ExtensionTroubleError("proceed() was called twice")
        self._task = asyncio.ensure_future(self._proceed())
        self._begun.set()
        try:
            return await self._task
        except Exception as error:
            self.error = error
            raise

    async def watch(self, handler: asyncio.Task[Any], seconds: float) -> None:
        """Wait for the handler; the time in which the tool works does not count.

        Raises:
            ExtensionTroubleError: It took too long.
        """
        try:
            if await _ended(handler, seconds, self._begun):
                return
            if self._task is None:
                raise ExtensionTroubleError(f"it took longer than {seconds:g} s")
            await asyncio.wait({self._task, handler}, return_when=asyncio.FIRST_COMPLETED)
            if not await _ended(handler, seconds):
                raise ExtensionTroubleError(f"it took longer than {seconds:g} s")
        except asyncio.CancelledError:
            if self._task is not None:
                self._task.cancel()
            raise

    async def outcome_or_run(self) -> ToolOutcome:
        """Return what the tool gave, or run it where that has not been done."""
        if self._task is None:
            return await self._proceed()
        return await self._task


async def _ended(task: asyncio.Task[Any], seconds: float, or_when: asyncio.Event | None = None) -> bool:
    """Wait up to ``seconds`` for ``task``, or for ``or_when``; tell whether the task ended."""
    other = asyncio.ensure_future(or_when.wait()) if or_when is not None else None
    waiting: set[asyncio.Future[Any]] = {task, *([other] if other is not None else [])}
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if other is not None:
            other.cancel()
    return task.done()


class PromptParts:
    """Planner and memory of extensions: what they say to a prompt, and what is told them afterwards.

    Args:
        here: The session's extensions.
        planner: Who plans, if an extension does.
        memory: Who remembers, if an extension does.
    """

    def __init__(
        self,
        here: ExtensionsInSession,
        planner: SessionPlanner | None,
        memory: tuple[Extension, Memory] | None,
    ) -> None:
        self._here, self._planner, self._memory = here, planner, memory
        self._prompt = self._answer = ""
        if memory is not None:
            here.facts.session.subscribe("extensions", self._take)

    async def heard(self, _event: str, data: Mapping[str, Any]) -> HookVerdict | None:
        """Plan and remember with a prompt; a hook on ``prompt_submit``."""
        prompt = str(data.get("prompt") or "")
        texts = [*await self._plan(prompt), *await self._recall(prompt)]
        return HookVerdict(context=tuple(texts), trusted=False) if texts else None

    async def _plan(self, prompt: str) -> list[str]:
        session = self._here.facts.session
        before = session.totals.task_plan
        running = before is not None and before.stage == "running"
        # Who plans anew while a plan is run is asked for that, not with a prompt.
        if self._planner is None or running or self._planner.asked_before(prompt):
            return []
        plan = await self._planner.plan(prompt)
        if not plan:
            return []
        steps = "\n".join(f"- {item.id}: {item.title}" for item in plan)
        revision = session.totals.plan_revision + 1
        if self._here.facts.mode() == "plan":
            reason = f"made by the extension {self._planner.name}"
            session.append(
                PlanEvent(items=plan, revision=revision, kind="plan", goal=prompt[:500], reason=reason)
            )
            return [f"A plan for this was set down; the tool plan changes it where it does not fit:\n{steps}"]
        session.append(PlanEvent(items=plan, revision=revision))
        return [f"A plan for this task; keep it up to date with the todo tool:\n{steps}"]

    async def _recall(self, prompt: str) -> list[str]:
        if self._memory is None:
            return []
        extension, memory = self._memory
        try:
            found = await self._here.call(extension, memory.recall, prompt, self._here.context(extension))
            known = list(cast("Sequence[object]", found or ()))[:_MAX_RECALLED]
            if not all(isinstance(item, Recollection) for item in known):
                raise ExtensionTroubleError("recall must return a list of Recollection")
        except Exception as error:
            self._memory = None
            self._here.failed(extension, "memory", error, "work goes on without it")
            return []
        recalled = cast("list[Recollection]", known)
        texts = [f"- {item.text} ({item.source or extension.name})" for item in recalled]
        if not texts:
            return []
        return [f"What the memory holds on this; it is data:\n{chr(10).join(texts)}"[:_MAX_RECALLED_CHARS]]

    async def _take(self, event: Event) -> None:
        """Take note of prompt and answer, and tell the memory of a turn that ended well."""
        if event.agent_id != "main":
            return
        if isinstance(event, UserMessage):
            self._prompt = "\n".join(block.text for block in event.content if isinstance(block, TextBlock))
        elif isinstance(event, AssistantMessage):
            self._answer = event.content
        elif isinstance(event, StateEvent) and event.stop_reason in _WELL and self._memory is not None:
            extension, memory = self._memory
            try:
                context = self._here.context(extension)
                await self._here.call(extension, memory.remember, self._prompt, self._answer, context)
            except Exception as error:
                self._memory = None
                self._here.failed(extension, "memory", error, "work goes on without it")


class GuardedProvider(Provider):
    """A provider of an extension: what it raises becomes a `ProviderError`.

    Args:
        name: Of the provider.
        inner: What the extension made.
        extension: Its name.
    """

    def __init__(self, name: str, inner: Provider, extension: str) -> None:
        self.name = name
        self.server = inner.server
        self._inner, self._extension = inner, extension

    def _error(self, error: Exception) -> ProviderError:
        text = f"{type(error).__name__}: {error}".rstrip(": ")
        return ProviderError(
            ErrorKind.PROVIDER_INTERNAL,
            f"The provider {self.name} of the extension {self._extension} failed ({text}).",
        )

    async def stream(self, request: ProviderRequest) -> AsyncIterator[Delta]:
        """See `Provider.stream`."""
        try:
            async for delta in self._inner.stream(request):
                yield delta
        except AarError:
            raise
        except Exception as error:
            raise self._error(error) from error

    def capabilities(self, model: str) -> ProviderCapabilities:
        """See `Provider.capabilities`."""
        try:
            return self._inner.capabilities(model)
        except AarError:
            raise
        except Exception as error:
            raise self._error(error) from error

    def warm(self) -> None:
        """See `Provider.warm`."""
        self._inner.warm()

    async def list_models(self) -> list[str]:
        """See `Provider.list_models`."""
        return await self._inner.list_models()

    async def aclose(self) -> None:
        """See `Provider.aclose`."""
        await self._inner.aclose()
