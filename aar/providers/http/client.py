"""What every provider that speaks HTTP shares: addresses, one client, errors of the network."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from aar.protocol.errors import ConfigurationError, ErrorKind, ProviderError
from aar.providers.http.errors import scrub

if TYPE_CHECKING:
    from collections.abc import Iterable

    from httpx2 import AsyncByteStream, AsyncClient, Response

CONNECT_TIMEOUT_S = 10.0
"""Seconds that a connection may take."""
STALL_S = 180.0
"""Seconds without a byte after which an answer that has begun is given up, unless told otherwise."""
_PROXY_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")


def is_loopback(host: str) -> bool:
    """Tell whether ``host`` is this machine (a name or an address; brackets are fine)."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def is_loopback_address(server: str) -> bool:
    """Tell whether ``server`` (``host`` or ``host:port``, as in `Provider.server`) is this machine."""
    return is_loopback(urlsplit(f"//{server}").hostname or "")


def server_of(base_url: str) -> str:
    """Return host and port of an address, the port only where it is not the scheme's own.

    Raises:
        ConfigurationError: It is no plain ``http`` or ``https`` address.
    """
    host, parts = host_of(base_url), urlsplit(base_url)
    name = f"[{host}]" if ":" in host else host
    usual = {"http": 80, "https": 443}[parts.scheme]
    return name if parts.port in {None, usual} else f"{name}:{parts.port}"


def host_of(base_url: str) -> str:
    """Return the host of an address in lower case.

    Raises:
        ConfigurationError: It is no plain ``http`` or ``https`` address.
    """
    problem = _address_problem(base_url)
    if problem:
        raise ConfigurationError(
            f"The address {scrub(base_url)!r} cannot be used: {problem}. "
            "Write it as http://HOST:PORT/v1 or https://HOST/v1."
        )
    return (urlsplit(base_url).hostname or "").rstrip(".").lower()


def _address_problem(base_url: str) -> str | None:
    if any(char.isspace() or not char.isprintable() or char == "\\" for char in base_url):
        return "it has spaces, backslashes or control characters"
    try:
        parts = urlsplit(base_url)
        port = parts.port
    except ValueError as error:
        return str(error)
    if parts.scheme not in {"http", "https"}:
        return "it does not start with http:// or https://"
    if not parts.hostname or port == 0:
        return "it names no host"
    if parts.username is not None or parts.password is not None:
        return "it carries a user name or password; put keys into api_key_env"
    if parts.query or parts.fragment:
        return "it has a query or a fragment"
    return None


