"""Two ways to Gemini's server: plain HTTP, and Google's SDK for what only it can do.

Plain HTTP serves Google's own address and every other one with a key, or with none. The SDK serves Vertex
AI: it finds Google's credentials, renews their tokens and knows the addresses of the regions. The first
request costs 0.56 s of CPU (1.0 s in all) with google-genai 3.4, and 0.11 s (0.24 s) without it; each further
one 3 ms either way. So nothing waits for the SDK that does not need it. Only its low-level request path
is used, with a body that is encoded already, and the bytes of the answer are read by aar.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import quote

from pydantic import SecretStr

from aar.protocol.errors import ConfigurationError, ErrorKind, ProviderError
from aar.providers.http.client import CONNECT_TIMEOUT_S, STALL_S, HttpClient
from aar.providers.http.provider import lower_names

if TYPE_CHECKING:
    from httpx2 import Response

GOOGLE_HOST = "generativelanguage.googleapis.com"
NO_KEY = (
    "There is no key for Gemini. Set GEMINI_API_KEY (or GOOGLE_API_KEY), "
    "name another variable in api_key_env of [providers.gemini], or use another model."
)
_VERSION = re.compile(r"/v\d\w*(?:/|$)")
_API_VERSION = "v1beta"
"""What Google's reference describes. The SDK's own default is v1; both ways send the same."""


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
        idle_timeout: The same once an answer has begun.
    """

    base_url: str | None
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    timeout: float = 600
    idle_timeout: float = STALL_S


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
        self.address = base if _VERSION.search(base) else f"{base}/{_API_VERSION}"
        self._http = HttpClient(self.address, target.headers, target.timeout, target.idle_timeout)
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
class SdkAccess:
    """What the SDK is to use.

    Attributes:
        vertex: Vertex AI; else the Gemini API, which takes a key only.
        project: In Google Cloud; without one Vertex AI needs a key (express mode).
        location: Region; ``None``: ``global``.
        key: Only where there is no project.
    """

    vertex: bool = True
    project: str | None = None
    location: str | None = None
    key: SecretStr | None = None


class SdkWire:
    """Requests over Google's SDK, which brings credentials and the addresses of Vertex AI.

    All use of the SDK's private parts is in this class; ``pyproject.toml`` keeps its version.
    """

    def __init__(self, target: Target, access: SdkAccess) -> None:
        """Nothing is imported or opened before the first request."""
        self._target = target
        self._access = access
        self.address = target.base_url or f"https://{_host(access)}"
        self._http = HttpClient(self.address, target.headers, target.timeout, target.idle_timeout)
        self.host = self._http.host
        self._api: Any = None
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def send(self, model: str, body: bytes, *, stream: bool) -> AsyncGenerator[Reply]:
        """Send a request; the connection is closed with the context."""
        api = await self._client()
        from google.genai.errors import APIError
        from httpx2 import Timeout

        path = _vertex_path(model) if self._access.vertex else model_path(model)
        path += method(stream=stream)
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
            _tell_credentials(error)
            raise
        response = cast("Response", answer.response_stream)
        try:
            yield _reply(response)
        finally:
            await response.aclose()

    async def models(self) -> None:
        """Nothing is asked: Vertex AI has no list of a project's models."""
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
                "This needs Google's SDK, which is not installed. Run: pip install google-genai."
            ) from error
        access = self._access
        if not access.project and not access.key:
            # The SDK would look for a key itself, and send it to whatever address it was given.
            raise ProviderError(ErrorKind.AUTH, NO_KEY)
        # The address is always told: the SDK would take another one from its own environment variables,
        # for which no key was meant.
        options: dict[str, Any] = {
            "base_url": self.address,
            "headers": dict(self._target.headers),
            "httpx_async_client": http,
        }
        if not access.vertex:
            options["api_version"] = _API_VERSION
        try:
            client = genai.Client(
                vertexai=access.vertex,
                project=access.project,
                location=access.location,
                api_key=access.key.get_secret_value() if access.key and not access.project else None,
                http_options=cast("Any", options),
            )
        except Exception as error:
            _tell_credentials(error)
            raise
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


def _host(access: SdkAccess) -> str:
    """Return the host that the SDK will choose, for sentences and for the network's rules."""
    location = access.location or "global"
    if not access.vertex:
        return GOOGLE_HOST
    if not access.project or location == "global":
        return "aiplatform.googleapis.com"
    if location in {"us", "eu"}:
        return f"aiplatform.{location}.rep.googleapis.com"
    return f"{location}-aiplatform.googleapis.com"


def _reply(response: Response) -> Reply:
    return Reply(response.status_code, lower_names(response.headers), response.aiter_bytes())


def _failed(error: Any) -> Reply:
    """Return the reply that the SDK has turned into an exception."""
    response = error.response
    headers = {str(name).lower(): str(value) for name, value in getattr(response, "headers", {}).items()}

    async def body() -> AsyncIterator[bytes]:
        yield cast("bytes", response.content)

    return Reply(int(error.code), headers, body())


def _tell_credentials(error: Exception) -> None:
    """Say in one sentence what Google's credentials lack.

    Raises:
        ProviderError: That is what ``error`` is about.
    """
    from google.auth import exceptions

    if isinstance(error, exceptions.TransportError):
        text = (
            f"Google's sign-in server could not be reached: {_line(error)}. Check the network and try again."
        )
        raise ProviderError(ErrorKind.NETWORK, text, detail=str(error)[:2000]) from error
    if isinstance(error, exceptions.GoogleAuthError):
        text = (
            f"Google's credentials cannot be used: {_line(error)}. "
            "Run gcloud auth application-default login, "
            "or let GOOGLE_APPLICATION_CREDENTIALS name a key file."
        )
        raise ProviderError(ErrorKind.AUTH, text, detail=str(error)[:2000]) from error
    if type(error) is ValueError:
        text = f"Google's SDK cannot be used: {_line(error)}. Check [providers.gemini]."
        raise ProviderError(ErrorKind.AUTH, text) from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
