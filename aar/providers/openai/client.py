"""The vendor's SDK as a transport: authentication, Azure's addresses and one connection pool, nothing else.

Bodies go out as bytes and come back unread through the SDK's low-level ``post``: its typed entry points
would walk the whole history on every call. Retries are off, they are counted elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlsplit

from aar import __version__
from aar.providers.http.client import HttpClient

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response
    from openai import AsyncOpenAI

    from aar.providers.openai_compatible import Endpoint

_AMBIENT = "OPENAI_CUSTOM_HEADERS"
_TOKEN = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]+")
"""A token of Entra ID, which Azure takes in place of a key."""
_VENDOR_HEADERS = ("OpenAI-Organization", "OpenAI-Project")


class Refused(Exception):  # noqa: N818 - an outcome that the provider judges
    """The server answered with another status than success; the body of ``response`` was read."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


@dataclass(frozen=True, slots=True)
class AzureForm:
    """How an address and a version reach Azure.

    Attributes:
        base_url: Address for the SDK.
        version: Value of ``api-version``; ``None``: none is sent.
        deployments: Whether deployments are named in the path, and the key goes as ``api-key``.
    """

    base_url: str
    version: str | None
    deployments: bool


def azure_form(base_url: str, version: str | None) -> AzureForm:
    """Return how to ask ``base_url``.

    Without a version, and where the path ends in ``/v1``, the wire is OpenAI's own. Otherwise the path is
    completed to ``/openai`` (https://learn.microsoft.com/azure/ai-services/openai/reference).
    """
    address = base_url.rstrip("/")
    path = urlsplit(address).path
    if version is None or path.endswith("/v1"):
        return AzureForm(address, version, deployments=False)
    if not path.endswith("/openai") and "/openai/deployments/" not in path:
        address += "/openai"
    return AzureForm(address, version, deployments=True)


def warm() -> None:
    """Begin to import the SDK in the background."""
    threading.Thread(target=_import, name="aar-openai-sdk", daemon=True).start()


def _import() -> None:
    import openai  # noqa: F401  # pyright: ignore[reportUnusedImport] - kept by the interpreter


class OpenAIClient:
    """One SDK client, made on first use in a thread: importing the SDK takes about a second."""

    def __init__(self, endpoint: Endpoint, *, api_version: str | None, own_host: bool) -> None:
        """Keep the settings; nothing is opened.

        Args:
            endpoint: The server.
            api_version: Of Azure; ``None``: it is asked as OpenAI itself is.
            own_host: Whether the host is the vendor's, who alone gets what the environment says besides.

        Raises:
            ConfigurationError: The address cannot be used.
        """
        self._endpoint = endpoint
        self._form = azure_form(endpoint.base_url, api_version)
        self._own_host = own_host
        self._http = HttpClient(endpoint.base_url, {}, endpoint.timeout, endpoint.idle_timeout)
        self._client: AsyncOpenAI | None = None
        self._lock = asyncio.Lock()

    async def post(self, path: str, body: bytes, model: str) -> Response:
        """Send ``body`` and return the response, of which nothing but the head was read; close it.

        Raises:
            Refused: The status is not 2xx.
            httpx2.HTTPError: The network failed.
        """
        client = await self._get()
        import httpx2
        import openai

        with _told():
            response: object = await client.post(
                self._path(path, model),
                cast_to=httpx2.Response,
                content=body,
                options={"headers": self._request_headers()},
                stream=True,
                stream_cls=openai.AsyncStream[Any],
            )
        return cast("Response", response)

    async def models(self) -> bytes:
        """Return the server's list of models as it came.

        Raises:
            Refused: The status is not 2xx.
            httpx2.HTTPError: The network failed.
        """
        client = await self._get()
        import httpx2

        with _told():
            response = await client.get(
                "/models", cast_to=httpx2.Response, options={"headers": self._request_headers()}
            )
        return response.content

    def _path(self, path: str, model: str) -> str:
        if not self._form.deployments:
            return path
        address = urlsplit(self._form.base_url).path
        if path == "/chat/completions":
            return path if "/deployments/" in address else f"/deployments/{quote(model, safe='')}{path}"
        root = self._form.base_url.partition("/deployments/")[0]
        return f"{root}{path}" if "/deployments/" in address else path

    async def _get(self) -> AsyncOpenAI:
        if self._client is None:
            async with self._lock:
                if self._client is None:
                    http = await self._http.get()
                    self._client = await asyncio.to_thread(self._open, http)
        return self._client

    def _open(self, http: AsyncClient) -> AsyncOpenAI:
        from openai import AsyncAzureOpenAI, AsyncOpenAI

        key = self._endpoint.key.get_secret_value() if self._endpoint.key else ""
        # Empty texts where there is nothing: for None the SDK looks into the environment.
        shared: dict[str, Any] = {
            "base_url": self._form.base_url,
            "admin_api_key": "",
            "webhook_secret": "",
            "max_retries": 0,
            "timeout": http.timeout,
            "http_client": http,
            "default_headers": self._headers(),
            "_enforce_credentials": False,
        }
        if not self._form.deployments:
            query = {"api-version": self._form.version} if self._form.version else None
            return AsyncOpenAI(api_key=key, default_query=query, **shared)
        if _TOKEN.fullmatch(key):
            return AsyncAzureOpenAI(azure_ad_token=key, api_version=self._form.version, **shared)
        return AsyncAzureOpenAI(api_key=key, api_version=self._form.version, **shared)

    def _headers(self) -> dict[str, str]:
        return {
            "accept": "text/event-stream, application/json" if self._endpoint.stream else "application/json",
            "user-agent": f"aar/{__version__}",
            **{name.lower(): value for name, value in self._endpoint.headers.items()},
        }

    def _request_headers(self) -> dict[str, Any]:
        """Return what goes over the headers that the SDK makes, some of them out of the environment.

        The key is the one that was found for this host, and hosts of others are not told the vendor's
        organisation and project.
        """
        from openai import Omit

        given = {name.lower() for name in self._endpoint.headers}
        ambient = [line.partition(":")[0].strip() for line in os.environ.get(_AMBIENT, "").split("\n")]
        foreign = () if self._own_host else (*_VENDOR_HEADERS, *ambient)
        headers: dict[str, Any] = {
            name.lower(): Omit() for name in (*foreign, "authorization", "api-key") if name
        }
        headers["content-type"] = "application/json"
        if self._endpoint.key is not None:
            key = self._endpoint.key.get_secret_value()
            if self._form.deployments and not _TOKEN.fullmatch(key):
                headers["api-key"] = key
            else:
                headers["authorization"] = f"Bearer {key}"
        return {name: value for name, value in headers.items() if name not in given}

    async def aclose(self) -> None:
        """Close all connections."""
        self._client = None
        await self._http.aclose()


@contextmanager
def _told() -> Generator[None]:
    """Turn the SDK's errors into what lies behind them, causes included."""
    import openai

    try:
        yield
    except openai.APIStatusError as error:
        raise Refused(error.response) from None
    except openai.APIConnectionError as error:
        failed = error.__cause__ or error
    else:
        return
    raise failed
