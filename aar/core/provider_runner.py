"""One model request: ask, show the pieces as they come, try again, store the answer.

The loop sees one coroutine, `ProviderRunner.request`, whether the provider streams or not, and whatever
the model's dialect is.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from aar.config.schema import ModelConfig
from aar.core.tokens import estimate_messages, estimate_text, estimate_tools
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
from aar.providers.text_tools import Parser

_MAX_DELAY_S = 60.0


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
        refused: Whether the model or a filter declined.
        problem: What was wrong with a tool call written as text.
        usage: Tokens; estimated when the server told none.
        cost_usd: ``None`` when the price is not known.
    """

    text: str
    calls: tuple[ToolCall, ...]
    cut: bool
    refused: bool
    problem: str | None
    usage: Usage
    cost_usd: float | None


@dataclass(slots=True)
class _Attempt:
    """What was shown of one attempt."""

    emit: Emit
    parser: Parser | None
    start: float
    text: str = ""
    shown: list[str] = field(default_factory=list[str])
    reasoning: bool = False
    first_token: float | None = None
    closed: bool = False

    def take(self, delta: Delta, clock: Callable[[], float]) -> None:
        """Show one piece."""
        if delta.progress is not None:
            self.emit.publish(Notice(message=delta.progress, code="provider_progress"))
            return
        if self.first_token is None and delta.response is None:
            self.first_token = clock()
        prose = self.parser.feed(delta.text) if self.parser is not None and delta.text else delta.text
        fragment = _fragment(delta)
        if prose or delta.reasoning or fragment is not None:
            if prose:
                self.shown.append(prose)
            chunk = StreamChunk(text=prose, reasoning_text=delta.reasoning, tool_call_fragment=fragment)
            self.emit.publish(chunk)

    def close(self) -> None:
        """Show the end of the stream, exactly once."""
        if not self.closed:
            self.closed = True
            self.emit.publish(StreamChunk(finished=True))

    def keep_partial(self) -> None:
        """Store the text that was shown before the attempt was cut."""
        self.close()
        text = "".join(self.shown)
        if text:
            self.emit.append(AssistantMessage(content=text, partial=True))


def _fragment(delta: Delta) -> dict[str, object] | None:
    if delta.tool_index is None:
        return None
    return {"index": delta.tool_index, "name": delta.tool_name, "arguments": delta.tool_arguments}


class ProviderRunner:
    """Asks one model, with retries.

    Args:
        active: The model.
        settings: ``[model]``: how often, and whether answers stream.
        clock: Monotonic seconds.
        chance: Uniform numbers in [0, 1), for the jitter of waits.
    """

    def __init__(
        self,
        active: ActiveModel,
        settings: ModelConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.active = active
        self._settings = settings
        self._clock = clock
        self._chance = chance

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
            state = _Attempt(emit, make_parser() if make_parser else None, self._clock())
            try:
                response = await self._ask(request, state)
            except ProviderError as error:
                delay = self._delay(error, attempt, remaining_s())
                if delay is None:
                    state.keep_partial()
                    raise
                await self._wait(error, attempt, delay, state)
            except asyncio.CancelledError:
                state.keep_partial()
                raise
            else:
                return self._store(request, response, state, attempt)

    async def _ask(self, request: ProviderRequest, state: _Attempt) -> ProviderResponse:
        provider = self.active.provider
        if not self._settings.stream:
            response = await provider.complete(request)
            for block in response.blocks:
                state.take(_as_delta(block), self._clock)
            return response
        async for delta in provider.stream(request):
            state.take(delta, self._clock)
            if delta.response is not None:
                return delta.response
        raise ProviderError(
            ErrorKind.INCOMPLETE_STREAM,
            f"The answer of {self.active.name} ended without its end mark; nothing of it was run.",
        )

    def _delay(self, error: ProviderError, attempt: int, remaining: float | None) -> float | None:
        """Return the seconds to wait before the next attempt, or ``None`` when there is none."""
        if not error.retryable or attempt >= self._settings.retries:
            return None
        delay = error.retry_after_s
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
                discard=bool(state.shown),
            )
        )
        await asyncio.sleep(delay)

    def _store(
        self, request: ProviderRequest, response: ProviderResponse, state: _Attempt, attempts: int
    ) -> Answer:
        blocks, problem = _parsed(response, state)
        state.close()
        usage = response.usage or _estimated(request, response)
        price = self.active.capabilities.price
        cost = price.cost(usage) if price is not None else None
        events = [event for block in blocks if (event := _event(block, response)) is not None]
        if response.refusal and not any(isinstance(event, AssistantMessage) for event in events):
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
            refused=response.refusal or response.stop == "refusal",
            problem=problem,
            usage=usage,
            cost_usd=cost,
        )


def _milliseconds(state: _Attempt) -> float | None:
    return None if state.first_token is None else round((state.first_token - state.start) * 1000, 3)


def _as_delta(block: TextBlock | ReasoningBlock | ToolUseBlock) -> Delta:
    match block:
        case TextBlock():
            return Delta(text=block.text)
        case ReasoningBlock():
            return Delta(reasoning=block.text)
        case ToolUseBlock():
            return Delta(tool_index=0, tool_name=block.name)


def _parsed(
    response: ProviderResponse, state: _Attempt
) -> tuple[list[TextBlock | ReasoningBlock | ToolUseBlock], str | None]:
    """Return the answer's blocks, with tool calls that were written as text taken out of the text."""
    if state.parser is None:
        return list(response.blocks), None
    parsed = state.parser.finish(cut=response.stop == "max_tokens", native_calls=bool(response.tool_uses))
    if parsed.rest:
        state.shown.append(parsed.rest)
        state.emit.publish(StreamChunk(text=parsed.rest))
    if response.tool_uses:
        return list(response.blocks), None
    blocks: list[TextBlock | ReasoningBlock | ToolUseBlock] = [
        block for block in response.blocks if isinstance(block, ReasoningBlock)
    ]
    if parsed.prose.strip():
        blocks.append(TextBlock(text=parsed.prose))
    return [*blocks, *parsed.calls], parsed.problem


def _event(block: TextBlock | ReasoningBlock | ToolUseBlock, response: ProviderResponse) -> Event | None:
    match block:
        case TextBlock():
            if not block.text and not response.refusal:
                return None
            return AssistantMessage(content=block.text, refusal=response.refusal)
        case ReasoningBlock():
            return Reasoning(
                content=block.text, signature=block.signature, data=block.data, redacted=block.redacted
            )
        case ToolUseBlock():
            return ToolCall(
                id=new_id(),
                call_id=block.call_id,
                tool_name=block.name,
                arguments=block.arguments,
                raw_arguments=block.raw_arguments,
            )


def _estimated(request: ProviderRequest, response: ProviderResponse) -> Usage:
    prompt = estimate_text(request.system) + estimate_messages(request.messages)
    answer = estimate_text(response.text) + estimate_text(response.reasoning)
    answer += sum(estimate_text(str(call.arguments)) for call in response.tool_uses)
    return Usage(input=prompt + estimate_tools(request.tools), output=answer, estimated=True)


def error_event(error: ProviderError) -> ErrorEvent:
    """Return the event that records a request which finally failed."""
    return ErrorEvent(
        kind=error.error_kind,
        stage="context" if error.error_kind is ErrorKind.CONTEXT_OVERFLOW else "model",
        message=str(error),
        retryable=error.retryable,
        detail=error.detail,
    )
