"""``aar acp --http``: the same agent for clients elsewhere, over HTTP with server-sent events.

The wire is the protocol's streamable HTTP, as its Python SDK speaks it: ``initialize`` is a POST that is
answered with its result and an ``Acp-Connection-Id``; each other message is a POST that is answered with 202.
What the agent says comes on GET streams: one for the connection, one for each session (``Acp-Session-Id``).
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aar.transports.acp.messages import RpcError, error_message, kind_of, object_of, parse
from aar.transports.acp.server import Server
from aar.transports.serve.guard import MAX_BODY, Guard, error_body
from aar.transports.serve.listen import address, bound, is_loopback, until_signal
from aar.transports.serve.sse import Stream, frame

PATH = "/acp"
CONNECTION, SESSION = "acp-connection-id", "acp-session-id"
MAX_CONNECTIONS = 32
_MOST_WAITING = 100_000
"""Messages that wait for a reader; a client that takes none for so long has gone."""
_ALONE_S = 300.0
"""Seconds after which a connection that nobody reads is closed."""
_LOOK_EVERY_S = 15.0
_GREETING_S = 30.0


class Outbox:
    """Messages that wait for the reader of one stream; a new reader takes the place of the one before."""

    def __init__(self) -> None:
        self._waiting: deque[str] = deque()
        self._moved = asyncio.Event()
        self._reader = 0
        self._readers = 0
        self.closed = False

    @property
    def read(self) -> bool:
        """Whether somebody reads."""
        return self._readers > 0

    @property
    def backlog(self) -> int:
        """Messages that wait."""
        return len(self._waiting)

    def put(self, text: str) -> None:
        """Add a message."""
        self._waiting.append(text)
        self._moved.set()

    def close(self) -> None:
        """Let the reader take what waits, and end."""
        self.closed = True
        self._moved.set()

    async def frames(self) -> AsyncGenerator[bytes]:
        """Yield messages as they come, until the connection or a newer reader ends this."""
        self._reader += 1
        self._readers += 1
        mine = self._reader
        self._moved.set()
        try:
            while mine == self._reader:
                while self._waiting and mine == self._reader:
                    yield frame(self._waiting.popleft())
                if self.closed:
                    return
                self._moved.clear()
                await self._moved.wait()
        finally:
            self._readers -= 1


class Remote:
    """One client: its server of the protocol, and the streams on which it reads.

    Args:
        options: For `open_runtime`.
        here: Whether it is on this machine, so that its files and terminals may be used.
    """

    def __init__(self, options: Mapping[str, Any], *, here: bool) -> None:
        self.id = secrets.token_urlsafe(24)
        self.used = time.monotonic()
        self.main = Outbox()
        self.ending = asyncio.Event()
        self._streams: dict[str, Outbox] = {}
        self._routes: dict[str, str] = {}
        self._greeting: asyncio.Future[dict[str, Any]] | None = None
        self.server = Server(self, options, here=here, bounded=True)

    @property
    def alone(self) -> bool:
        """Whether nobody has read or written for long, or too much waits."""
        boxes = (self.main, *self._streams.values())
        if sum(box.backlog for box in boxes) > _MOST_WAITING:
            return True
        return not any(box.read for box in boxes) and time.monotonic() - self.used > _ALONE_S

    # --- from the client ---------------------------------------------------------------------------------

    async def greet(self, raw: bytes) -> dict[str, Any]:
        """Take ``initialize`` and return the answer."""
        self._greeting = asyncio.get_running_loop().create_future()
        self.server.connection.take(raw)
        try:
            async with asyncio.timeout(_GREETING_S):
                return await self._greeting
        finally:
            self._greeting = None

    def take(self, raw: bytes, message: dict[str, Any]) -> None:
        """Take any other message."""
        self.used = time.monotonic()
        session_id = object_of(message.get("params")).get("sessionId")
        if "id" in message and "method" in message and isinstance(session_id, str):
            self._routes[_key(message["id"])] = session_id
        self.server.connection.take(raw)

    def stream(self, session_id: str | None) -> Outbox | None:
        """Return what a GET reads; ``None``: there is no such session."""
        self.used = time.monotonic()
        if session_id is None:
            return self.main
        if session_id not in self._streams and self.server.has_session(session_id):
            self._streams[session_id] = Outbox()
        return self._streams.get(session_id)

    # --- to the client -----------------------------------------------------------------------------------

    def send(self, message: dict[str, Any]) -> None:
        """Put a message into the stream on which the client waits for it."""
        if self._greeting is not None and not self._greeting.done() and "method" not in message:
            self._greeting.set_result(message)
            return
        self._box(message).put(json.dumps(message, separators=(",", ":")))

    def _box(self, message: dict[str, Any]) -> Outbox:
        """Return the stream for a message: that of its session, once the client can know it."""
        if "method" in message:
            params: dict[str, Any] = message["params"]
            return self._streams.get(str(params.get("sessionId")), self.main)
        opened = object_of(message.get("result")).get("sessionId")
        routed = self._routes.pop(_key(message.get("id")), "")
        if isinstance(opened, str):
            # What is said in the session waits for its stream, which the client opens when it reads this.
            self._streams.setdefault(opened, Outbox())
            return self.main
        return self._streams.get(routed, self.main)

    async def aclose(self) -> None:
        """End all turns, processes and streams."""
        self.server.connection.closed.set()
        await self.server.aclose()
        for box in (self.main, *self._streams.values()):
            box.close()
        self.ending.set()


def _key(request_id: Any) -> str:
    return json.dumps(request_id)


class Remotes:
    """All clients of one server.

    Args:
        options: For `open_runtime`.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._remotes: dict[str, Remote] = {}
        self._sweeping: asyncio.Task[None] | None = None

    def app(self) -> Starlette:
        """Return the application."""
        return Starlette(routes=[Route(PATH, self._serve, methods=["POST", "GET", "DELETE"])])

    async def aclose(self) -> None:
        """Close all connections."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        remotes, self._remotes = tuple(self._remotes.values()), {}
        await asyncio.gather(*(remote.aclose() for remote in remotes))

    async def _serve(self, request: Request) -> Response:
        if request.method == "POST":
            return await self._post(request)
        remote = self._remotes.get(request.headers.get(CONNECTION, ""))
        if remote is None:
            return _refused(404, f"There is no such connection; the header {CONNECTION} names one.")
        if request.method == "DELETE":
            del self._remotes[remote.id]
            await remote.aclose()
            return Response(status_code=202)
        box = remote.stream(request.headers.get(SESSION))
        if box is None:
            return _refused(404, "There is no such session on this connection.")
        return Stream(box.frames(), remote.ending)

    async def _post(self, request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return _refused(415, "The body must be JSON, with content-type: application/json.")
        raw = await request.body()
        try:
            message = parse(raw)
            kind = kind_of(message)
        except RpcError as error:
            return JSONResponse(error_message(None, error), 400)
        if kind == "request" and message["method"] == "initialize":
            peer = request.client
            return await self._greet(raw, here=peer is not None and is_loopback(peer.host))
        remote = self._remotes.get(request.headers.get(CONNECTION, ""))
        if remote is None:
            return _refused(404, f"There is no such connection; send initialize, then its {CONNECTION}.")
        session_id = request.headers.get(SESSION)
        if session_id is not None and remote.stream(session_id) is None:
            return _refused(404, "There is no such session on this connection.")
        remote.take(raw, message)
        return Response(status_code=202)

    async def _greet(self, raw: bytes, *, here: bool) -> Response:
        if len(self._remotes) >= MAX_CONNECTIONS:
            return _refused(429, f"{MAX_CONNECTIONS} clients are connected; close one of them.")
        remote = Remote(self._options, here=here)
        answer = await remote.greet(raw)
        if "error" in answer:
            await remote.aclose()
            return JSONResponse(answer)
        self._remotes[remote.id] = remote
        if self._sweeping is None:
            self._sweeping = asyncio.ensure_future(self._sweep())
        return JSONResponse(answer, headers={CONNECTION: remote.id})

    async def _sweep(self) -> None:
        """Close connections that nobody uses any more."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            for remote in [one for one in self._remotes.values() if one.alone]:
                del self._remotes[remote.id]
                await remote.aclose()


def _refused(status: int, sentence: str) -> Response:
    return JSONResponse(error_body(status, sentence), status)


def make_app(
    remotes: Remotes, token: str, *, hosts: Sequence[str] = (), max_body: int | None = None
) -> Guard:
    """Return the guarded application."""
    return Guard(remotes.app(), token, hosts=hosts, max_body=max_body or MAX_BODY)


def serve_http(
    options: Mapping[str, Any], host: str, port: int, hosts: Sequence[str], token_file: Path | None
) -> int:
    """Serve until a signal; return the exit code. Arguments as for `aar.transports.serve.command.serve`.

    Raises:
        AarError: The address or the file of the token cannot be used.
    """
    from aar.transports.serve.command import demand_names, tell_start
    from aar.transports.serve.secret import token_from

    names = demand_names(host, hosts)
    token = token_from(token_file)

    async def main() -> int:
        remotes = Remotes(options)
        listening = bound(host, port)
        app = make_app(remotes, token, hosts=names)

        def ready() -> None:
            tell_start(address(listening), token, token_file, host, PATH)

        return await until_signal(app, listening, ready, remotes.aclose)

    return asyncio.run(main())
