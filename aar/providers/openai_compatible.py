"""Any server that speaks chat completions (``POST {base_url}/chat/completions``), over httpx2."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pydantic import SecretStr

from aar.protocol.errors import ProviderError
from aar.protocol.late import late_pattern
from aar.providers.base import Delta, ProviderCapabilities, ProviderRequest
from aar.providers.chat_completions.encode import EncodedRequest, RequestEncoder, WireOptions
from aar.providers.http.client import STALL_S, HttpClient, server_of
from aar.providers.http.errors import parse_body, server_error
from aar.providers.http.provider import (
    Adapted,
    HttpProvider,
    drain,
    json_headers,
    lower_names,
    model_names,
    moved_elsewhere,
    read_error_body,
    secret_texts,
)
from aar.providers.http.rejected_parameters import RejectedParameters

if TYPE_CHECKING:
    from httpx2 import Response

    from aar.providers.chat_completions.decode import AnswerContext

OPTIONAL = (
    "stream_options",
    "prompt_cache_key",
    "cache_control",
    "reasoning_effort",
    "reasoning",
    "thinking",
    "chat_template_kwargs",
    "response_format",
    "temperature",
    "max_completion_tokens",
    "max_tokens",
)
"""Fields without which a request still makes sense, in the order in which they are given up."""

OTHER_NAMES = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
"""Fields that some servers call otherwise."""
_SHAPES: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        late_pattern(
            r"reasoning_content\W.{0,60}(?:missing|must be passed)|missing.{0,10}reasoning_content", re.I
        ),
        "fill_reasoning",
        "wants reasoning_content with each tool call",
    ),
    (
        late_pattern(r"unexpected role 'user' after role 'tool'", re.I),
        "bridge_tools",
        "wants an answer between a tool's result and the user",
    ),
)
"""What servers say of messages that are not of the shape that they want, and which option makes it so: models
of the same makers are served by many, so the name of the server does not tell."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How one server is reached.

    Attributes:
        name: Name of the provider, as in ``name/model``.
        base_url: Address up to, and without, ``/chat/completions``.
        key: Sent as a bearer token; ``None``: the request goes out without one.
        headers: More headers; they win over those that aar makes.
        timeout: Seconds without a byte after which a request has failed.
        idle_timeout: The same once an answer has begun.
        extra: Merged into the body of every request.
        stream: Whether answers come piece by piece.
        wire: The server's dialect; ``None``: the plain one.
    """

    name: str
    base_url: str
    key: SecretStr | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout: float = 600
    idle_timeout: float = STALL_S
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    stream: bool = True
    wire: WireOptions | None = None


class BodyReader(Protocol):
    """Reads the body of a successful response; `BodyDecoder` is one."""

    @property
    def done(self) -> bool:
        """Whether the end mark was seen."""
        ...

    def feed(self, piece: bytes) -> list[Delta]:
        """Take the next bytes and return what they add."""
        ...

    def finish(self) -> list[Delta]:
        """Return the last deltas; the very last one carries the response."""
        ...


class OpenAICompatibleProvider(HttpProvider):
    """Speaks chat completions to one server.

    Wires that differ in their path, body and answer only (Ollama's own) are subclasses.

    Attributes:
        chat_path: Where questions go, below the base address.
        models_path: Where the list of models is, below the base address.
        optional: Fields without which a request still makes sense, in the order in which they are given up.
    """

    chat_path: ClassVar[str] = "/chat/completions"
    models_path: ClassVar[str] = "/models"
    optional: ClassVar[tuple[str, ...]] = OPTIONAL

    def __init__(self, endpoint: Endpoint, describe: Callable[[str], ProviderCapabilities]) -> None:
        """Make the provider; nothing is opened before the first request.

        Args:
            endpoint: The server.
            describe: Tells what a model can do.

        Raises:
            ConfigurationError: The address cannot be used.
        """
        super().__init__(describe, secret_texts((endpoint.key,), endpoint.headers))
        self.name = endpoint.name
        self._endpoint = endpoint
        self._url = endpoint.base_url.rstrip("/")
        sign = {"authorization": f"Bearer {endpoint.key.get_secret_value()}"} if endpoint.key else {}
        headers = json_headers(sign, endpoint.headers, stream=endpoint.stream)
        self._http = HttpClient(self._url, headers, endpoint.timeout, endpoint.idle_timeout)
        self.server = server_of(self._url)
        self._server = self._http.host
        self._encoder = self._make_encoder(endpoint.wire or WireOptions(self._server))
        self._rejected = RejectedParameters(
            self._server, self.optional, other_names=OTHER_NAMES, levels=("reasoning_effort",)
        )
        self._encoder.adapt = self._rejected.apply

    def _make_encoder(self, wire: WireOptions) -> RequestEncoder:
        return RequestEncoder(wire)

    def _make_decoder(self, context: AnswerContext) -> BodyReader:
        from aar.providers.chat_completions.body import BodyDecoder

        return BodyDecoder(context)

    async def _attempt(self, request: ProviderRequest, *, may_adapt: bool) -> AsyncGenerator[Delta]:
        encoded = self._encode(request)
        with self._told() as progress:
            client = await self._http.get()
            url = f"{self._url}{self.chat_path}"
            async with client.stream("POST", url, content=encoded.body) as response:
                if response.status_code != 200:
                    body = await read_error_body(response.aiter_bytes())
                    if may_adapt:
                        self._adapt(request.model, encoded, response.status_code, body)
                    raise self._error(response, body, request.model)
                progress.answering = True
                async for delta in self._answer(response, request.model, encoded):
                    yield delta

    async def _answer(self, response: Response, model: str, encoded: EncodedRequest) -> AsyncIterator[Delta]:
        # Imported while the answer is on its way, not before the request.
        from aar.providers.chat_completions.decode import AnswerContext

        decoder = self._make_decoder(
            AnswerContext(
                server=self._server,
                model=model,
                headers=lower_names(response.headers),
                taken_ids=encoded.call_ids,
                secrets=self._secrets,
            )
        )
        pieces = response.aiter_bytes()
        async for piece in pieces:
            for delta in decoder.feed(piece):
                yield delta
            if decoder.done:
                for delta in decoder.feed(await drain(pieces)):
                    yield delta
                break
        for delta in decoder.finish():
            yield delta

    def _encode(self, request: ProviderRequest) -> EncodedRequest:
        return self._encoder.encode(request, stream=self._endpoint.stream, extra=self._endpoint.extra)

    def _adapt(self, model: str, encoded: EncodedRequest, status: int, body: bytes) -> None:
        """Take note of an optional field that the server refused, or of the shape of messages that it wants.

        Raises:
            Adapted: There is one; the request can be sent again, otherwise.
        """
        if status in {400, 422}:
            self._adapt_shape(body.decode("utf-8", "replace"))
        notice = self._rejected.learn(model, encoded.fields, status, body)
        if notice is not None:
            raise Adapted(notice)

    def _adapt_shape(self, said: str) -> None:
        for pattern, option, wish in _SHAPES:
            if pattern.search(said) and not getattr(self._encoder.options, option):
                self._encoder.learn(**{option: True})
                raise Adapted(f"{self.server} {wish}; the conversation is sent again so.")

    def _error(self, response: Response, body: bytes, model: str) -> ProviderError:
        status, headers = response.status_code, lower_names(response.headers)
        return moved_elsewhere(status, headers, self.server) or server_error(
            status, headers, body, server=self.server, model=model, secrets=self._secrets
        )

    async def list_models(self) -> list[str]:
        """Ask the server for its models; empty when it cannot tell.

        Raises:
            ProviderError: It cannot be reached, or does not accept the key.
        """
        with self._told():
            client = await self._http.get()
            response = await client.get(f"{self._url}{self.models_path}")
        if response.status_code in {401, 403}:
            raise self._error(response, response.content, "")
        return model_names(parse_body(response.content)) if response.status_code == 200 else []

    async def aclose(self) -> None:
        """Close all connections and forget encoded messages."""
        self._encoder.clear()
        await self._http.aclose()
