"""OpenAI and Azure through the vendor's SDK: the Responses API, or chat completions (``[model] api``)."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from aar.protocol.errors import ErrorKind
from aar.providers.base import Delta, ProviderCapabilities, ProviderRequest, closing_stream
from aar.providers.chat_completions.encode import EncodedRequest, RequestEncoder, WireOptions
from aar.providers.http.errors import error_kind_of, parse_body, read_error
from aar.providers.http.provider import Adapted, model_names
from aar.providers.http.rejected_parameters import RejectedParameters
from aar.providers.openai.client import OpenAIClient, Refused, warm
from aar.providers.openai.encode import ResponsesEncoder
from aar.providers.openai_compatible import (
    OPTIONAL,
    OTHER_NAMES,
    BodyReader,
    Endpoint,
    OpenAICompatibleProvider,
)

if TYPE_CHECKING:
    from httpx2 import Response

    from aar.providers.chat_completions.decode import AnswerContext

Api = Literal["auto", "responses", "chat"]
"""``auto`` is the Responses API, and chat completions at servers of others that have none."""

_OPTIONAL = (
    "include",
    "prompt_cache_key",
    "reasoning.summary",
    "reasoning.effort",
    "reasoning",
    "text.format",
    "text",
    "temperature",
    "max_output_tokens",
    "stream",
)
_FOREIGN_ITEMS = re.compile(
    r"invalid_encrypted_content|encrypted content .*could not|item (?:with id )?'rs_"
    r"|reasoning (?:input )?items"
)
"""How the server says that it cannot use what it (or another model) thought earlier."""


class OpenAIProvider(OpenAICompatibleProvider):
    """Asks OpenAI, Azure, or a server that speaks the same wire."""

    max_refusals = 5

    def __init__(
        self,
        endpoint: Endpoint,
        describe: Callable[[str], ProviderCapabilities],
        *,
        api: Api = "auto",
        own_host: bool = True,
    ) -> None:
        """Make the provider; neither is the SDK imported nor anything opened before the first request.

        Args:
            endpoint: The server; ``api_version`` in its ``extra`` is Azure's and no part of bodies.
            describe: Tells what a model can do.
            api: Which interface to use.
            own_host: Whether the host is the vendor's own.

        Raises:
            ConfigurationError: The address cannot be used.
        """
        extra = dict(endpoint.extra)
        version = extra.pop("api_version", None)
        endpoint = replace(endpoint, extra=extra)
        super().__init__(endpoint, describe)
        wire = endpoint.wire or WireOptions(self._server)
        self._wire = replace(wire, top_effort="max")
        self._encoder.options = self._wire
        self._api: Api = api
        self._own_host = own_host
        self._client = OpenAIClient(
            endpoint, api_version=str(version) if version else None, own_host=own_host
        )
        self._rejected = RejectedParameters(
            self.server,
            (*_OPTIONAL, *(name for name in OPTIONAL if name not in _OPTIONAL)),
            other_names=OTHER_NAMES,
            levels=("reasoning.effort", "reasoning_effort"),
            instead={"stream": False},
        )
        self._encoder.adapt = self._rejected.apply
        self._responses: dict[tuple[bool, bool], ResponsesEncoder] = {}
        self._without_items: set[str] = set()
        self._told_stop = False

    def warm(self) -> None:
        """Begin to import the SDK in the background."""
        warm()

    async def stream(self, request: ProviderRequest) -> AsyncGenerator[Delta]:
        """Ask, and yield the answer piece by piece."""
        if request.stop and self._api != "chat" and not self._told_stop:
            self._told_stop = True
            yield Delta(
                progress='The Responses API has no stop sequences; for them set [model] api = "chat".'
            )
        async with closing_stream(super().stream(request)) as deltas:
            async for delta in deltas:
                yield delta

    async def _attempt(self, request: ProviderRequest, *, may_adapt: bool) -> AsyncGenerator[Delta]:
        api, encoded = self._api, self._encode(request)
        path = "/chat/completions" if api == "chat" else "/responses"
        with self._told() as progress:
            try:
                response = await self._client.post(path, encoded.body, request.model)
            except Refused as refused:
                if may_adapt:
                    self._adapt_to(refused.response, request.model, encoded, api)
                raise self._error(refused.response, refused.response.content, request.model) from None
            try:
                progress.answering = True
                async for delta in self._answer(response, request.model, encoded):
                    yield delta
            finally:
                await response.aclose()

    def _encode(self, request: ProviderRequest) -> EncodedRequest:
        encoder = self._encoder if self._api == "chat" else self._responses_encoder(request.model)
        return encoder.encode(request, stream=self._endpoint.stream, extra=self._endpoint.extra)

    def _responses_encoder(self, model: str) -> RequestEncoder:
        kind = (self._describe(model).reasoning, model not in self._without_items)
        encoder = self._responses.get(kind)
        if encoder is None:
            encoder = self._responses[kind] = ResponsesEncoder(
                self._wire, thinks=kind[0], returns_items=kind[1]
            )
            encoder.adapt = self._rejected.apply
        return encoder

    def _make_decoder(self, context: AnswerContext) -> BodyReader:
        if self._api == "chat":
            return super()._make_decoder(context)
        from aar.providers.chat_completions.body import BodyDecoder
        from aar.providers.openai.decode import ResponsesDecoder

        return BodyDecoder(context, ResponsesDecoder(context))

    def _adapt_to(self, response: Response, model: str, encoded: EncodedRequest, api: Api) -> None:
        """Take note of what the server cannot do, as far as the request makes sense without it.

        Args:
            response: The refusal.
            model: Name of the model.
            encoded: What was sent.
            api: How it was sent; another request may have changed that in the meantime.

        Raises:
            Adapted: It does.
        """
        status, body = response.status_code, response.content
        info = read_error(parse_body(body))
        foreign = api != "chat" and status in {400, 404} and _FOREIGN_ITEMS.search(info.words)
        if foreign and model not in self._without_items:
            self._without_items.add(model)
            raise Adapted(f"{self.server} cannot use earlier thinking with {model}; it is left out.")
        self._adapt(model, encoded, status, body)
        missing = status in {404, 405} and error_kind_of(status, info) is ErrorKind.INVALID_REQUEST
        if api == "auto" and not self._own_host and missing:
            self._api = "chat"
            raise Adapted(f"{self.server} has no Responses API; chat completions are used.")

    async def list_models(self) -> list[str]:
        """Ask the server for its models; empty when it cannot tell.

        Raises:
            ProviderError: It cannot be reached, or does not accept the key.
        """
        with self._told():
            try:
                return model_names(parse_body(await self._client.models()))
            except Refused as refused:
                if refused.response.status_code in {401, 403}:
                    raise self._error(refused.response, refused.response.content, "") from None
        return []

    async def aclose(self) -> None:
        """Close all connections and forget encoded messages."""
        for encoder in self._responses.values():
            encoder.clear()
        await self._client.aclose()
        await super().aclose()


def is_own_host(host: str, hosts: tuple[str, ...]) -> bool:
    """Tell whether ``host`` is one of ``hosts`` or below one."""
    return any(host == own or host.endswith(f".{own}") for own in hosts)
