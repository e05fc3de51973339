"""One connection to a server through the official SDK; everything goes in and out as plain JSON data.

Imported only when a server is started, and in a thread: the SDK takes most of a second to load.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import httpx2
import mcp_types as types
from mcp.client.client import Client
from mcp.client.session import ClientRequestContext, IncomingMessage
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from aar import __version__
from aar.config.schema import McpServerConfig
from aar.protocol.errors import McpError

JsonDict = dict[str, Any]
_PAGES = 100
_MAX_ITEMS = 5000
_HTTP_S = 30.0
"""To connect and to write; an answer may take longer."""
_NO_SUCH_METHOD = (types.METHOD_NOT_FOUND, types.UNSUPPORTED_PROTOCOL_VERSION)
Changed = Literal["tools", "resources", "prompts"]


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What a server may ask of aar.

    Attributes:
        elicit: Gets the request's parameters; returns the result.
        sample: The same for an answer of the model; ``None`` is refused.
        changed: Told which list changed.
        log: Gets lines for the diagnostics log.
        roots: Folders that the server is told about.
    """

    elicit: Callable[[JsonDict], Awaitable[JsonDict]]
    sample: Callable[[JsonDict], Awaitable[JsonDict | None]]
    changed: Callable[[Changed], None]
    log: Callable[[str], None]
    roots: tuple[Path, ...]


