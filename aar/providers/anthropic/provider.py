"""Anthropic's Messages wire (``POST {base_url}/v1/messages``), through Anthropic's SDK.

The SDK signs in and carries bytes; requests are encoded and answers decoded here, so that every oddity of
the wire is read exactly and no step costs more for a longer history. Its own retries are off.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, cast

from aar.protocol.errors import ErrorKind, ProviderError
from aar.providers.anthropic.adapt import LearntTraits
from aar.providers.anthropic.client import (
    HOME_SEAL,
    Endpoint,
    connection_headers,
    open_client,
    request_headers,
    warm,
    wire_version,
)
from aar.providers.anthropic.encode import EncodedRequest, RequestEncoder
from aar.providers.anthropic.thinking import ThinkingPlan, plan_thinking
from aar.providers.base import Delta, ProviderCapabilities, ProviderRequest
from aar.providers.catalog import ClaudeTraits, claude_traits
from aar.providers.http.client import HttpClient, server_of
from aar.providers.http.errors import parse_body, scrub, server_error
from aar.providers.http.provider import (
    Adapted,
    HttpProvider,
    drain,
    is_network_failure,
    lower_names,
    model_names,
    moved_elsewhere,
    secret_texts,
)
from aar.providers.http.rejected_parameters import RejectedParameters

if TYPE_CHECKING:
    from httpx2 import Response

    from aar.providers.anthropic.client import Client

_OPTIONAL = ("output_config.format", "output_config", "temperature", "stop_sequences", "thinking")
_INTERLEAVED = "interleaved-thinking-2025-05-14"


class AnthropicProvider(HttpProvider):
    """Speaks the Messages wire to one server."""

    name = "anthropic"
    max_refusals = 4

    def __init__(self, endpoint: Endpoint, describe: Callable[[str], ProviderCapabilities]) -> None:
        """Make the provider; nothing is opened or imported before the first request.

        Args:
            endpoint: The server.
            describe: Tells what a model can do.

        Raises:
            ConfigurationError: The address cannot be used.
        """
        super().__init__(describe, secret_texts((endpoint.key,), endpoint.headers))
        self._endpoint = endpoint
        self._http = HttpClient(
            endpoint.base_url, connection_headers(endpoint), endpoint.timeout, endpoint.idle_timeout
        )
        self.server = server_of(endpoint.base_url)
        self._client: Client | None = None
        self._lock = asyncio.Lock()
        self._encoder = RequestEncoder(endpoint.seal, cache=endpoint.cache)
        self._learnt = LearntTraits(self.server)
        self._rejected = RejectedParameters(self.server, _OPTIONAL)
        self._schema: tuple[Mapping[str, Any], dict[str, Any]] | None = None

    def warm(self) -> None:
        """Begin to import the SDK in the background."""
        warm()

    async def _attempt(self, request: ProviderRequest, *, may_adapt: bool) -> AsyncGenerator[Delta]:
        with self._told() as progress:
            client = await self._open()
            plan = self._plan(request)
            fields = self._rejected.apply(request.model, self._fields(request, plan))
            encoded, stream = self._encode(request, fields)
            async with aclosing(self._post(client, request, plan, encoded, stream=stream)) as responses:
                async for response in responses:
                    if response.status_code != 200:
                        body = await response.aread()
                        if may_adapt and response.status_code in {400, 422}:
                            self._adapt(request, plan, fields, response.status_code, body)
                        raise self._error(response, body, request.model)
                    progress.answering = True
                    async for delta in self._answer(response, request.model, encoded):
                        yield delta

    async def _open(self) -> Client:
        if self._client is None:
            async with self._lock:
                if self._client is None:
                    http = await self._http.get()
                    self._client = await asyncio.to_thread(open_client, self._endpoint, http)
        return self._client

    def _plan(self, request: ProviderRequest) -> ThinkingPlan:
        known = claude_traits(request.model)
        limit = self._describe(request.model).max_output_tokens or known.output_limit
        plan = plan_thinking(
            request.reasoning,
            self._learnt.traits(request.model, known),
            asked_tokens=request.max_output_tokens,
            limit=self._learnt.limit(request.model, limit),
        )
        if plan.budgeted and not self._encoder.may_budget(request.messages):
            return plan.without_thinking()
        return plan

    def _fields(self, request: ProviderRequest, plan: ThinkingPlan) -> dict[str, Any]:
        traits = self._learnt.traits(request.model, claude_traits(request.model))
        fields: dict[str, Any] = {"max_tokens": plan.max_tokens, "stream": self._endpoint.stream}
        if plan.thinking is not None:
            fields["thinking"] = plan.thinking
        # The vendor's own wire has no temperature any more; others who speak it do.
        foreign = self._endpoint.seal != HOME_SEAL
        if request.temperature is not None and foreign and traits.samples and not plan.thinks:
            fields["temperature"] = min(request.temperature, 1.0)
        if request.stop:
            fields["stop_sequences"] = [text for text in request.stop if text.strip()] or None
        output: dict[str, Any] = {"effort": plan.effort} if plan.effort is not None else {}
        if request.output_schema is not None:
            output["format"] = {"type": "json_schema", "schema": self._strict(request.output_schema)}
        if output:
            fields["output_config"] = output
        for more in (self._endpoint.extra, request.extra):
            fields.update(more)
        return {name: value for name, value in fields.items() if value is not None}

    def _strict(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``schema`` in the part of JSON Schema that the vendor enforces."""
        if self._schema is None or self._schema[0] is not schema:
            from anthropic import transform_schema

            try:
                strict = transform_schema(dict(schema))
            except (ValueError, TypeError, AttributeError, AssertionError):
                strict = dict(schema)  # The server says what is wrong with it.
            self._schema = (schema, strict)
        return self._schema[1]

    def _encode(self, request: ProviderRequest, fields: dict[str, Any]) -> tuple[EncodedRequest, bool]:
        kept = dict(fields)
        head: dict[str, Any] = {"model": request.model}
        stream = bool(kept.get("stream"))
        if self._endpoint.backend != "api":
            head = {"anthropic_version": wire_version()}
        if self._endpoint.backend == "bedrock":
            kept.pop("stream", None)
            betas = self._betas(request, fields)
            if betas:
                kept.setdefault("anthropic_beta", betas)
        return self._encoder.encode(request, head, kept), stream

    def _betas(self, request: ProviderRequest, fields: dict[str, Any]) -> list[str]:
        """Return what must be asked for by name: thinking between tool calls, where it has a budget."""
        thinking = fields.get("thinking")
        budgeted = isinstance(thinking, dict) and "budget_tokens" in thinking
        # Servers with models of their own need not know the name.
        known = claude_traits(request.model) != ClaudeTraits()
        return [_INTERLEAVED] if budgeted and known and request.tools else []

    async def _post(
        self,
        client: Client,
        request: ProviderRequest,
        plan: ThinkingPlan,
        encoded: EncodedRequest,
        *,
        stream: bool,
    ) -> AsyncGenerator[Response]:
        """Yield the one response, whatever its status, and close it afterwards."""
        import httpx2
        from anthropic import APIStatusError

        self._check_signed_in(client)
        betas = self._betas(request, {"thinking": plan.thinking})
        headers = request_headers(self._endpoint, [] if self._endpoint.backend == "bedrock" else betas)
        try:
            answer = await client.post(
                self._endpoint.path(request.model, stream=stream),
                cast_to=httpx2.Response,
                content=encoded.body,
                options={"headers": headers, "timeout": client.timeout},
                stream=True,
                stream_cls=cast("Any", None),
            )
            response = cast("Response", answer)
        except APIStatusError as error:
            response = error.response
        try:
            yield response
        finally:
            await response.aclose()

    def _check_signed_in(self, client: Client) -> None:
        if self._endpoint.backend != "api" or not self._endpoint.may_sign_in:
            return
        api = cast("Any", client)
        named = {name.lower() for name in self._endpoint.headers}
        if api.api_key or api.auth_token or api.credentials or named & {"authorization", "x-api-key"}:
            return
        raise ProviderError(
            ErrorKind.AUTH, f"There is no key for {self.server}. Set ANTHROPIC_API_KEY, or use another model."
        )

    async def _answer(self, response: Response, model: str, encoded: EncodedRequest) -> AsyncGenerator[Delta]:
        # Imported while the answer is on its way, not before the request.
        from aar.providers.anthropic.decode import MessageDecoder
        from aar.providers.anthropic.eventstream import EventStreamDecoder
        from aar.providers.chat_completions.body import BodyDecoder
        from aar.providers.chat_completions.decode import AnswerContext

        headers = lower_names(response.headers)
        context = AnswerContext(self.server, model, headers, encoded.call_ids, self._secrets)
        decoder = BodyDecoder(context, MessageDecoder(context, self._endpoint.seal))
        binary = headers.get("content-type", "").startswith("application/vnd.amazon.eventstream")
        frames = EventStreamDecoder() if binary else None
        pieces = response.aiter_bytes()
        async for piece in pieces:
            try:
                data = frames.feed(piece) if frames is not None else piece
            except ValueError as error:
                raise context.malformed(str(error)) from None
            for delta in decoder.feed(data):
                yield delta
            if decoder.done:
                await drain(pieces)
                break
        for delta in decoder.finish():
            yield delta

    def _adapt(
        self, request: ProviderRequest, plan: ThinkingPlan, fields: dict[str, Any], status: int, body: bytes
    ) -> None:
        """Take note of how the server wants to be asked.

        Raises:
            Adapted: It told; the request makes sense that way.
        """
        model = request.model
        said = body.decode("utf-8", "replace").lower()
        if "signature" in said and "thinking" in said and self._encoder.forget_thinking():
            raise Adapted(f"{self.server} does not take back earlier thinking; it is left out.")
        if "cache_control" in said and self._encoder.cache:
            self._encoder.cache = False
            self._encoder.clear()
            raise Adapted(f"{self.server} does not take marks for its cache; they are left out.")
        notice = self._learnt.learn(model, claude_traits(model), plan, body)
        notice = notice or self._rejected.learn(model, fields, status, body)
        if notice is not None:
            raise Adapted(notice)

    def _error(self, response: Response, body: bytes, model: str) -> ProviderError:
        headers = lower_names(response.headers)
        moved = moved_elsewhere(response.status_code, headers, self.server)
        if moved is not None:
            return moved
        parsed = parse_body(body)
        told = cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}
        if isinstance(told.get("request_id"), str):
            headers.setdefault("request-id", told["request_id"])
        error = server_error(
            response.status_code, headers, body, server=self.server, model=model, secrets=self._secrets
        )
        inner = told.get("error")
        message = cast("dict[str, Any]", inner).get("message") if isinstance(inner, dict) else None
        if response.status_code == 404 and isinstance(message, str) and message.startswith("model:"):
            text = f"{self.server} does not know the model {model}. Check its name."
            return ProviderError(
                ErrorKind.UNKNOWN_MODEL, text, status=404, request_id=error.request_id, detail=error.detail
            )
        return error

    def _failure(self, error: Exception, *, answering: bool) -> ProviderError:
        from anthropic import APIConnectionError

        if isinstance(error, APIConnectionError) and isinstance(error.__cause__, Exception):
            error = error.__cause__
        ours = answering or (self._endpoint.backend == "api" and not _is_sign_in(error))
        if ours or is_network_failure(error):
            return super()._failure(error, answering=answering)
        said = scrub(" ".join(str(error).split()), self._secrets)[:400] or type(error).__name__
        text = f"Signing in to {self.server} failed: {said.rstrip('.')}. Check the credentials."
        return ProviderError(ErrorKind.AUTH, text)

    async def list_models(self) -> list[str]:
        """Ask the server for its models; empty when it cannot tell.

        Raises:
            ProviderError: It cannot be reached, or does not accept the key.
        """
        if self._endpoint.backend != "api":
            return []
        with self._told():
            client = await self._open()
            self._check_signed_in(client)
            response = await self._list(client)
        if response.status_code in {401, 403}:
            raise self._error(response, response.content, "")
        return model_names(parse_body(response.content)) if response.status_code == 200 else []

    async def _list(self, client: Client) -> Response:
        import httpx2
        from anthropic import APIStatusError

        headers = request_headers(self._endpoint, [])
        path = "/v1/models?limit=1000"
        try:
            return await client.get(path, cast_to=httpx2.Response, options={"headers": headers})
        except APIStatusError as error:
            return error.response

    async def aclose(self) -> None:
        """Close all connections and forget encoded messages."""
        self._encoder.clear()
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                await client.close()
        await self._http.aclose()


def _is_sign_in(error: Exception) -> bool:
    from anthropic import AnthropicError

    return isinstance(error, AnthropicError) or (
        isinstance(error, TypeError) and "authentication" in str(error)
    )
