"""Ollama over its own wire (``POST /api/chat``): only there may a client choose how long the context is."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, cast
from urllib.parse import urlsplit

from aar.protocol.errors import ErrorKind, ProviderError
from aar.providers.base import Delta, ProviderCapabilities, ProviderRequest
from aar.providers.chat_completions.encode import EncodedRequest, RequestEncoder, WireOptions
from aar.providers.http.client import is_loopback
from aar.providers.http.errors import parse_body
from aar.providers.ollama.encode import OllamaEncoder
from aar.providers.ollama.facts import (
    GLANCE_S,
    SHOW_TIMEOUT_S,
    UNKNOWN,
    FactsThread,
    ModelFacts,
    configured_window,
    describe,
    read_facts,
)
from aar.providers.ollama.window import Allotment, ContextWindow
from aar.providers.openai_compatible import BodyReader, Endpoint, OpenAICompatibleProvider

if TYPE_CHECKING:
    from httpx2 import Response

    from aar.config.schema import Config
    from aar.providers.chat_completions.decode import AnswerContext

_MOST_GROWTHS = 8


class OllamaProvider(OpenAICompatibleProvider):
    """Speaks to one Ollama.

    Besides asking, it sees to it that the whole prompt is read: it allots context in steps, has Ollama
    refuse (not cut) what does not fit, allots more where there is more, and else says so.
    """

    chat_path: ClassVar[str] = "/api/chat"
    models_path: ClassVar[str] = "/api/tags"
    optional: ClassVar[tuple[str, ...]] = ("think", "format", "shift", "truncate", "keep_alive")

    def __init__(
        self,
        endpoint: Endpoint,
        by_name: Callable[[str], ProviderCapabilities],
        config: Config | None = None,
    ) -> None:
        """Make the provider; nothing is opened before the first question.

        Args:
            endpoint: The server; a ``/v1`` or ``/api`` at the end of its address is left out.
            by_name: Tells what a model can do by its name, for what the server does not tell.
            config: For the context that the user allots and the dialect that they chose.

        Raises:
            ConfigurationError: The address cannot be used.
        """
        super().__init__(replace(endpoint, base_url=root_of(endpoint.base_url)), by_name)
        self._config = config
        self._threads: dict[str, FactsThread] = {}
        self._facts: dict[str, ModelFacts] = {}
        self._windows: dict[str, ContextWindow] = {}

    def _make_encoder(self, wire: WireOptions) -> RequestEncoder:
        return OllamaEncoder(wire)

    def _make_decoder(self, context: AnswerContext) -> BodyReader:
        from aar.providers.ollama.decode import OllamaBodyDecoder

        return OllamaBodyDecoder(context)

    # What the model can do

    def capabilities(self, model: str) -> ProviderCapabilities:
        """Tell what ``model`` can do; an Ollama of this machine is asked, shortly and in the background."""
        return describe(self._describe(model), self._known(model) or UNKNOWN, self._config, self.name)

    def _known(self, model: str) -> ModelFacts | None:
        if model not in self._facts:
            thread = self._threads.get(model) or self._ask_aside(model)
            facts = thread.wait(GLANCE_S) if thread is not None else None
            if facts is not None:
                self._facts[model] = facts
        return self._facts.get(model)

    def _ask_aside(self, model: str) -> FactsThread | None:
        parts = urlsplit(self._url)
        if parts.scheme != "http" or not parts.hostname or not is_loopback(parts.hostname):
            return None
        thread = FactsThread(parts.hostname, parts.port or 80, model, f"{parts.path}/api/show")
        self._threads[model] = thread
        return thread

    async def _learn_facts(self, model: str) -> ModelFacts:
        """Return what the server tells of ``model``; it is asked once."""
        thread = self._threads.get(model)
        facts = self._facts.get(model) or (thread.facts if thread is not None else None)
        if facts is None:
            facts = await self._show(model)
        if facts is None:
            return UNKNOWN
        self._facts[model] = facts
        return facts

    async def _show(self, model: str) -> ModelFacts | None:
        """Ask for the facts; ``None``: there was no answer, and it is worth asking again."""
        import httpx2

        try:
            client = await self._http.get()
            async with asyncio.timeout(SHOW_TIMEOUT_S):
                response = await client.post(f"{self._url}/api/show", json={"model": model})
        except (httpx2.HTTPError, httpx2.StreamError, OSError, TimeoutError):
            return None  # If it cannot be reached, the question itself will tell.
        return read_facts(parse_body(response.content)) if response.status_code == 200 else UNKNOWN

    # Asking

    async def stream(self, request: ProviderRequest) -> AsyncGenerator[Delta]:
        """Ask, and yield the answer piece by piece; a prompt that was refused as too long gets more room."""
        facts = await self._learn_facts(request.model)
        request, note = _fitting(request, facts)
        if note:
            yield Delta(progress=note)
        window = self._window(request.model, facts)
        for growths in range(_MOST_GROWTHS + 1):
            allotment = window.allot(self._encode(request), request.max_output_tokens)
            begun = False
            try:
                async with aclosing(self._asked(request, window, allotment)) as deltas:
                    async for delta in deltas:
                        begun = begun or delta.progress is None
                        yield delta
                return
            except ProviderError as error:
                overflow = error.error_kind is ErrorKind.CONTEXT_OVERFLOW and not allotment.hopeless
                if begun or not overflow or growths == _MOST_GROWTHS or not window.grow(allotment):
                    raise
            yield Delta(progress=_grown_note(self.server, allotment))

    async def _asked(
        self, request: ProviderRequest, window: ContextWindow, allotment: Allotment
    ) -> AsyncGenerator[Delta]:
        if allotment.hopeless:
            raise _too_long(request.model, allotment)
        if allotment.tight:
            yield Delta(progress=_tight_note(request.model, allotment))
        options = {"num_ctx": allotment.num_ctx, **_options_in(request.extra)}
        sized = replace(request, extra={**request.extra, "options": options})
        async with aclosing(super().stream(sized)) as deltas:
            async for delta in deltas:
                if delta.response is not None and delta.response.usage is not None:
                    told = delta.response.usage.prompt
                    window.learn(allotment, told)
                    if told >= allotment.num_ctx:
                        yield Delta(progress=_cut_note(self.server, allotment))
                yield delta

    def _window(self, model: str, facts: ModelFacts) -> ContextWindow:
        if model not in self._windows:
            fixed = _whole(_options_in(self._endpoint.extra).get("num_ctx"))
            configured = configured_window(self._config, self.name)
            self._windows[model] = ContextWindow(facts, configured, fixed)
        self._windows[model].update(facts)
        return self._windows[model]

    # Errors

    def _adapt(self, model: str, encoded: EncodedRequest, status: int, body: bytes) -> None:
        # "… does not support thinking" is said of the field ``think``.
        super()._adapt(model, encoded, status, re.sub(rb"\bthinking\b", b"think", body))

    def _error(self, response: Response, body: bytes, model: str) -> ProviderError:
        error = super()._error(response, body, model)
        said = str(error).lower()
        if error.error_kind is ErrorKind.UNKNOWN_MODEL:
            text = f"{self.server} does not have the model {model}. Get it with: ollama pull {model}"
            return ProviderError(error.error_kind, text, status=error.status, detail=error.detail)
        if "more system memory" in said or "out of memory" in said:
            text = (
                f"{model} does not fit into the memory of {self.server} with this much context. "
                f"Take a smaller model, or set a smaller context_window under [providers.{self.name}]."
            )
            detail = error.detail
            return ProviderError(ErrorKind.INVALID_REQUEST, text, status=error.status, detail=detail)
        if "does not support tools" in said:
            text = f"{model} was not trained for tool calls. Use another model, or --set model.dialect=text."
            return ProviderError(error.error_kind, text, status=error.status, detail=error.detail)
        return error

    def _failure(self, error: Exception, *, answering: bool) -> ProviderError:
        failure = super()._failure(error, answering=answering)
        if failure.error_kind is ErrorKind.NETWORK and "Nothing answers" in str(failure):
            place = urlsplit(self._url).netloc
            text = f"Ollama is not running at {place}. Start it with: ollama serve, or check base_url."
            return ProviderError(ErrorKind.NETWORK, text, detail=failure.detail)
        return failure


def root_of(base_url: str) -> str:
    """Return the address of the server itself; people give it with the path of one of its wires, too."""
    address = base_url.rstrip("/")
    for path in ("/v1", "/api/chat", "/api"):
        if address.endswith(path):
            return address.removesuffix(path)
    return address


def _fitting(request: ProviderRequest, facts: ModelFacts) -> tuple[ProviderRequest, str | None]:
    """Return the request without what the model is known not to take, and a sentence on it."""
    thinks = facts.abilities is None or "thinking" in facts.abilities
    if request.reasoning is None or thinks:
        return request, None
    note = (
        None
        if request.reasoning in {"off", 0}
        else f"{request.model} cannot think first; reasoning is left out."
    )
    return replace(request, reasoning=None), note


def _options_in(fields: Any) -> dict[str, Any]:
    options: Any = fields.get("options")
    return cast("dict[str, Any]", options) if isinstance(options, dict) else {}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _too_long(model: str, allotment: Allotment) -> ProviderError:
    text = (
        f"The conversation is too long for {model}: about {allotment.estimate} tokens, and it takes "
        f"{allotment.limit}. Compact it first, or raise context_window."
    )
    return ProviderError(ErrorKind.CONTEXT_OVERFLOW, text)


def _grown_note(server: str, allotment: Allotment) -> str:
    return f"The prompt needs more than {allotment.num_ctx} tokens of context; {server} loads it larger."


def _tight_note(model: str, allotment: Allotment) -> str:
    return (
        f"The prompt has up to {allotment.estimate} tokens; {model} takes {allotment.limit} with its answer."
    )


def _cut_note(server: str, allotment: Allotment) -> str:
    return (
        f"{server} had room for {allotment.num_ctx} tokens only and may have cut the prompt. "
        "Compact the conversation, or raise context_window."
    )