class Connection:
    """An initialised connection."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def server(self) -> JsonDict:
        """Name and version as the server tells them."""
        info = self._client.server_info
        return {} if info is None else _plain(info)

    @property
    def instructions(self) -> str:
        """What the server says about its use."""
        return self._client.instructions or ""

    @property
    def protocol(self) -> str:
        """Version of the protocol that both speak."""
        return self._client.protocol_version

    def offers(self, what: Changed) -> bool:
        """Tell whether the server has tools, resources or prompts at all."""
        return getattr(self._client.server_capabilities, what) is not None

    async def tools(self) -> list[JsonDict]:
        """Return all tools."""
        return await self._all("tools", lambda cursor: self._client.list_tools(cursor=cursor))

    async def resources(self) -> list[JsonDict]:
        """Return all resources, then all templates (with ``uriTemplate``)."""
        found = await self._all("resources", lambda cursor: self._client.list_resources(cursor=cursor))
        with contextlib.suppress(MCPError):
            found += await self._all(
                "resource_templates", lambda cursor: self._client.list_resource_templates(cursor=cursor)
            )
        return found

    async def prompts(self) -> list[JsonDict]:
        """Return all prompts."""
        return await self._all("prompts", lambda cursor: self._client.list_prompts(cursor=cursor))

    async def _all(self, field: str, page: Callable[[str | None], Awaitable[BaseModel]]) -> list[JsonDict]:
        found: list[JsonDict] = []
        cursor: str | None = None
        for _ in range(_PAGES):
            result = await page(cursor)
            found += [_plain(item) for item in getattr(result, field)]
            following: str | None = getattr(result, "next_cursor", None)
            if not following or following == cursor or len(found) > _MAX_ITEMS:
                break
            cursor = following
        return found[:_MAX_ITEMS]

    async def call(
        self, name: str, arguments: JsonDict, progress: Callable[[float, float | None, str | None], None]
    ) -> JsonDict:
        """Call a tool; the result has ``content``, ``structuredContent``, ``isError``.

        Raises:
            McpError: The server refused, ended or broke the protocol.
        """
        report = progress

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            report(progress, total, message)

        with _explained():
            return _plain(await self._client.call_tool(name, arguments, progress_callback=on_progress))

    async def read(self, uri: str) -> list[JsonDict]:
        """Return the contents of a resource.

        Raises:
            McpError: As `call`.
        """
        with _explained():
            result = await self._client.read_resource(uri, cache_mode="bypass")
            return [_plain(item) for item in result.contents]

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> JsonDict:
        """Return a prompt's messages.

        Raises:
            McpError: As `call`.
        """
        with _explained():
            return _plain(await self._client.get_prompt(name, dict(arguments)))


@contextlib.contextmanager
def _explained() -> Any:
    try:
        yield
    except MCPError as error:
        raise (
            ConnectionLostError(str(error))
            if error.code == types.CONNECTION_CLOSED
            else McpError(f"The server refused: {error}")
        ) from error
    except httpx2.HTTPError as error:
        raise ConnectionLostError(f"{type(error).__name__}: {error}") from error
    except (RuntimeError, ValueError) as error:
        raise McpError(f"The server's answer breaks its own schema or the protocol: {error}") from error


class ConnectionLostError(McpError):
    """The connection is gone; a new one may work."""


def _plain(model: BaseModel) -> JsonDict:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


@contextlib.asynccontextmanager
async def connected(transport: Callable[[], Any], callbacks: Callbacks) -> AsyncGenerator[Connection]:
    """Open a connection over ``transport()`` (a context manager that yields the SDK's streams).

    The handshake that nearly all servers know comes first; a server of the newest protocol that does not
    know it is asked again its own way.
    """
    try:
        async with _client(transport, callbacks, "legacy") as client:
            yield Connection(client)
            return
    except MCPError as error:
        if error.code not in _NO_SUCH_METHOD:
            raise
    async with _client(transport, callbacks, "auto") as client:
        yield Connection(client)


def _client(transport: Callable[[], Any], callbacks: Callbacks, mode: str) -> Client:
    async def elicit(context: ClientRequestContext, params: Any) -> Any:
        return types.ElicitResult.model_validate(await callbacks.elicit(_plain(params)))

    async def sample(context: ClientRequestContext, params: types.CreateMessageRequestParams) -> Any:
        answer = await callbacks.sample(_plain(params))
        if answer is None:
            return types.ErrorData(code=-1, message="The user did not allow this request.")
        return types.CreateMessageResult.model_validate(answer)

    async def list_roots(context: ClientRequestContext) -> types.ListRootsResult:
        roots = [
            types.Root.model_validate({"uri": path.as_uri(), "name": path.name}) for path in callbacks.roots
        ]
        return types.ListRootsResult(roots=roots)

    async def logged(params: types.LoggingMessageNotificationParams) -> None:
        callbacks.log(f"{params.level}: {str(params.data)[:2000]}")

    async def heard(message: IncomingMessage) -> None:
        if isinstance(message, Exception):
            callbacks.log(f"transport: {message}")
        elif isinstance(message, types.ToolListChangedNotification):
            callbacks.changed("tools")
        elif isinstance(message, types.ResourceListChangedNotification):
            callbacks.changed("resources")
        elif isinstance(message, types.PromptListChangedNotification):
            callbacks.changed("prompts")

    return Client(
        transport(),
        mode=mode,
        elicitation_callback=elicit,
        sampling_callback=sample,
        list_roots_callback=list_roots,
        logging_callback=logged,
        message_handler=heard,
        client_info=types.Implementation(name="aar", version=__version__),
        cache=None,
    )


@contextlib.asynccontextmanager
async def over_http(
    config: McpServerConfig,
    kind: Literal["http", "sse"],
    auth: httpx2.Auth | None = None,
    on_status: Callable[[int], None] = lambda status: None,
) -> AsyncGenerator[Any]:
    """Yield the streams of streamable HTTP or of SSE. Redirects stay on the server's own origin.

    Args:
        config: The server's settings, variables expanded.
        kind: Which of both.
        auth: Signs requests.
        on_status: Told the HTTP status of each answer: the SDK keeps it to itself.
    """
    assert config.url is not None

    async def heard(response: httpx2.Response) -> None:
        on_status(response.status_code)

    def make_client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        hooks = {"response": [heard]}
        return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, event_hooks=hooks)

    headers, longest = dict(config.headers), max(300.0, config.timeout)
    if kind == "sse":
        async with sse_client(config.url, headers, _HTTP_S, longest, make_client, auth) as streams:
            yield streams
        return
    async with (
        make_client(headers, httpx2.Timeout(_HTTP_S, read=longest), auth) as client,
        streamable_http_client(config.url, http_client=client) as streams,
    ):
        yield streams


def innermost(error: BaseException) -> BaseException:
    """Return the first real failure inside of a group of exceptions."""
    while isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        error = group.exceptions[0]
    return error


def reason(error: BaseException) -> str:
    """Return a failure in one sentence for people."""
    cause = innermost(error)
    if isinstance(cause, httpx2.HTTPStatusError):
        return f"HTTP {cause.response.status_code} from {cause.request.url.host}"
    if isinstance(cause, httpx2.ConnectError):
        return "nobody answers at its address"
    if isinstance(cause, TimeoutError):
        return "it took too long"
    if isinstance(cause, OSError) and cause.strerror:
        return f"{cause.filename}: {cause.strerror}" if cause.filename else cause.strerror
    return str(cause) or type(cause).__name__
