"""What every request must pass before anything else sees it: host, origin, token, size.

Written as plain ASGI, so that no framework's own reading of a request comes first.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY = 20_000_000
"""Bytes of the largest body that is read."""
_READ_ON = 4
"""A body too large is read on to this many times the limit, so that its sender reads why it was refused."""
_BODY_S = 60.0
"""Seconds for a body to come in."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_KINDS = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
    404: "not_found_error", 409: "conflict_error", 413: "request_too_large", 415: "invalid_request_error",
    429: "rate_limit_error",
}  # fmt: skip


class _RefusedError(Exception):
    """A request that goes no further."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def error_body(status: int, message: str) -> dict[str, Any]:
    """Return the body of an error, in a form that the clients of both model APIs understand."""
    kind = _KINDS.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message, "code": None, "param": None}}


class Guard:
    """Lets through what may come in.

    A page of another site can make a browser send requests to this machine. It cannot read or guess the
    token; and its requests carry its own name in ``Origin``, or in ``Host`` when it made its name lead here.

    Args:
        app: What is guarded.
        token: The secret that each request must show.
        hosts: Names by which this server may be called, besides those of this machine.
        open_paths: Paths that need no token, because they hold nothing but the page itself.
        max_body: Bytes of the largest body.
    """

    def __init__(
        self,
        app: App,
        token: str,
        *,
        hosts: Collection[str] = (),
        open_paths: Collection[str] = (),
        max_body: int = MAX_BODY,
    ) -> None:
        self._app = app
        self._token = token.encode()
        self._hosts = frozenset(host.lower().strip("[]") for host in (*LOOPBACK, *hosts))
        self._open_paths = frozenset(open_paths)
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
            await send(message)

        try:
            self._check(scope)
            async with asyncio.timeout(_BODY_S):
                receive = await self._whole_body(receive)
        except TimeoutError:
            await _refuse(answer, _RefusedError(408, "The body did not come in time."))
        except _RefusedError as refused:
            await _refuse(answer, refused)
        else:
            await self._app(scope, receive, answer)

    def _check(self, scope: Scope) -> None:
        """Raise `_RefusedError` for a request that may not come in."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1 or _host_name(hosts[0]) not in self._hosts:
            raise _RefusedError(403, "This server is not called by that name; --allow-host adds one.")
        origins = [value for name, value in headers if name == b"origin"]
        if len(origins) > 1 or any(_origin_host(origin) != hosts[0] for origin in origins):
            raise _RefusedError(403, "Pages of other sites may not call this server.")
        if scope["path"] not in self._open_paths and not self._knows_token(headers):
            raise _RefusedError(401, "The token is missing or wrong: Authorization: Bearer TOKEN.")
        lengths = [value for name, value in headers if name == b"content-length"]
        if lengths and lengths[0].isdigit() and int(lengths[0]) > self._max_body:
            raise _RefusedError(413, f"The body is larger than {self._max_body:,} bytes.")

    def _knows_token(self, headers: list[tuple[bytes, bytes]]) -> bool:
        """Tell whether the token is there; takes as long for a token that is nearly right."""
        shown: list[bytes] = []
        for name, value in headers:
            if name == b"authorization" and value[:7].lower() == b"bearer ":
                shown.append(value[7:].strip())
            elif name == b"x-api-key":
                shown.append(value.strip())
        return any(hmac.compare_digest(one, self._token) for one in shown)

    async def _whole_body(self, receive: Receive) -> Receive:
        """Read the body, and return what gives it once more; raise `_RefusedError` when it is too large."""
        pieces: list[bytes] = []
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return _given([message], receive)
            piece: bytes = message.get("body") or b""
            size, more = size + len(piece), bool(message.get("more_body"))
            if size <= self._max_body:
                pieces.append(piece)
            elif size > _READ_ON * self._max_body:
                break
        if size > self._max_body:
            raise _RefusedError(413, f"The body is larger than {self._max_body:,} bytes.")
        return _given([{"type": "http.request", "body": b"".join(pieces), "more_body": False}], receive)


def _given(messages: list[Message], receive: Receive) -> Receive:
    async def give() -> Message:
        return messages.pop(0) if messages else await receive()

    return give


def _origin_host(origin: bytes) -> bytes | None:
    """Return host and port of an ``Origin`` header; ``None``: it is none."""
    try:
        return urlsplit(origin.decode("latin-1")).netloc.encode("latin-1")
    except ValueError:
        return None


def _host_name(host: bytes) -> str:
    """Return the name in a ``Host`` header, without its port."""
    text = host.decode("latin-1").strip().lower()
    if text.startswith("["):
        name, _, rest = text[1:].partition("]")
        return name if not rest or rest.startswith(":") else text
    return text.partition(":")[0]


async def _refuse(send: Send, refused: _RefusedError) -> None:
    body = json.dumps(error_body(refused.status, str(refused))).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if refused.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refused.status == 413:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
