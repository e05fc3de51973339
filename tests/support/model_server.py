"""A loopback server that speaks chat completions from a list of replies, faults included.

    async with ModelServer([Reply(text="hello"), Reply(status=429, headers={"retry-after": "1"})]) as server:
        … server.base_url …
    assert server.requests[0].body["model"] == "m"

The n-th request gets the n-th reply; the last one repeats. A reply goes out as a stream when the request
asks for one. For tests that block (``subprocess.run``) there is `model_server`, which serves from a thread.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True)
class Reply:
    """One answer.

    Attributes:
        text: Visible text, sent in pieces of ``chunk`` characters.
        reasoning: Sent as ``reasoning_content``.
        tool_calls: ``(name, arguments)``; arguments that are text go out as they are.
        finish: Finish reason; default: ``tool_calls`` or ``stop``.
        usage: Usage object; ``None``: none is told.
        status: HTTP status; other than 200 the body is ``error`` as OpenAI would wrap it.
        headers: More headers.
        error: Message of an error, or its whole body.
        body: Sent as it is instead of all the above.
        content_type: Of ``body``.
        stream: Whether to stream; default: as asked.
        done: Whether a stream ends with its end mark.
        cut_after: Bytes of the body after which the connection is reset.
        stall_after: Bytes of the body after which nothing more comes, until the client goes away.
        delay_s: Seconds before the first byte.
        chunk_delay_s: Seconds between chunks of the stream.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: Sequence[tuple[str, dict[str, Any] | str]] = ()
    finish: str | None = None
    usage: dict[str, Any] | None = field(
        default_factory=lambda: {"prompt_tokens": 10, "completion_tokens": 5}
    )
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    error: str | dict[str, Any] = "scripted error"
    body: bytes | None = None
    content_type: str = "application/json"
    stream: bool | None = None
    done: bool = True
    cut_after: int | None = None
    stall_after: int | None = None
    delay_s: float = 0
    chunk_delay_s: float = 0
    chunk: int = 8


@dataclass(frozen=True)
class Request:
    """One request as it was received; ``body`` is its JSON, or ``None``."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes
    body: Any

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Messages of the request."""
        return self.body["messages"]


class ModelServer:
    """The server; see the module's docstring.

    Attributes:
        requests: All requests for completions, in order.
        cancelled: How many clients went away before their answer was complete.
        connections: How many connections were made.
        tls: Certificate and key, for https.
    """

    def __init__(
        self,
        replies: Sequence[Reply],
        models: Sequence[str] = ("scripted",),
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._tls = tls
        self.replies = list(replies)
        self.models = list(models)
        self.requests: list[Request] = []
        self.cancelled = 0
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """Port on 127.0.0.1."""
        assert self._server is not None, "the server is not running"
        return self._server.sockets[0].getsockname()[1]

    @property
    def base_url(self) -> str:
        """Address for ``base_url`` settings."""
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._client, "127.0.0.1", 0, ssl=self._tls)
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while await self._serve(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            self.cancelled += 1
        except asyncio.CancelledError:
            pass
        finally:
            self._tasks.discard(task)
            with suppress(Exception):
                writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readline()
        if not head:
            return False
        method, path, _ = head.decode("latin-1").split(" ", 2)
        headers: dict[str, str] = {}
        while (line := await reader.readline()) not in {b"\r\n", b""}:
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        if method == "GET":
            listed = {"object": "list", "data": [{"id": name} for name in self.models]}
            await self._send(reader, writer, Reply(body=json.dumps(listed).encode()), stream=False)
            return True
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        reply = self.replies[min(len(self.requests), len(self.replies) - 1)]
        self.requests.append(Request(method, path, headers, raw, body))
        asked = bool(isinstance(body, dict) and body.get("stream"))
        return await self._send(reader, writer, reply, stream=asked if reply.stream is None else reply.stream)

    async def _send(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reply: Reply, *, stream: bool
    ) -> bool:
        if reply.delay_s:
            await self._wait(reader, reply.delay_s)
        content_type, pieces = _body(reply, len(self.requests), stream=stream)
        head = [f"HTTP/1.1 {reply.status} X", f"content-type: {content_type}", "transfer-encoding: chunked"]
        head += [f"{name}: {value}" for name, value in reply.headers.items()]
        writer.write("\r\n".join(head).encode() + b"\r\n\r\n")
        sent = 0
        for piece in pieces:
            for limit in (reply.cut_after, reply.stall_after):
                if limit is not None and sent + len(piece) > limit:
                    _chunk(writer, piece[: limit - sent])
                    await writer.drain()
                    return await self._fault(reader, writer, reply)
            _chunk(writer, piece)
            sent += len(piece)
            if reply.chunk_delay_s:
                await writer.drain()
                await self._wait(reader, reply.chunk_delay_s)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _fault(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reply: Reply) -> bool:
        if reply.cut_after is None:
            await self._wait(reader, None)
        writer.transport.abort()
        return False

    async def _wait(self, reader: asyncio.StreamReader, seconds: float | None) -> None:
        """Wait, but not longer than the client does.

        Raises:
            ConnectionResetError: The client went away.
        """
        try:
            async with asyncio.timeout(seconds):
                if not await reader.read(1):
                    raise ConnectionResetError
        except TimeoutError:
            return


def _chunk(writer: asyncio.StreamWriter, piece: bytes) -> None:
    if piece:
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))


def _body(reply: Reply, number: int, *, stream: bool) -> tuple[str, list[bytes]]:
    if reply.body is not None:
        return reply.content_type, [reply.body]
    if reply.status != 200:
        error = {"message": reply.error} if isinstance(reply.error, str) else reply.error
        return "application/json", [json.dumps({"error": error}).encode()]
    calls = [
        {
            "id": f"call_{number}_{k}",
            "type": "function",
            "function": {"name": name, "arguments": args if isinstance(args, str) else json.dumps(args)},
        }
        for k, (name, args) in enumerate(reply.tool_calls)
    ]
    finish = ("tool_calls" if calls else "stop") if reply.finish is None else reply.finish
    if stream:
        return "text/event-stream", list(_events(reply, calls, finish))
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": finish}
    whole = {"id": f"cmpl-{number}", "model": "scripted", "choices": [choice], "usage": reply.usage}
    return "application/json", [json.dumps(whole).encode()]


def _events(reply: Reply, calls: list[dict[str, Any]], finish: str) -> Iterator[bytes]:
    def event(delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return b"data: %s\n\n" % json.dumps({"model": "scripted", "choices": [choice]}).encode()

    yield event({"role": "assistant", "content": ""})
    for name, text in (("reasoning_content", reply.reasoning), ("content", reply.text)):
        for start in range(0, len(text), reply.chunk):
            yield event({name: text[start : start + reply.chunk]})
    for index, call in enumerate(calls):
        function = call["function"]
        yield event({"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]})
        for start in range(0, len(function["arguments"]), reply.chunk):
            piece = function["arguments"][start : start + reply.chunk]
            yield event({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield event({}, finish)
    if reply.usage is not None:
        yield b"data: %s\n\n" % json.dumps({"choices": [], "usage": reply.usage}).encode()
    if reply.done:
        yield b"data: [DONE]\n\n"


@contextmanager
def model_server(replies: Sequence[Reply], models: Sequence[str] = ("scripted",)) -> Iterator[ModelServer]:
    """Serve from a thread of its own, for tests that block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = ModelServer(replies, models)
    try:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(5)
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result(5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()
