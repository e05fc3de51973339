"""One model request: ask, show the pieces as they come, try again, ask another model, store the answer.

The loop sees one coroutine, `ProviderRunner.request`, whether the provider streams or not, and whatever
the model's dialect is.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from aar.config.schema import ModelConfig
from aar.core.active_model import ActiveModel
from aar.core.answer import Answer, store_answer
from aar.core.attempt import Attempt, PassingNotice, as_delta
from aar.core.cache_watch import CacheWatch
from aar.core.fallback import FallbackChain
from aar.core.retry_rules import retry_delay, with_told_wait
from aar.core.server_guards import PATIENCE_S, Patience, ServerGuards, Sleep
from aar.core.tokens import MessageEstimates, estimate_text, estimate_tools
from aar.protocol.errors import ErrorKind, ProviderError
from aar.protocol.events import ErrorEvent, ModelSwitch, Notice, ProviderMeta, Retry, Setting
from aar.protocol.ports import Emit
from aar.protocol.usage import Price, Usage
from aar.providers.base import ProviderRequest, ProviderResponse, closing_stream

if TYPE_CHECKING:
    from aar.providers.text_tools import Parser

__all__ = ["ActiveModel", "Answer", "PassingNotice", "ProviderRunner", "Remake", "Trace", "error_event"]

Trace = Callable[[str, Callable[[], str]], None]
"""``trace(label, text)``: the text is made only when it is written."""

MakeParser = Callable[[], "Parser"]

Remake = Callable[[ActiveModel], Awaitable[tuple[ProviderRequest, "MakeParser | None"]]]
"""``await remake(active)``: the same request as another model needs it, and its parser."""


class ProviderRunner:
    """Asks the model of one agent: with retries, then those that may go on for it.

    Args:
        active: The model.
        settings: ``[model]``: how often, and whether answers stream.
        clock: Monotonic seconds.
        chance: Uniform numbers in [0, 1), for the jitter of waits.
        sleep: Waits; cancelling it ends the wait.
        trace: Gets each request and answer as text, where ``[log] trace`` names ``llm``.
        guards: Circuit breakers and rate limits, shared by the agents of a process; default: its own.
        fallback: The models that go on when this one finally fails.
    """

    def __init__(
        self,
        active: ActiveModel,
        settings: ModelConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        sleep: Sleep = asyncio.sleep,
        trace: Trace | None = None,
        guards: ServerGuards | None = None,
        fallback: FallbackChain | None = None,
    ) -> None:
        self.active = active
        """The model that is asked now; another than ``home`` after a fallback."""
        self.home = active
        """The model that each prompt begins with."""
        self._prepared_for = active
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._sleep = sleep
        self._trace = trace
        self._guards = guards or ServerGuards(clock, sleep)
        self._fallback = fallback
        self._estimates = MessageEstimates()
        self._watch = CacheWatch(clock)

    # --- which model ---------------------------------------------------------------------------------

    def switch(self, active: ActiveModel, emit: Emit, *, by: str = "user") -> None:
        """Let another model answer from the next request on, also in the middle of a run."""
        before = self.active
        self.active = self.home = active
        if self._fallback is not None:
            self._fallback.restart()
        if active.name != before.name:
            change = {"key": "model", "from": before.name, "to": active.name, "by": by}
            emit.append(Setting.model_validate({**change, "base_url": active.kept_address}))

    def begin_run(self, emit: Emit) -> None:
        """Go back to the first model: a new prompt is asked of it again."""
        if self._fallback is not None:
            self._fallback.restart()
        if self.active is not self.home:
            before, self.active = self.active, self.home
            reason = "A new prompt begins with the first model again."
            emit.append(ModelSwitch(from_model=before.name, to_model=self.home.name, reason=reason))
        self._prepared_for = self.active

    def expect_new_prefix(self) -> None:
        """Take note that the conversation was shortened on purpose: the lost cache is no news."""
        self._watch = CacheWatch(self._clock)

    # --- requests ------------------------------------------------------------------------------------

    async def request(
        self,
        request: ProviderRequest,
        emit: Emit,
        *,
        make_parser: MakeParser | None = None,
        remaining_s: Callable[[], float | None] = lambda: None,
        remake: Remake | None = None,
    ) -> Answer:
        """Ask until there is an answer, store it, and return it.

        Cancelling keeps the text that was shown as a partial message.

        Args:
            request: What to ask.
            emit: Gets the pieces, retries, switches and the answer.
            make_parser: Makes the parser of calls that are written as text.
            remaining_s: Seconds until the run's deadline.
            remake: Makes the request for a model that goes on; default: the same with its name.

        Raises:
            ProviderError: All attempts failed, or the failure cannot pass. ``context_overflow`` comes at
                once, with no error event, so that the caller can shorten the conversation and ask again.
        """
        sent = 0
        while True:
            active = self.active
            if active is not self._prepared_for:
                self._prepared_for = active
                if remake is not None:
                    request, make_parser = await remake(active)
                else:
                    request = replace(request, model=active.model)
            attempt, error, used = await self._ask_model(
                active, request, emit, make_parser, remaining_s, sent
            )
            sent += used
            if isinstance(error, Answer):
                return error
            try:
                goes_on = await self._next_model(active, error, attempt, emit)
            except BaseException:
                attempt.keep_partial()
                raise
            if not goes_on:
                attempt.keep_partial()
                raise error

    async def _ask_model(
        self,
        active: ActiveModel,
        request: ProviderRequest,
        emit: Emit,
        make_parser: MakeParser | None,
        remaining_s: Callable[[], float | None],
        sent: int,
    ) -> tuple[Attempt, Answer | ProviderError, int]:
        """Ask ``active`` until it has answered or finally failed.

        Returns the last attempt, the answer or failure, and how many attempts were made.
        """
        number = 0
        patience = Patience(PATIENCE_S if self._fallback is None or self._fallback.exhausted else 0.0)
        if active.pricing is not None:
            active.pricing.start()
        while True:
            number += 1
            attempt = Attempt(emit, make_parser, self._clock())
            self._note(f"request {active.name} attempt {number}", partial(_traced_request, request))
            try:
                response = await self._guarded(active, request, attempt, remaining_s, patience)
                price = await active.price()
            except ProviderError as error:
                delay = self._delay(error, number, remaining_s(), attempt)
                if delay is None:
                    return attempt, with_told_wait(error), number
                await self._wait(error, number, delay, attempt)
            except BaseException:  # a cancel, or a defect: what was shown is kept in any case
                attempt.keep_partial()
                raise
            else:
                self._note(f"answer {active.name}", partial(repr, response))
                answer = self._store(active, request, response, attempt, sent + number, price)
                return attempt, answer, number

    def _note(self, label: str, text: Callable[[], str]) -> None:
        if self._trace is not None:
            self._trace(label, text)

    async def _guarded(
        self,
        active: ActiveModel,
        request: ProviderRequest,
        attempt: Attempt,
        remaining_s: Callable[[], float | None],
        patience: Patience,
    ) -> ProviderResponse:
        """Ask once, when the server may be asked."""
        admission = await self._guards.admit(
            active,
            attempt.emit,
            tokens=self._prompt_tokens(request) if self._guards.counts_tokens(active) else 0,
            remaining_s=remaining_s,
            patience=patience,
        )
        attempt.start = self._clock()
        try:
            response = await self._ask(active, request, attempt)
        except BaseException as error:
            admission.done(error)
            raise
        admission.done(None, response.usage)
        return response

    async def _ask(self, active: ActiveModel, request: ProviderRequest, attempt: Attempt) -> ProviderResponse:
        provider = active.provider
        if not self._settings.stream:
            response = await provider.complete(request)
            for place, block in enumerate(response.blocks):
                attempt.take(as_delta(block, place), self._clock)
            return response
        async with closing_stream(provider.stream(request)) as deltas:
            async for delta in deltas:
                attempt.take(delta, self._clock)
                if delta.response is not None:
                    return delta.response
        raise ProviderError(
            ErrorKind.INCOMPLETE_STREAM,
            f"The answer of {active.name} ended without its end mark; nothing of it was run.",
        )

    def _delay(
        self, error: ProviderError, number: int, remaining_s: float | None, attempt: Attempt
    ) -> float | None:
        """Return the seconds to wait before the next attempt, or ``None`` when there is none."""
        if attempt.showed_call:
            return None
        return retry_delay(
            error, number, self._settings.retries, remaining_s=remaining_s, chance=self._chance
        )

    async def _wait(self, error: ProviderError, number: int, delay: float, attempt: Attempt) -> None:
        attempt.close()
        attempt.emit.append(
            Retry(
                attempt=number,
                delay_s=round(delay, 3),
                error_kind=error.error_kind,
                message=str(error),
                discard=attempt.published,
            )
        )
        await self._sleep(delay)

    async def _next_model(
        self, failed: ActiveModel, error: ProviderError, attempt: Attempt, emit: Emit
    ) -> bool:
        """Let the next model of the chain go on; ``False``: there is none, or none that may."""
        if self.active is failed:
            if self._fallback is None or attempt.showed_call:
                return False
            fallen = await self._fallback.next(self.home, failed, error, emit)
            if fallen is None:
                return False
            self.active = fallen
        attempt.close()
        emit.append(
            ModelSwitch(
                from_model=failed.name,
                to_model=self.active.name,
                reason=str(error),
                discard=attempt.published,
            )
        )
        return True

    # --- answers -------------------------------------------------------------------------------------

    def _store(
        self,
        active: ActiveModel,
        request: ProviderRequest,
        response: ProviderResponse,
        attempt: Attempt,
        attempts: int,
        price: Price | None,
    ) -> Answer:
        usage = response.usage or self._estimated(request, response)
        meta = ProviderMeta(
            provider=active.provider.name,
            model=response.model or active.model,
            usage=usage,
            cost_usd=price.cost(usage) if price is not None else None,
            duration_ms=round((self._clock() - attempt.start) * 1000, 3),
            first_token_ms=attempt.first_token_ms,
            stop_reason_raw=response.stop_raw,
            attempts=attempts,
            request_id=response.request_id,
            cache_saved_usd=price.cache_savings(usage) if price is not None else None,
        )
        answer = store_answer(response, attempt, meta)
        # A model of the files dialect is asked afresh on purpose; nothing is lost there by mistake.
        if active.capabilities.dialect != "files":
            note = self._watch.look(active.name, request, usage)
            if note is not None:
                attempt.emit.append(Notice(message=note, code="cache_broken"))
        return answer

    def _prompt_tokens(self, request: ProviderRequest) -> int:
        messages = estimate_text(request.system) + self._estimates.total(request.messages)
        return messages + estimate_tools(request.tools)

    def _estimated(self, request: ProviderRequest, response: ProviderResponse) -> Usage:
        answer = estimate_text(response.text) + estimate_text(response.reasoning)
        answer += sum(estimate_text(str(call.arguments)) for call in response.tool_uses)
        return Usage(input=self._prompt_tokens(request), output=answer, estimated=True)


def _traced_request(request: ProviderRequest) -> str:
    """Return a request for the diagnostics log: its last message in full, of the others their number."""
    last = request.messages[-1].model_dump_json() if request.messages else ""
    tools = ", ".join(tool.name for tool in request.tools)
    return f"{len(request.messages)} messages, tools [{tools}], last: {last}"


def error_event(error: ProviderError) -> ErrorEvent:
    """Return the event that records a request which finally failed."""
    return ErrorEvent(
        kind=error.error_kind,
        stage="context" if error.error_kind is ErrorKind.CONTEXT_OVERFLOW else "model",
        message=str(error),
        retryable=error.retryable,
        detail=error.detail,
    )
