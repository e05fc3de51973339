"""Fetching a page: checked addresses, bounded size and time, redirects on one host (SECURITY T12)."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aar.protocol.errors import ToolCategory, ToolFailure
from aar.safety.rules import normal_host
from aar.safety.sandbox.domains import is_public

if TYPE_CHECKING:
    import httpx2

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
_MOST_REDIRECTS = 5
_MOST_KEPT = 40
_HTTP_OK, _HTTP_REDIRECT, _HTTP_ERROR = 200, 300, 400


@dataclass(frozen=True, slots=True)
class Page:
    """What a fetch brought.

    Attributes:
        url: After redirects.
        status: HTTP status.
        media_type: Without parameters, lower case.
        charset: As the server told it, or ``None``.
        body: At most the limit.
        cut: Whether there was more.
        moved_to: Address on another host that it redirects to; then there is no body.
    """

    url: str
    status: int
    media_type: str = ""
    charset: str | None = None
    body: bytes = b""
    cut: bool = False
    moved_to: str | None = None


async def resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of ``host``."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(item[4][0]) for item in found))


@dataclass(eq=False)
class Fetcher:
    """Fetches pages, and keeps them for a while.

    Args:
        resolve: Finds the addresses of a host.
        public: Tells whether an address may be dialled.
    """

    resolve: Resolve = resolve
    public: Callable[[str], bool] = is_public
    _kept: OrderedDict[str, tuple[float, Page]] = field(default_factory=OrderedDict[str, tuple[float, Page]])

    async def fetch(self, url: str, *, timeout_s: float, max_bytes: int, cache_s: float) -> Page:
        """Return the page at ``url``.

        Redirects are followed on the same host, also from http to https. One to another host is told, since
        permission was given for this host only.

        Raises:
            ToolFailure: ``invalid_arguments`` for an unsound address, ``blocked`` for one that is not public,
                ``timeout``, ``not_found`` for 404 and 410, ``exception`` for other failures.
        """
        kept = self._kept.get(url)
        if kept is not None and time.monotonic() - kept[0] < cache_s:
            return kept[1]
        try:
            async with asyncio.timeout(timeout_s):
                page = await self._follow(url, max_bytes)
        except TimeoutError:
            raise ToolFailure(ToolCategory.TIMEOUT, f"{url} took longer than {timeout_s:g} s.") from None
        if cache_s and page.moved_to is None:
            self._kept[url] = time.monotonic(), page
            self._kept.move_to_end(url)
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return page

    async def _follow(self, url: str, max_bytes: int) -> Page:
        import httpx2

        host = normal_host(url)
        if host is None:
            raise ToolFailure(
                ToolCategory.INVALID_ARGUMENTS,
                "The address is not a sound http(s) URL; give one without user names, spaces and control "
                "characters.",
            )
        at = httpx2.URL(url)
        async with httpx2.AsyncClient(trust_env=False, follow_redirects=False, timeout=None) as client:
            for _ in range(_MOST_REDIRECTS + 1):
                page = await self._one(client, at, host, max_bytes)
                if page.moved_to is None:
                    return page
                target = at.join(page.moved_to)
                if normal_host(str(target)) != host or (at.scheme == "https" and target.scheme == "http"):
                    return Page(str(at), page.status, moved_to=str(target))
                at = target
        raise ToolFailure(
            ToolCategory.EXCEPTION,
            f"{url} redirects more than {_MOST_REDIRECTS} times; give the final address.",
        )

    async def _address(self, host: str, port: int) -> str:
        """Return an address that may be dialled. All must be public: the next answer may be another one."""
        try:
            found = await self.resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise ToolFailure(ToolCategory.NOT_FOUND, f"The host {host} cannot be found.") from error
        if not found or not all(self.public(address) for address in found):
            raise ToolFailure(
                ToolCategory.BLOCKED,
                f"{host} is not on the public internet; web_fetch reaches no local or private addresses.",
            )
        return found[0]

    async def _one(self, client: httpx2.AsyncClient, at: httpx2.URL, host: str, max_bytes: int) -> Page:
        """Fetch one address from the address that was checked, under the host's own name and certificate."""
        import httpx2

        port = at.port or (443 if at.scheme == "https" else 80)
        address = await self._address(host, port)
        request = client.build_request(
            "GET",
            at.copy_with(host=address, fragment=None),
            headers={
                "Host": at.netloc.decode("ascii"),
                "Accept": "text/html,text/plain,application/json,*/*;q=0.5",
                "User-Agent": "aar (coding assistant; on behalf of a user)",
            },
            extensions={"sni_hostname": host},
        )
        try:
            response = await client.send(request, stream=True)
            try:
                return await _read(response, str(at), max_bytes)
            finally:
                await response.aclose()
        except httpx2.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise ToolFailure(ToolCategory.EXCEPTION, f"{at} could not be fetched: {reason}.") from error


async def _read(response: httpx2.Response, url: str, max_bytes: int) -> Page:
    status = response.status_code
    location = response.headers.get("location")
    if _HTTP_REDIRECT <= status < _HTTP_ERROR and location:
        return Page(url, status, moved_to=location)
    if status >= _HTTP_ERROR:
        kind = ToolCategory.NOT_FOUND if status in (404, 410) else ToolCategory.EXCEPTION
        raise ToolFailure(kind, f"{url} answers with HTTP {status} {response.reason_phrase}.")
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = bytearray()
    async for piece in response.aiter_bytes(65_536):
        body += piece
        if len(body) > max_bytes:
            return Page(url, status, media_type, response.charset_encoding, bytes(body[:max_bytes]), cut=True)
    return Page(url, status, media_type, response.charset_encoding, bytes(body))
