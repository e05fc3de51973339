"""Signing in to an MCP server over OAuth: the SDK's client, a browser, and its answer on the loopback.

Imported only when a server is signed in to: it needs the SDK. What a server says of its sign-in is not
believed further than needed: its addresses must be of HTTPS, or of this machine when the server is.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import html
import ipaddress
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, cast
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, TokenStorage
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, ValidationError

from aar.config.schema import McpServerConfig
from aar.extensions.mcp_logins import LoginStore, SignInNeededError
from aar.protocol.errors import McpError
from aar.safety.sanitize import sanitize

Show = Callable[[str], Awaitable[None]]
"""``await show(address)``: lets the user open the address in a browser."""
PATIENCE_S = 300.0
"""Seconds that a person has to sign in."""
_PUBLIC: Final = "none"
"""A program on the user's machine can keep no secret of its own."""
_MAX_REQUEST = 16_384
_REQUEST_S = 10.0
_NO_LOOPBACK = "http://127.0.0.1/callback"
_DONE = "You are signed in to {name}. You can close this page and go back to aar."
_FAILED = "Signing in to {name} did not work. aar tells why."


class _Storage(TokenStorage):
    """Tokens of one server; they are kept together with all that is needed to renew them."""

    def __init__(
        self, store: LoginStore, name: str, url: str, client: OAuthClientInformationFull | None = None
    ) -> None:
        self._store, self._name, self._url, self._client = store, name, url, client
        self.record: dict[str, Any] = {}
        self.context: OAuthContext | None = None

    async def reload(self) -> None:
        """Read what is kept; another process may have renewed it."""
        self.record = await asyncio.to_thread(self._store.load, self._name, self._url) or {}

    async def get_tokens(self) -> OAuthToken | None:
        found = self.record.get("tokens")
        return None if found is None else OAuthToken.model_validate(found)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        assert self.context is not None
        client, server = self.context.client_info, self.context.oauth_metadata
        self.record = {
            "tokens": tokens.model_dump(mode="json", exclude_none=True),
            "expires_at": None if tokens.expires_in is None else time.time() + tokens.expires_in,
            "client": None if client is None else client.model_dump(mode="json", exclude_none=True),
            "server": None if server is None else server.model_dump(mode="json", exclude_none=True),
        }
        await asyncio.to_thread(self._store.save, self._name, self._url, self.record)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        found = self.record.get("client")
        return self._client if found is None else OAuthClientInformationFull.model_validate(found)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Nothing: it is kept with the tokens."""


class ServerAuth(OAuthClientProvider):
    """Signs requests to one server, and renews its tokens.

    Args:
        name: Of the server.
        url: Its address.
        storage: Its tokens.
        redirect: Where the browser comes back to.
        show: Shows the page to sign in on; ``None``: nobody is asked, and `SignInNeededError` is raised.
        answer: Waits for what the browser brings back.
    """

    def __init__(
        self,
        name: str,
        url: str,
        storage: _Storage,
        redirect: str = _NO_LOOPBACK,
        show: Show | None = None,
        answer: Callable[[], Awaitable[AuthorizationCodeResult]] | None = None,
    ) -> None:
        metadata = OAuthClientMetadata(
            redirect_uris=[AnyUrl(redirect)], client_name="aar", token_endpoint_auth_method=_PUBLIC
        )
        super().__init__(url, metadata, storage, show, answer)
        self._name, self._storage, self._asks = name, storage, show is not None
        self.problem: str | None = None
        """Why nobody is let in, in a sentence."""
        storage.context = self.context

    async def recall(self) -> None:
        """Take what is kept of the last sign-in.

        Raises:
            ConfigurationError: The key store or the keyring cannot be read.
        """
        storage, context = self._storage, self.context
        await storage.reload()
        context.current_tokens = await storage.get_tokens()
        context.client_info = await storage.get_client_info()
        context.token_expiry_time = cast("float | None", storage.record.get("expires_at"))
        server = storage.record.get("server")
        context.oauth_metadata = None if server is None else OAuthMetadata.model_validate(server)

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Sign ``request``; where nobody is asked, a refusal is tried once more with renewed tokens.

        Raises:
            SignInNeededError: The tokens are of no use any more.
            McpError: The server's sign-in leads to an address that is not trusted.
        """
        if not self._asks and not self._storage.record:
            await self.recall()
        for again in (False, True):
            flow = super().async_auth_flow(request)
            response: httpx2.Response | None = None
            try:
                while True:
                    outgoing = await (anext(flow) if response is None else flow.asend(response))
                    if outgoing is not request:
                        check_address(str(outgoing.url), self.context.server_url)
                    response = yield outgoing
                    if outgoing is request and not self._asks and _refused(response):
                        break
            except StopAsyncIteration:
                return
            finally:
                await flow.aclose()
            if again or not await self._renewable():
                break
        error = SignInNeededError(self._name)
        self.problem = str(error)
        raise error

    async def _renewable(self) -> bool:
        """Make ready for a second try, with what another process got meanwhile or with a renewal."""
        used = self.context.current_tokens
        await self.recall()
        now = self.context.current_tokens
        if now is not None and used is not None and now.access_token != used.access_token:
            return True
        self.context.token_expiry_time = 1.0
        return self.context.can_refresh_token()


def _refused(response: httpx2.Response) -> bool:
    """Tell whether the server wants other tokens than it got."""
    more = "insufficient_scope" in response.headers.get("www-authenticate", "")
    return response.status_code == 401 or (response.status_code == 403 and more)