class HttpClient:
    """One lazily made client. Importing and reading certificates happen in a thread, off the event loop.

    ``SSL_CERT_FILE``, ``SSL_CERT_DIR``, ``HTTPS_PROXY``, ``HTTP_PROXY``, ``ALL_PROXY`` and ``NO_PROXY`` are
    honoured; servers on this machine are never reached through a proxy.
    """

    def __init__(
        self, base_url: str, headers: Mapping[str, str], idle_timeout_s: float, stall_s: float = STALL_S
    ) -> None:
        """Keep the settings; nothing is opened.

        Args:
            base_url: Address of the server.
            headers: Of every request.
            idle_timeout_s: Seconds without a byte after which a request has failed.
            stall_s: The same once the first bytes of an answer have come, if that is shorter.

        Raises:
            ConfigurationError: The address cannot be used.
        """
        self.host = host_of(base_url)
        self._base_url = base_url
        self._headers = dict(headers)
        self._idle_timeout_s = idle_timeout_s
        self._stall_s = stall_s
        self._client: AsyncClient | None = None
        self._lock = asyncio.Lock()

    async def get(self) -> AsyncClient:
        """Return the client, made on first use.

        Raises:
            ConfigurationError: The certificates or the proxy of the environment cannot be used.
        """
        if self._client is None:
            async with self._lock:
                if self._client is None:
                    self._client = await asyncio.to_thread(self._open)
        return self._client

    def _open(self) -> AsyncClient:
        import httpx2

        loopback = is_loopback(self.host)
        plain = self._base_url.startswith("http://") and loopback
        timeout = httpx2.Timeout(self._idle_timeout_s, connect=CONNECT_TIMEOUT_S, pool=None)
        # Certificates cost some 80 ms to read and are not needed for plain HTTP to this machine.
        verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else _certificates()
        try:
            return httpx2.AsyncClient(
                headers=self._headers,
                timeout=timeout,
                verify=verify,
                trust_env=not loopback,
                follow_redirects=False,
                event_hooks={"response": [self._watch]} if self._stall_s < self._idle_timeout_s else None,
            )
        except (ValueError, ImportError) as error:
            raise _unusable_proxy(error) from error

    async def _watch(self, response: Response) -> None:
        response.stream = _make_watched(cast("AsyncByteStream", response.stream), self._stall_s)

    async def aclose(self) -> None:
        """Close all connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def _certificates() -> ssl.SSLContext:
    import httpx2

    try:
        return httpx2.create_ssl_context()
    except OSError as error:  # also ssl.SSLError
        name = next((name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)), None)
        where = f"{name} ({os.environ[name]})" if name is not None else "the system"
        raise ConfigurationError(
            f"The certificates of {where} cannot be read: {error.strerror or error}. "
            "Name a file in PEM format, or unset the variable."
        ) from error


def _unusable_proxy(error: Exception) -> ConfigurationError:
    named = [name for name in _PROXY_VARIABLES if os.environ.get(name) or os.environ.get(name.lower())]
    where, said = " or ".join(named) or "the environment", scrub(str(error)).rstrip(".")
    return ConfigurationError(
        f"The proxy of {where} cannot be used: {said}. Write it as http://HOST:PORT, or unset the variable."
    )


def _make_watched(inner: AsyncByteStream, stall_s: float) -> AsyncByteStream:
    """Return the body ``inner``; once begun, it fails when nothing comes for ``stall_s`` seconds."""
    import httpx2

    class Watched(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncGenerator[bytes]:
            pieces = aiter(inner)
            limit: float | None = None
            while True:
                try:
                    async with asyncio.timeout(limit):
                        piece = await anext(pieces)
                except StopAsyncIteration:
                    return
                except TimeoutError as error:
                    raise httpx2.ReadTimeout(f"nothing came for {stall_s:g} s") from error
                limit = stall_s
                yield piece

        async def aclose(self) -> None:
            await inner.aclose()

    return Watched()


def network_error(
    error: Exception, *, server: str, answering: bool, secrets: Iterable[str] = ()
) -> ProviderError:
    """Return the error that a failure of the HTTP library means.

    Args:
        error: An ``httpx2.HTTPError``, or another exception of the transport.
        server: Host, for the sentence.
        answering: Whether the answer had begun: then it was cut, else it never came.
        secrets: Texts that must not be in the sentence.
    """
    name = type(error).__name__
    said = scrub(str(error), secrets).strip().rstrip(".") or name
    if name == "ConnectTimeout":
        waited = f"{CONNECT_TIMEOUT_S:.0f} s"
        text = f"{server} did not take the connection within {waited}. Check base_url and the network."
        return ProviderError(ErrorKind.TIMEOUT, text, detail=said)
    if name == "ReadTimeout" and answering:
        what = said if said != name else "nothing came for too long"
        text = f"The answer of {server} stopped in the middle: {what}. Try again, or raise idle_timeout."
        return ProviderError(ErrorKind.TIMEOUT, text, detail=said)
    if name.endswith("Timeout"):
        text = f"{server} sent nothing for too long. Try again, or raise timeout under [providers.NAME]."
        return ProviderError(ErrorKind.TIMEOUT, text, detail=said)
    if name in {"UnsupportedProtocol", "InvalidURL", "LocalProtocolError"}:
        text = f"The request to {server} could not be made: {said}. Check base_url and headers."
        return ProviderError(ErrorKind.INVALID_REQUEST, text, detail=said)
    if answering and name != "DecodingError":
        text = f"The answer of {server} was cut off: the connection broke. Try again."
        return ProviderError(ErrorKind.INCOMPLETE_STREAM, text, detail=said)
    if name == "DecodingError":
        text = f"{server} sent something that cannot be unpacked: {said}. Try again."
        return ProviderError(ErrorKind.MALFORMED_RESPONSE, text, detail=said)
    causes = _causes(error)
    refused = next((cause for cause in causes if isinstance(cause, ssl.SSLError)), None)
    if refused is not None and type(error).__name__ != "ProxyError":
        text = _not_secure(refused, server, said)
        return ProviderError(ErrorKind.NETWORK, text, detail=said, final=_certain(refused))
    return ProviderError(ErrorKind.NETWORK, _unreachable(error, causes, server, said), detail=said)


def _certain(error: ssl.SSLError) -> bool:
    """Tell whether the same handshake will fail again."""
    return isinstance(error, ssl.SSLCertVerificationError) or error.reason == "WRONG_VERSION_NUMBER"


def _not_secure(error: ssl.SSLError, server: str, said: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message.rstrip(".") or said
        return (
            f"The certificate of {server} is not trusted: {why}. "
            "If the server is meant, name the file with its CA certificate in SSL_CERT_FILE."
        )
    if error.reason == "WRONG_VERSION_NUMBER":
        return f"{server} does not answer in TLS. Write http:// instead of https:// if that is meant."
    why = str(error.reason or said).replace("_", " ").lower()
    return f"No secure connection to {server}: {why}. Try again, or check base_url."


def _unreachable(error: Exception, causes: list[BaseException], server: str, said: str) -> str:
    if type(error).__name__ == "ProxyError":
        return f"The proxy to {server} failed: {said}. Check HTTPS_PROXY and NO_PROXY."
    proxy = _proxy_to(server)
    if proxy is not None:
        return f"The proxy {proxy} to {server} cannot be reached: {said}. Check HTTPS_PROXY and NO_PROXY."
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return f"Nothing answers at {server}. Start the server, or check base_url."
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return f"The host {server} was not found. Check base_url and the network."
    return f"The connection to {server} failed: {said}. Check the network and try again."


def _proxy_to(server: str) -> str | None:
    """Return the host and port of the proxy through which ``server`` is reached; ``None``: directly."""
    from urllib.request import getproxies, proxy_bypass

    if is_loopback_address(server):
        return None
    proxies = getproxies()
    address = proxies.get("https") or proxies.get("http") or proxies.get("all")
    if not address or proxy_bypass(server):
        return None
    parts = urlsplit(address if "//" in address else f"//{address}")
    return parts.netloc.rpartition("@")[2] or None


def _causes(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    todo: list[BaseException] = [error]
    while todo and len(found) < 20:
        current = todo.pop()
        if current in found:
            continue
        found.append(current)
        todo.extend(cause for cause in (current.__cause__, current.__context__) if cause is not None)
        if isinstance(current, BaseExceptionGroup):
            todo.extend(cast("BaseExceptionGroup[BaseException]", current).exceptions)
    return found
