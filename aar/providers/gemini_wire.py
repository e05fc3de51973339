"""Two ways to Gemini's server: plain HTTP, and Google's SDK for what only it can do.

Plain HTTP serves Google's own address and every other one with a key, or with none. The SDK serves Vertex
AI: it finds Google's credentials, renews their tokens and knows the addresses of the regions. It costs
about 0.8 s of CPU to import (measured, google-genai 3.4), so nothing else waits for it. Only its low-level
request path is used, with a body that is encoded already, and the bytes of the answer are read by aar.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import quote

from aar.protocol.errors import ConfigurationError, ErrorKind, ProviderError
from aar.providers.http import CONNECT_TIMEOUT_S, HttpClient

if TYPE_CHECKING:
    from httpx2 import Response

GOOGLE_HOST = "generativelanguage.googleapis.com"
_VERSION = re.compile(r"/v\d\w*(?:/|$)")
_ERROR_BODY_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: the head of a response, and its bytes as they come."""

    status: int
    headers: dict[str, str]
    pieces: AsyncIterator[bytes]


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go and what goes with them.

    Attributes:
        base_url: Address; ``None``: the SDK knows it.
        headers: To send, keys included.
        timeout: Seconds without a byte after which a request has failed.
    """

    base_url: str | None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout: float = 600


class Wire(Protocol):
    """A way to the server.

    Attributes:
        address: Where it is.
        host: Its host.
    """

    address: str
    host: str

    def send(self, model: str, body: bytes, *, stream: bool) -> Any:
        """Return an async context manager that gives the `Reply`."""
        ...

    async def models(self) -> Reply | None:
        """Return the server's list of models; ``None`` where there is none to ask for."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class HttpWire:
    """Requests over aar's own HTTP client."""

    def __init__(self, target: Target) -> None:
        """Args: ``target`` must tell an address; ``/v1beta`` is added where it names no version."""
        base = (target.base_url or f"https://{GOOGLE_HOST}").rstrip("/")
        self.address = base if _VERSION.search(base) else f"{base}/v1beta"
        self._http = HttpClient(self.address, target.headers, target.timeout)
        self.host = self._http.host

    @asynccontextmanager
    async def send(self, model: str, body: bytes, *, stream: bool) -> AsyncGenerator[Reply]:
        """Send a request; the connection is closed with the context."""
        client = await self._http.get()
        url = f"{self.address}/{model_path(model)}{method(stream=stream)}"
        async with client.stream("POST", url, content=body) as response:
            yield _reply(response)

    async def models(self) -> Reply:
        """Ask for the models."""
        client = await self._http.get()
        response = await client.get(f"{self.address}/models?pageSize=1000")
        return _reply(response)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()


@dataclass(frozen=True, slots=True)
class Vertex:
    """A place in Google Cloud. Without a project a key is needed (express mode)."""

    project: str | None = None
    location: str | None = None
    key: str | None = None


