"""One model request: ask, show the pieces as they come, try again, store the answer.

The loop sees one coroutine, `ProviderRunner.request`, whether the provider streams or not, and whatever
the model's dialect is.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from aar.config.schema import ModelConfig
from aar.core.tokens import MessageEstimates, estimate_text, estimate_tools
from aar.protocol.errors import ErrorKind, ProviderError
from aar.protocol.events import (
    AssistantMessage,
    ErrorEvent,
    Event,
    Notice,
    ProviderMeta,
    Reasoning,
    Retry,
    StreamChunk,
    ToolCall,
)
from aar.protocol.ids import new_id
from aar.protocol.messages import ReasoningBlock, TextBlock, ToolUseBlock
from aar.protocol.ports import Emit
from aar.protocol.usage import Usage
from aar.providers.base import (
    Delta,
    Provider,
    ProviderCapabilities,
    ProviderRequest,
    ProviderResponse,
)

if TYPE_CHECKING:
    from aar.providers.text_tools import Parser

_MAX_DELAY_S = 60.0
_MAX_TOLD_DELAY_S = 900.0
"""Longer waits that a server asks for are not waited for: nobody sits before a screen that long."""


class PassingNotice(Notice, frozen=True):
    """A notice for the moment, such as how far a model is loaded: shown and forgotten."""

    stored: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class ActiveModel:
    """A model that can be asked.

    Attributes:
        name: ``provider/model``.
        provider: Who speaks to the server.
        model: The name on the wire.
        capabilities: What it can do.
    """

    name: str
    provider: Provider
    model: str
    capabilities: ProviderCapabilities


@dataclass(frozen=True, slots=True)
class Answer:
    """A stored answer.

    Attributes:
        text: Prose of the answer.
        calls: Tool calls as they were stored.
        cut: Whether it was cut at the output limit.
        cut_call: Whether it was cut in or right after its last tool call, which then may not be whole.
        refused: Whether the model or a filter declined.
        problem: What was wrong with a tool call written as text.
        usage: Tokens; estimated when the server told none.
        cost_usd: ``None`` when the price is not known.
    """

    text: str
    calls: tuple[ToolCall, ...]
    cut: bool
    cut_call: bool
    refused: bool
    problem: str | None
    usage: Usage
    cost_usd: float | None


@dataclass(slots=True)
class _Attempt:
    """What was shown of one attempt."""

    emit: Emit
    make_parser: Callable[[], Parser] | None
    start: float
    shown: list[str] = field(default_factory=list[str])
    thought: list[str] = field(default_factory=list[str])
    published: bool = False
    first_token: float | None = None
    closed: bool = False
    _parser: Parser | None = None

    @property
    def parser(self) -> Parser | None:
        """The parser of this answer; made with its first text, when the request is on its way."""
        if self._parser is None and self.make_parser is not None:
            self._parser = self.make_parser()
        return self._parser

    def take(self, delta: Delta, clock: Callable[[], float]) -> None:
        """Show one piece."""
        if delta.progress is not None:
            self.emit.publish(PassingNotice(message=delta.progress, code="provider_progress"))
            return
        if self.first_token is None and delta.response is None:
            self.first_token = clock()
        parser = self.parser if delta.text else None
        prose = parser.feed(delta.text) if parser is not None else delta.text
        fragment = _fragment(delta)
        if prose or delta.reasoning or fragment is not None:
            self.show(prose, delta.reasoning, fragment)

    def show(self, text: str, reasoning: str = "", fragment: dict[str, object] | None = None) -> None:
        """Show a piece, and remember it for the case that the answer is cut."""
        self.published = True
        if text:
            self.shown.append(text)
        if reasoning:
            self.thought.append(reasoning)
        chunk = StreamChunk(text=text, reasoning_text=reasoning, tool_call_fragment=fragment)
        self.emit.publish(chunk)

    def close(self) -> None:
        """Show the end of the stream, exactly once."""
        if not self.closed:
            self.closed = True
            self.emit.publish(StreamChunk(finished=True))

    def keep_partial(self) -> None:
        """Store what was said before the attempt was cut, except for calls."""
        if self.closed:
            return
        if self._parser is not None:
            parsed = self._parser.finish(cut=True)
            if parsed.rest and parsed.problem is None:
                self.show(parsed.rest)
        self.close()
        text, thought = "".join(self.shown), "".join(self.thought)
        events: list[Event] = [Reasoning(content=thought)] if thought else []
        if text:
            events.append(AssistantMessage(content=text, partial=True))
        self.emit.append(*events)


def _fragment(delta: Delta) -> dict[str, object] | None:
    if delta.tool_index is None:
        return None
    return {"index": delta.tool_index, "name": delta.tool_name, "arguments": delta.tool_arguments}


Trace = Callable[[str, Callable[[], str]], None]
"""``trace(label, text)``: the text is made only when it is written."""


class ProviderRunner:
    """Asks one model, with retries.

    Args:
        active: The model.
        settings: ``[model]``: how often, and whether answers stream.
        clock: Monotonic seconds.
        chance: Uniform numbers in [0, 1), for the jitter of waits.
        trace: Gets each request and answer as text, where ``[log] trace`` names ``llm``.
    """

    def __init__(
        self,
        active: ActiveModel,
        settings: ModelConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        trace: Trace | None = None,
    ) -> None:
        self.active = active
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._trace = trace
        self._estimates = MessageEstimates()

    async def request(
        self,
        request: ProviderRequest,
        emit: Emit,
        *,
        make_parser: Callable[[], Parser] | None = None,
        remaining_s: Callable[[], float | None] = lambda: None,
    ) -> Answer:
        """Ask until there is an answer, store it, and return it.

        Cancelling keeps the text that was shown as a partial message.

        Raises:
            ProviderError: All attempts failed, or the failure cannot pass.
        """
        attempt = 0
        while True:
            attempt += 1
            state = _Attempt(emit, make_parser, self._clock())
            if self._trace is not None:
                self._trace(
                    f"request {self.active.name} attempt {attempt}", partial(_traced_request, request)
                )
            try:
                response = await self._ask(request, state)
            except ProviderError as error:
                delay = self._delay(error, attempt, remaining_s())
                if delay is None:
                    state.keep_partial()
                    raise
                await self._wait(error, attempt, delay, state)
            except BaseException:  # a cancel, or a defect: what was shown is kept in any case
                state.keep_partial()
                raise
            else:
                if self._trace is not None:
                    self._trace(f"answer {self.active.name}", partial(repr, response))
                return self._store(request, response, state, attempt)

    async def _ask(self, request: ProviderRequest, state: _Attempt) -> ProviderResponse:
        provider = self.active.provider
        if not self._settings.stream:
            response = await provider.complete(request)
            for place, block in enumerate(response.blocks):
                state.take(_as_delta(block, place), self._clock)
            return response
        stream = provider.stream(request)
        try:
            async for delta in stream:
                state.take(delta, self._clock)
                if delta.response is not None:
                    return delta.response
        finally:
            # A generator that is left early must give its connection back now, not when it is collected.
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
        raise ProviderError(
            ErrorKind.INCOMPLETE_STREAM,
            f"The answer of {self.active.name} ended without its end mark; nothing of it was run.",
        )

    def _delay(self, error: ProviderError, attempt: int, remaining: float | None) -> float | None:
        """Return the seconds to wait before the next attempt, or ``None`` when there is none."""
        if not error.retryable or attempt >= self._settings.retries:
            return None
        delay = error.retry_after_s
        if delay is not None and delay > _MAX_TOLD_DELAY_S:
            return None
        if delay is None:
            delay = self._chance() * min(2.0 ** (attempt - 1), _MAX_DELAY_S)
        return None if remaining is not None and delay >= remaining else delay

    async def _wait(self, error: ProviderError, attempt: int, delay: float, state: _Attempt) -> None:
        state.close()
        state.emit.append(
            Retry(
                attempt=attempt,
                delay_s=round(delay, 3),
                error_kind=error.error_kind,
                message=str(error),
                discard=state.published,
            )
        )
        await asyncio.sleep(delay)

    def _store(
        self, request: ProviderRequest, response: ProviderResponse, state: _Attempt, attempts: int
    ) -> Answer:
        blocks, problem = _parsed(response, state)
        state.close()
        usage = response.usage or self._estimated(request, response)
        price = self.active.capabilities.price
        cost = price.cost(usage) if price is not None else None
        refused = response.refusal or response.stop == "refusal"
        events = [event for block in blocks if (event := _event(block, refused=refused)) is not None]
        if refused and not any(isinstance(event, AssistantMessage) for event in events):
            events.append(AssistantMessage(content="", refusal=True))
        now = self._clock()
        events.append(
            ProviderMeta(
                provider=self.active.provider.name,
                model=response.model or self.active.model,
                usage=usage,
                cost_usd=cost,
                duration_ms=round((now - state.start) * 1000, 3),
                first_token_ms=_milliseconds(state),
                stop_reason_raw=response.stop_raw,
                attempts=attempts,
                request_id=response.request_id,
            )
        )
        stored = state.emit.append(*events)
        return Answer(
            text="".join(block.text for block in blocks if isinstance(block, TextBlock)),
            calls=tuple(event for event in stored if isinstance(event, ToolCall)),
            cut=response.stop == "max_tokens",
            cut_call=_ends_in_cut_call(response),
            refused=refused,
            problem=problem,
            usage=usage,
            cost_usd=cost,
        )

    def _estimated(self, request: ProviderRequest, response: ProviderResponse) -> Usage:
        prompt = estimate_text(request.system) + self._estimates.total(request.messages)
        answer = estimate_text(response.text) + estimate_text(response.reasoning)
        answer += sum(estimate_text(str(call.arguments)) for call in response.tool_uses)
        return Usage(input=prompt + estimate_tools(request.tools), output=answer, estimated=True)


def _ends_in_cut_call(response: ProviderResponse) -> bool:
    """Tell whether the last call may be incomplete, also where a server has closed its JSON."""
    return response.stop == "max_tokens" and bool(response.blocks) and response.blocks[-1].type == "tool_use"


def _milliseconds(state: _Attempt) -> float | None:
    return None if state.first_token is None else round((state.first_token - state.start) * 1000, 3)


def _traced_request(request: ProviderRequest) -> str:
    """Return a request for the diagnostics log: its last message in full, of the others their number."""
    last = request.messages[-1].model_dump_json() if request.messages else ""
    tools = ", ".join(tool.name for tool in request.tools)
    return f"{len(request.messages)} messages, tools [{tools}], last: {last}"


def _as_delta(block: TextBlock | ReasoningBlock | ToolUseBlock, place: int) -> Delta:
    match block:
        case TextBlock():
            return Delta(text=block.text)
        case ReasoningBlock():
            return Delta(reasoning=block.text)
        case ToolUseBlock():
            arguments = json.dumps(block.arguments) if block.raw_arguments is None else block.raw_arguments
            return Delta(tool_index=place, tool_name=block.name, tool_arguments=arguments)


def _parsed(
    response: ProviderResponse, state: _Attempt
) -> tuple[list[TextBlock | ReasoningBlock | ToolUseBlock], str | None]:
    """Return the answer's blocks, with tool calls that were written as text taken out of the text."""
    parser = state.parser
    if parser is None:
        return _distinct(response.blocks), None
    parsed = parser.finish(cut=response.stop == "max_tokens", native_calls=bool(response.tool_uses))
    if parsed.rest:
        state.show(parsed.rest)
    if response.tool_uses:
        return _distinct(response.blocks), None
    blocks: list[TextBlock | ReasoningBlock | ToolUseBlock] = [
        block for block in response.blocks if isinstance(block, ReasoningBlock)
    ]
    if parsed.prose.strip():
        blocks.append(TextBlock(text=parsed.prose))
    return [*blocks, *parsed.calls], parsed.problem


