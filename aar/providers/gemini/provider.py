"""Google's Gemini models, by key or through Vertex AI."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import SecretStr

from aar.protocol.errors import ErrorKind, ProviderError
from aar.providers.base import Delta, ProviderCapabilities, ProviderRequest
from aar.providers.catalog import gemini_thinking
from aar.providers.gemini.encode import EncodedRequest, RequestEncoder
from aar.providers.gemini.errors import gemini_error
from aar.providers.gemini.seal import seal_name
from aar.providers.gemini.wire import (
    GOOGLE_HOST,
    NO_KEY,
    HttpWire,
    Reply,
    SdkAccess,
    SdkWire,
    Target,
    Wire,
)
from aar.providers.http.client import STALL_S, server_of
from aar.providers.http.errors import parse_body, read_error
from aar.providers.http.provider import (
    Adapted,
    HttpProvider,
    json_headers,
    moved_elsewhere,
    read_error_body,
    secret_texts,
)

_OPTIONAL = {
    "thinkingAmount": re.compile(r"thinking_? ?(?:level|budget)|\bbudget\b", re.IGNORECASE),
    "thinkingConfig": re.compile(r"thinking|include_?thoughts", re.IGNORECASE),
    "responseJsonSchema": re.compile(r"response_?(?:json_?)?schema|response mime ?type", re.IGNORECASE),
    "stopSequences": re.compile(r"stop_?sequences?", re.IGNORECASE),
    "temperature": re.compile(r"\btemperature\b", re.IGNORECASE),
    "maxOutputTokens": re.compile(r"max_?output_?tokens", re.IGNORECASE),
}
"""Fields without which a request still makes sense, and how a refusal of them reads.

``thinkingAmount`` is aar's own word for the level or budget of thinking, which goes before the rest.
"""

_REFUSAL = re.compile(
    r"not supported|unsupported|does not support|not enabled|unknown name|cannot find field|not allowed"
    r"|invalid|only (?:works|supported)|not available|must be|out of range|is incompatible"
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How Gemini is reached.

    Attributes:
        base_url: Address up to, and without, ``/models``; ``None``: Google's own.
        key: Sent as ``x-goog-api-key``; ``None``: the request goes out without one.
        headers: More headers; they win over those that aar makes.
        timeout: Seconds without a byte after which a request has failed.
        idle_timeout: The same once an answer has begun.
        extra: Merged into the body of every request.
        stream: Whether answers come piece by piece.
        sdk: Set: requests go through Google's SDK.
    """

    base_url: str | None = None
    key: SecretStr | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    timeout: float = 600
    idle_timeout: float = STALL_S
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    stream: bool = True
    sdk: SdkAccess | None = None