class SdkWire:
    """Requests over Google's SDK, which brings credentials and addresses of Vertex AI.

    All use of the SDK's private parts is in this class; ``pyproject.toml`` keeps its version.
    """

    def __init__(self, target: Target, vertex: Vertex) -> None:
        """Nothing is imported or opened before the first request."""
        self._target = target
        self._vertex = vertex
        self.address = target.base_url or f"https://{_vertex_host(vertex)}"
        self._http = HttpClient(self.address, target.headers, target.timeout)
        self.host = self._http.host
        self._api: Any = None
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def send(self, model: str, body: bytes, *, stream: bool) -> AsyncGenerator[Reply]:
        """Send a request; the connection is closed with the context."""
        api = await self._client()
        from google.genai.errors import APIError
        from httpx2 import Timeout

        path = f"{_vertex_path(model)}{method(stream=stream)}"
        request = api._build_request("post", path, {})
        request.data = body
        request.timeout = Timeout(self._target.timeout, connect=CONNECT_TIMEOUT_S, pool=None)
        try:
            # As a stream in any case: so the bytes come as they are.
            answer = await api._async_request_once(request, True)
        except APIError as error:
            yield _failed(error)
            return
        except Exception as error:
            raise _credentials_error(error) or error from error
        response = cast("Response", answer.response_stream)
        try:
            yield _reply(response)
        finally:
            await response.aclose()

    async def models(self) -> None:
        """Vertex AI has no list of a project's models."""
        return

    async def _client(self) -> Any:
        if self._api is None:
            async with self._lock:
                if self._api is None:
                    http = await self._http.get()
                    self._api = await asyncio.to_thread(self._open, http)
        return self._api

    def _open(self, http: Any) -> Any:
        try:
            from google import genai
        except ImportError as error:
            raise ConfigurationError(
                "Vertex AI needs Google's SDK, which is not installed. Run: pip install google-genai."
            ) from error
        vertex = self._vertex
        options: dict[str, Any] = {"httpx_async_client": http, "headers": dict(self._target.headers)}
        if self._target.base_url is not None:
            options["base_url"] = self._target.base_url
        try:
            client = genai.Client(
                vertexai=True,
                project=vertex.project,
                location=vertex.location,
                api_key=None if vertex.project else vertex.key,
                http_options=cast("Any", options),
            )
        except Exception as error:
            raise _credentials_error(error) or error from error
        return cast("Any", client)._api_client

    async def aclose(self) -> None:
        """Close all connections."""
        self._api = None
        await self._http.aclose()


def method(*, stream: bool) -> str:
    """Return what follows the model in an address."""
    return ":streamGenerateContent?alt=sse" if stream else ":generateContent"


def model_path(model: str) -> str:
    """Return the path of a model; a name with a folder (``tunedModels/x``) is taken as it is."""
    return quote(model if "/" in model else f"models/{model}", safe="/@-._~")


def _vertex_path(model: str) -> str:
    if "/" in model and not model.startswith("models/"):
        return quote(model, safe="/@-._~")
    return f"publishers/google/models/{quote(model.removeprefix('models/'), safe='@-._~')}"


def _vertex_host(vertex: Vertex) -> str:
    """Return the host that the SDK will choose, for sentences and for the network's rules."""
    location = vertex.location or "global"
    if not vertex.project or location == "global":
        return "aiplatform.googleapis.com"
    if location in {"us", "eu"}:
        return f"aiplatform.{location}.rep.googleapis.com"
    return f"{location}-aiplatform.googleapis.com"


def _reply(response: Response) -> Reply:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(response.status_code, headers, response.aiter_bytes())


def _failed(error: Any) -> Reply:
    """Return the reply that the SDK has turned into an exception."""
    response = error.response
    headers = {str(name).lower(): str(value) for name, value in getattr(response, "headers", {}).items()}

    async def body() -> AsyncIterator[bytes]:
        yield cast("bytes", response.content)

    return Reply(int(error.code), headers, body())


def _credentials_error(error: Exception) -> ProviderError | None:
    """Return the one sentence for what Google's credentials lack; ``None`` for any other error."""
    from google.auth import exceptions

    if isinstance(error, exceptions.TransportError):
        text = (
            f"Google's sign-in server could not be reached: {_line(error)}. Check the network and try again."
        )
        return ProviderError(ErrorKind.NETWORK, text, detail=str(error)[:2000])
    if isinstance(error, exceptions.GoogleAuthError):
        text = (
            f"Google's credentials cannot be used: {_line(error)}. "
            "Run gcloud auth application-default login, "
            "or let GOOGLE_APPLICATION_CREDENTIALS name a key file."
        )
        return ProviderError(ErrorKind.AUTH, text, detail=str(error)[:2000])
    if isinstance(error, ValueError):
        return ProviderError(
            ErrorKind.AUTH, f"Vertex AI cannot be used: {_line(error)}. Check [providers.gemini]."
        )
    return None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__


async def read_body(reply: Reply) -> bytes:
    """Read the body of an error. What came before a cut is enough."""
    import httpx2

    pieces: list[bytes] = []
    size = 0
    try:
        async for piece in reply.pieces:
            pieces.append(piece)
            size += len(piece)
            if size > _ERROR_BODY_LIMIT:
                break
    except httpx2.HTTPError:
        pass
    return b"".join(pieces)