def _distinct(
    blocks: Sequence[TextBlock | ReasoningBlock | ToolUseBlock],
) -> list[TextBlock | ReasoningBlock | ToolUseBlock]:
    """Return ``blocks`` with a new id for each call that has none, or that of another: results go by id."""
    seen: set[str] = set()
    distinct: list[TextBlock | ReasoningBlock | ToolUseBlock] = []
    for block in blocks:
        if isinstance(block, ToolUseBlock):
            if not block.call_id or block.call_id in seen:
                block = block.model_copy(update={"call_id": f"call_{new_id()}"})
            seen.add(block.call_id)
        distinct.append(block)
    return distinct


def _event(block: TextBlock | ReasoningBlock | ToolUseBlock, *, refused: bool) -> Event | None:
    match block:
        case TextBlock():
            if not block.text and not refused:
                return None
            return AssistantMessage(content=block.text, refusal=refused)
        case ReasoningBlock():
            return Reasoning(
                content=block.text, signature=block.signature, data=block.data, redacted=block.redacted
            )
        case ToolUseBlock():
            return ToolCall(
                call_id=block.call_id,
                tool_name=block.name,
                arguments=block.arguments,
                raw_arguments=block.raw_arguments,
            )


def error_event(error: ProviderError) -> ErrorEvent:
    """Return the event that records a request which finally failed."""
    return ErrorEvent(
        kind=error.error_kind,
        stage="context" if error.error_kind is ErrorKind.CONTEXT_OVERFLOW else "model",
        message=str(error),
        retryable=error.retryable,
        detail=error.detail,
    )