class GeminiProvider(HttpProvider):
    """Speaks ``generateContent`` to Google, to Vertex AI, or to a server that speaks it too."""

    name = "gemini"

    def __init__(self, endpoint: Endpoint, describe: Callable[[str], ProviderCapabilities]) -> None:
        """Make the provider; nothing is opened before the first request.

        Args:
            endpoint: How it is reached.
            describe: Tells what a model can do.

        Raises:
            ConfigurationError: The address cannot be used.
        """
        keys = (endpoint.key, endpoint.sdk.key if endpoint.sdk else None)
        super().__init__(describe, secret_texts(keys, endpoint.headers))
        self._endpoint = endpoint
        sign = {"x-goog-api-key": endpoint.key.get_secret_value()} if endpoint.key else {}
        headers = json_headers(sign, endpoint.headers, stream=endpoint.stream)
        target = Target(endpoint.base_url, headers, endpoint.timeout, endpoint.idle_timeout)
        self._wire: Wire = SdkWire(target, endpoint.sdk) if endpoint.sdk else HttpWire(target)
        self._server = self._wire.host
        self.server = server_of(self._wire.address)
        self._encoder = RequestEncoder(seal_name(self._server))
        self._left_out: dict[str, set[str]] = {}

    async def _attempt(self, request: ProviderRequest, *, may_adapt: bool) -> AsyncGenerator[Delta]:
        self._check_key()
        encoded = self._encode(request)
        with self._told() as progress:
            async with self._wire.send(request.model, encoded.body, stream=self._endpoint.stream) as reply:
                if reply.status != 200:
                    body = await read_error_body(reply.pieces)
                    if may_adapt:
                        self._adapt(request.model, encoded, reply.status, body)
                    raise self._error(reply, body, request.model)
                progress.answering = True
                async for delta in self._answer(reply, request.model, encoded):
                    yield delta

    async def _answer(self, reply: Reply, model: str, encoded: EncodedRequest) -> AsyncIterator[Delta]:
        # Imported while the answer is on its way, not before the request.
        from aar.providers.chat_completions.body import BodyDecoder
        from aar.providers.gemini.decode import AnswerDecoder, GeminiContext

        context = GeminiContext(
            server=self._server,
            model=model,
            headers=reply.headers,
            taken_ids=encoded.call_ids,
            secrets=self._secrets,
        )
        decoder = BodyDecoder(context, AnswerDecoder(context))
        async for piece in reply.pieces:
            for delta in decoder.feed(piece):
                yield delta
        for delta in decoder.finish():
            yield delta

    def _check_key(self) -> None:
        """Spare a request that can only fail.

        Raises:
            ProviderError: Google itself would be asked, and there is no key.
        """
        endpoint = self._endpoint
        if endpoint.sdk or endpoint.key or endpoint.headers or self._server != GOOGLE_HOST:
            return
        raise ProviderError(ErrorKind.AUTH, NO_KEY)

    def _encode(self, request: ProviderRequest) -> EncodedRequest:
        return self._encoder.encode(
            request,
            gemini_thinking(request.model),
            extra=self._endpoint.extra,
            left_out=frozenset(self._left_out.get(request.model, ())),
        )

    def _adapt(self, model: str, encoded: EncodedRequest, status: int, body: bytes) -> None:
        """Take note of an optional field that the server refused.

        Raises:
            Adapted: There is one; the request makes sense without it.
        """
        said = read_error(parse_body(body)).message.lower()
        if status not in {400, 422} or not _REFUSAL.search(said):
            return
        for name, pattern in _OPTIONAL.items():
            if name in encoded.fields and pattern.search(said):
                refused = self._left_out.setdefault(model, set())
                refused |= {name, "responseMimeType"} if name == "responseJsonSchema" else {name}
                raise Adapted(f"{self._server} does not take {name} for {model}; it is left out.")

    def _error(self, reply: Reply, body: bytes, model: str) -> ProviderError:
        return moved_elsewhere(reply.status, reply.headers, self._server) or gemini_error(
            reply.status, reply.headers, body, server=self._server, model=model, secrets=self._secrets
        )

    async def list_models(self) -> list[str]:
        """Ask the server for its models that answer prompts; empty when it cannot tell.

        Raises:
            ProviderError: It cannot be reached, or does not accept the key.
        """
        self._check_key()
        with self._told():
            reply = await self._wire.models()
            body = await read_error_body(reply.pieces) if reply is not None else b""
        if reply is None:
            return []
        if reply.status in {400, 401, 403}:
            raise self._error(reply, body, "")
        return _model_names(parse_body(body)) if reply.status == 200 else []

    async def aclose(self) -> None:
        """Close all connections and forget encoded messages."""
        self._encoder.clear()
        await self._wire.aclose()


def _model_names(body: Any) -> list[str]:
    listed: Any = cast("dict[str, Any]", body).get("models") if isinstance(body, dict) else None
    found: list[str] = []
    for item in cast("list[Any]", listed) if isinstance(listed, list) else []:
        if not isinstance(item, dict):
            continue
        fields = cast("dict[str, Any]", item)
        name, methods = fields.get("name"), fields.get("supportedGenerationMethods")
        if isinstance(name, str) and (not isinstance(methods, list) or "generateContent" in methods):
            found.append(name.removeprefix("models/"))
    return found