def check_address(url: str, server_url: str) -> None:
    """Refuse an address that a server names for its sign-in, where it is not safe to go to.

    Raises:
        McpError: It is neither HTTPS nor on the machine of the server, or leads into a private network.
    """
    there, server = urlsplit(url), urlsplit(server_url)
    if (there.scheme, there.netloc) == (server.scheme, server.netloc):
        return
    local = _is_local(server.hostname)
    if there.scheme == "https" and (local or not _is_local(there.hostname)):
        return
    if there.scheme == "http" and local and _is_local(there.hostname):
        return
    raise McpError(f"Its sign-in leads to {sanitize(url)[:200]}, which is not trusted.")


def _is_local(host: str | None) -> bool:
    """Tell whether a host is of this machine or a private network, as far as its name says."""
    host = (host or "").rstrip(".")
    if host in ("", "localhost") or host.endswith(".localhost"):
        return True
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return False


def make_auth(name: str, config: McpServerConfig, store: LoginStore) -> ServerAuth | None:
    """Return what signs requests to a server; ``None`` where nobody signed in. Blocks on the keyring.

    Raises:
        ConfigurationError: The key store cannot be read.
    """
    url = config.url
    if url is None or not store.known(name, url):
        return None
    return ServerAuth(name, url, _Storage(store, name, url))


async def sign_in(name: str, config: McpServerConfig, store: LoginStore, show: Show) -> bool:
    """Sign in to a server and keep what that gives; ``False``: the server lets anybody in.

    Args:
        name: Of the server.
        config: Its settings, variables expanded.
        store: Gets the tokens.
        show: Lets the user open the page to sign in on.

    Raises:
        McpError: It did not work, with the reason in a sentence.
    """
    assert config.url is not None
    url = config.url
    async with _Loopback(name) as loopback:
        redirect = loopback.address
        storage = _Storage(store, name, url, _registered(config, redirect))

        async def shown(address: str) -> None:
            check_address(address, url)
            loopback.state = parse_qs(urlsplit(address).query)["state"][0]
            await show(address)

        auth = ServerAuth(name, url, storage, redirect, shown, loopback.answer)
        try:
            async with asyncio.timeout(PATIENCE_S + 60):
                status = await _knock(url, config, auth)
        except McpError:
            raise
        except TimeoutError:
            raise McpError(f"Nobody signed in to {name} within {PATIENCE_S / 60:g} minutes.") from None
        except (OAuthFlowError, httpx2.HTTPError, ValidationError, ValueError) as error:
            raise McpError(f"Signing in to {name} did not work: {sanitize(_first_line(error))}") from error
    if storage.record:
        return True
    if status in (401, 403):
        raise McpError(f"{name} lets nobody in (HTTP {status}) and does not say how to sign in.")
    return False


async def _knock(url: str, config: McpServerConfig, auth: ServerAuth) -> int:
    """Send one request that only those who are signed in may send; return its HTTP status."""
    hello: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "aar", "version": "0"},
        },
    }
    headers = {
        **config.headers,
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2025-06-18",
    }
    async with httpx2.AsyncClient(auth=auth, timeout=30) as client:
        if config.transport == "sse":
            async with client.stream("GET", url, headers=headers) as response:
                return response.status_code
        async with client.stream("POST", url, json=hello, headers=headers) as response:
            return response.status_code


def _registered(config: McpServerConfig, redirect: str) -> OAuthClientInformationFull | None:
    """Return the client that the user registered by hand; ``None``: aar registers itself."""
    if config.oauth_client_id is None:
        return None
    return OAuthClientInformationFull(
        client_id=config.oauth_client_id, redirect_uris=[AnyUrl(redirect)], token_endpoint_auth_method=_PUBLIC
    )


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:300]


class _Loopback:
    """A server on this machine that waits for one request: the browser that comes back."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        self._server: asyncio.Server | None = None
        self.address = ""
        self.state: str | None = None
        """What tells the browser that was sent from any other page."""

    async def __aenter__(self) -> _Loopback:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_MAX_REQUEST)
        self.address = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/callback"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self._answer.cancel()

    async def answer(self) -> AuthorizationCodeResult:
        """Return what the browser brought.

        Raises:
            McpError: The sign-in was refused.
            TimeoutError: Nobody came.
        """
        async with asyncio.timeout(PATIENCE_S):
            found = await self._answer
        if "code" not in found:
            why = found.get("error_description") or found.get("error") or "there is no code in the answer"
            raise McpError(f"Signing in to {self._name} was refused: {sanitize(why)[:300]}")
        return AuthorizationCodeResult(code=found["code"], state=found.get("state"), iss=found.get("iss"))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        odd = (asyncio.IncompleteReadError, asyncio.LimitOverrunError)
        with contextlib.suppress(OSError, ValueError, TimeoutError, *odd):
            try:
                async with asyncio.timeout(_REQUEST_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    await self._reply(head, writer)
            finally:
                writer.close()

    async def _reply(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        method, target, _ = head.split(b"\r\n", 1)[0].decode("ascii", "replace").split(" ", 2)
        asked = urlsplit(target)
        found = {key: values[0] for key, values in parse_qs(asked.query).items()}
        known = self.state is not None and hmac.compare_digest(
            found.get("state", "").encode(), self.state.encode()
        )
        if method != "GET" or asked.path != "/callback" or not known:
            writer.write(_page("404 Not Found", "There is nothing here."))
        else:
            text = (_DONE if "code" in found else _FAILED).format(name=html.escape(self._name))
            writer.write(_page("200 OK", text))
            if not self._answer.done():
                self._answer.set_result(found)
        await writer.drain()


def _page(status: str, text: str) -> bytes:
    """Return a page without anything of the request in it."""
    body = f"<!doctype html><meta charset=utf-8><title>aar</title><p>{text}</p>".encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nContent-Security-Policy: default-src 'none'\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
