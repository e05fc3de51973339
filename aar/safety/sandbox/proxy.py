"""The way out for commands: a proxy that speaks HTTP CONNECT, plain HTTP and SOCKS5 on one port.

It answers on a socket that listens inside the private network (see `aar.safety.spawn_server.network`) and
dials from outside of it. A host is parsed once, judged, resolved once, its addresses are judged too, and
what was judged is what is dialled. It runs in a thread with an event loop of its own, so that a busy screen
does not hold up a download.

Formats: RFC 9110 9.3.6 (CONNECT), RFC 9112 3.2.2 (absolute form), RFC 1928 (SOCKS5).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable

from aar.protocol.ports import BlockedHost
from aar.safety.sandbox.domains import AllowedDomains, BadHostError, is_public, parse_host

_HEAD_LIMIT = 64_000
_HEAD_TIMEOUT_S = 30.0
_DIAL_TIMEOUT_S = 20.0
_PIECE = 1 << 16
_MOST_CONNECTIONS = 256
_KEPT = 200
"""Refusals that are remembered."""

_REQUEST_LINE = re.compile(rb"([A-Z]{1,20}) (\S+) HTTP/1\.([01])")
_ABSOLUTE = re.compile(r"http://([^/?#]*)([/?#].*|)", re.IGNORECASE | re.DOTALL)
_AUTHORITY = re.compile(r"(\[[^\]]*\]|[^:@]*)(?::(\d{1,5}))?")
_HOP = (b"connection", b"proxy-connection", b"proxy-authorization", b"keep-alive", b"upgrade")

Resolve = Callable[[str, int], Awaitable[list[str]]]


class RefusedError(Exception):
    """A connection that is not made; ``blocked`` tells why."""

    def __init__(self, blocked: BlockedHost) -> None:
        super().__init__(blocked.reason)
        self.blocked = blocked


class BadRequestError(Exception):
    """What came is none of the three protocols."""


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of ``host`` as the system knows them."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(item[4][0]) for item in found))


class DomainProxy:
    """See the module.

    Args:
        domains: Who may be reached; looked at for each connection.
        resolver: Asked once for each name.
    """

    def __init__(self, domains: AllowedDomains, resolver: Resolve = resolve) -> None:
        self._domains = domains
        self._resolve = resolver
        self._blocked: deque[tuple[float, BlockedHost]] = deque(maxlen=_KEPT)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, listener: socket.socket) -> None:
        """Answer on ``listener``, which this proxy closes. Returns at once."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run, args=(listener,), name="aar-domain-proxy", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop answering and end all connections."""
        if self._loop is None or self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(2.0)
        self._loop = self._thread = None

    def blocked_since(self, moment: float) -> tuple[BlockedHost, ...]:
        """Return what was refused after ``moment`` (monotonic seconds), each host and port once."""
        return tuple(dict.fromkeys(blocked for when, blocked in list(self._blocked) if when >= moment))

    def _run(self, listener: socket.socket) -> None:
        loop = self._loop
        assert loop is not None
        asyncio.set_event_loop(loop)
        listener.setblocking(False)
        server = loop.run_until_complete(asyncio.start_server(self._serve, sock=listener, limit=_HEAD_LIMIT))
        try:
            loop.run_forever()
        finally:
            server.close()
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if len(self._tasks) <= _MOST_CONNECTIONS:
                async with asyncio.timeout(_HEAD_TIMEOUT_S):
                    first = await reader.readexactly(1)
                await (self._socks(reader, writer) if first == b"\x05" else self._http(first, reader, writer))
        except (
            OSError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
            TimeoutError,
            BadRequestError,
        ):
            pass  # The other side went away, or does not speak any of it: it learns by the end.
        finally:
            self._tasks.discard(task)
            writer.close()

    # --- HTTP ---

    async def _http(self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_HEAD_TIMEOUT_S):
            head = first + await reader.readuntil(b"\r\n\r\n")
        line, _, rest = head.partition(b"\r\n")
        match = _REQUEST_LINE.fullmatch(line)
        try:
            if match is None:
                raise BadRequestError
            method, target = match[1], match[2].decode("utf-8")
            host, port, path = _connect_target(target) if method == b"CONNECT" else _absolute_target(target)
        except (BadRequestError, UnicodeDecodeError):
            await _answer(writer, 400, "aar's proxy does not understand this request.")
            return
        try:
            far_reader, far_writer = await self._dial(host, port)
        except RefusedError as error:
            await _answer(writer, 403, _refusal(error.blocked))
            return
        except OSError as error:
            await _answer(writer, 502, f"{host} cannot be reached: {error}.")
            return
        if path is None:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            far_writer.write(_forwarded(method, path, host, port, rest))
        await _join(reader, writer, far_reader, far_writer)

    # --- SOCKS5 ---

    async def _socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        methods = await reader.readexactly((await reader.readexactly(1))[0])
        writer.write(b"\x05\x00" if 0 in methods else b"\x05\xff")
        if 0 not in methods:
            return
        async with asyncio.timeout(_HEAD_TIMEOUT_S):
            version, command, _, kind = await reader.readexactly(4)
        if kind == 3:
            raw = await reader.readexactly((await reader.readexactly(1))[0])
            host = raw.decode("latin-1")
        elif kind in (1, 4):
            family, size = (socket.AF_INET, 4) if kind == 1 else (socket.AF_INET6, 16)
            host = socket.inet_ntop(family, await reader.readexactly(size))
        else:
            raise BadRequestError
        port = int.from_bytes(await reader.readexactly(2), "big")
        if version != 5 or command != 1:
            writer.write(b"\x05\x07\x00\x01" + bytes(6))
            return
        try:
            far_reader, far_writer = await self._dial(host, port)
        except (RefusedError, OSError) as error:
            code = 2 if isinstance(error, RefusedError) else 4
            writer.write(bytes((5, code, 0, 1)) + bytes(6))
            return
        writer.write(b"\x05\x00\x00\x01" + bytes(6))
        await _join(reader, writer, far_reader, far_writer)

    # --- out ---

    async def _dial(self, text: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a host that may be reached, at the very address that was judged.

        Raises:
            RefusedError: It may not.
            OSError: It cannot.
        """
        try:
            host = parse_host(text)
        except BadHostError as error:
            shown = text.encode("unicode_escape").decode()[:253]
            raise self._refused(BlockedHost(shown, port, str(error), None)) from error
        if blocked := self._domains.judge(host, port):
            raise self._refused(blocked)
        addresses = await self._resolve(host, port)
        if not self._domains.may_be_private(host, port):
            addresses = [address for address in addresses if is_public(address)]
        if not addresses:
            reason = (
                "its address is of this machine or a private network; allow ADDRESS:PORT if that is meant"
            )
            raise self._refused(BlockedHost(host, port, reason, None))
        failure: OSError | None = None
        for address in addresses[:4]:
            try:
                async with asyncio.timeout(_DIAL_TIMEOUT_S):
                    return await asyncio.open_connection(address, port)
            except (OSError, TimeoutError) as error:
                failure = error if str(error) else OSError("no answer")
        raise failure or OSError("no address")

    def _refused(self, blocked: BlockedHost) -> RefusedError:
        self._blocked.append((time.monotonic(), blocked))
        return RefusedError(blocked)


def _connect_target(target: str) -> tuple[str, int, None]:
    match = _AUTHORITY.fullmatch(target)
    if match is None or match[2] is None:
        raise BadRequestError
    return match[1], int(match[2]), None


def _absolute_target(target: str) -> tuple[str, int, str]:
    match = _ABSOLUTE.fullmatch(target)
    authority = _AUTHORITY.fullmatch(match[1]) if match else None
    if match is None or authority is None:
        raise BadRequestError
    path = match[2].partition("#")[0]
    return authority[1], int(authority[2] or 80), path if path.startswith("/") else "/" + path


def _forwarded(method: bytes, path: str, host: str, port: int, rest: bytes) -> bytes:
    """Return the request as the server expects it, addressed to the host that was judged."""
    lines = [line for line in rest.split(b"\r\n") if line]
    kept = [line for line in lines if line.partition(b":")[0].strip().lower() not in (*_HOP, b"host")]
    name = f"{host}:{port}" if port != 80 else host
    start = method + b" " + path.encode() + b" HTTP/1.1"
    return b"\r\n".join([start, b"Host: " + name.encode(), b"Connection: close", *kept, b"", b""])


def _refusal(blocked: BlockedHost) -> str:
    advice = f" {blocked.rule} in [sandbox] allow_domains would allow it." if blocked.rule else ""
    return f"Blocked by aar's wall: {blocked.host}:{blocked.port}: {blocked.reason}.{advice}"


async def _answer(writer: asyncio.StreamWriter, code: int, text: str) -> None:
    names = {400: "Bad Request", 403: "Blocked by aar", 502: "Bad Gateway"}
    body = text.encode(errors="replace") + b"\n"
    head = f"HTTP/1.1 {code} {names[code]}\r\nContent-Type: text/plain\r\n"
    head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


async def _join(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    far_reader: asyncio.StreamReader,
    far_writer: asyncio.StreamWriter,
) -> None:
    """Copy both ways until the far side has ended."""
    up = asyncio.create_task(_copy(reader, far_writer))
    try:
        await _copy(far_reader, writer)
    finally:
        up.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await up
        far_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_PIECE):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


def proxy_variables(port: int) -> dict[str, str]:
    """Return the environment that sends programs to the proxy at ``port`` of their own loopback."""
    url = f"http://127.0.0.1:{port}"
    own = "localhost,127.0.0.1,::1"
    return {
        # HTTP for all: several libraries fail at a SOCKS address when an extra is not installed.
        **dict.fromkeys(
            ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"), url
        ),
        "NO_PROXY": own,
        "no_proxy": own,
        "npm_config_proxy": url,
        "npm_config_https_proxy": url,
        "YARN_HTTP_PROXY": url,
        "YARN_HTTPS_PROXY": url,
        "CARGO_HTTP_PROXY": url,
        "NODE_USE_ENV_PROXY": "1",
    }
