"""A loopback Ollama: facts of its models, and answers from a list, as lines of JSON or as one document."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True)
class Says:
    """One answer of ``/api/chat``.

    Attributes:
        text: Sent in pieces of seven characters.
        thinking: Sent before it, likewise.
        calls: ``(name, arguments)``, each in a line of its own.
        reason: ``done_reason``.
        prompt: ``prompt_eval_count``; ``None``: no counts are told.
        cached: ``prompt_eval_cached_count``.
        status: HTTP status; other than 200 the body is ``error``.
        error: Message of an error; with status 200 it comes as the last line.
        body: Sent as it is instead of all the above.
        done: Whether the last line comes.
    """

    text: str = ""
    thinking: str = ""
    calls: Sequence[tuple[str, Any]] = ()
    reason: str | None = "stop"
    prompt: int | None = 20
    cached: int | None = None
    status: int = 200
    error: str | None = None
    body: bytes | None = None
    done: bool = True

    def lines(self) -> list[bytes]:
        """Return the body as a stream."""
        messages: list[dict[str, Any]] = []
        for name, said in (("thinking", self.thinking), ("content", self.text)):
            messages += [{name: said[at : at + 7]} for at in range(0, len(said), 7)]
        messages += [{"tool_calls": [_call(name, arguments)]} for name, arguments in self.calls]
        lines = [_line({"message": {"role": "assistant", "content": "", **part}}) for part in messages]
        if self.error is not None:
            lines.append(json.dumps({"error": self.error}).encode() + b"\n")
        elif self.done:
            lines.append(_line({"message": {"role": "assistant", "content": ""}, **self.end()}))
        return lines

    def whole(self) -> bytes:
        """Return the body as one document."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.thinking:
            message["thinking"] = self.thinking
        if self.calls:
            message["tool_calls"] = [_call(name, arguments) for name, arguments in self.calls]
        return _line({"message": message, **self.end()}).rstrip(b"\n")

    def end(self) -> dict[str, Any]:
        """Return the fields of the last line."""
        fields: dict[str, Any] = {"done": True}
        if self.reason is not None:
            fields["done_reason"] = self.reason
        if self.prompt is not None:
            fields |= {"prompt_eval_count": self.prompt, "eval_count": 6, "total_duration": 5_000_000}
        if self.cached is not None:
            fields["prompt_eval_cached_count"] = self.cached
        return fields


def _call(name: str, arguments: Any) -> dict[str, Any]:
    # Ollama numbers all calls 0 where they come in lines of their own, and gives no ids.
    return {"function": {"index": 0, "name": name, "arguments": arguments}}


def _line(fields: dict[str, Any]) -> bytes:
    head = {"model": "scripted", "created_at": "2026-01-01T00:00:00Z", "done": False}
    return json.dumps({**head, **fields}, ensure_ascii=False).encode() + b"\n"


@dataclass
class OllamaServer:
    """The server.

    Attributes:
        replies: The n-th question gets the n-th; the last repeats.
        facts: Answer of ``/api/show``; ``None``: 404.
        models: Names that ``/api/tags`` lists.
        show_delay_s: Seconds before the facts are told.
        port: On 127.0.0.1; 0: any that is free.
        requests: Bodies of all questions.
        shown: For which models facts were asked.
        headers: Of the last question, names in lower case.
    """

    replies: Sequence[Says]
    facts: dict[str, Any] | None = None
    models: Sequence[str] = ()
    show_delay_s: float = 0
    port: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def base_url(self) -> str:
        """Address of the server."""
        assert self._server is not None, "the server is not running"
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._client, "127.0.0.1", self.port)
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
        try:
            while await self._serve(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            with suppress(Exception):
                writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readline()
        if not head:
            return False
        path = head.decode("latin-1").split(" ")[1]
        headers: dict[str, str] = {}
        while (line := await reader.readline()) not in {b"\r\n", b""}:
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        status, pieces = await self._answer(path, raw, headers)
        writer.write(f"HTTP/1.1 {status} X\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        for piece in pieces:
            if piece:
                writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _answer(self, path: str, raw: bytes, headers: dict[str, str]) -> tuple[int, list[bytes]]:
        if path == "/api/tags":
            return 200, [json.dumps({"models": [{"name": name} for name in self.models]}).encode()]
        if path == "/api/show":
            self.shown.append(json.loads(raw)["model"])
            await asyncio.sleep(self.show_delay_s)
            return (404, [b"{}"]) if self.facts is None else (200, [json.dumps(self.facts).encode()])
        if path != "/api/chat":
            return 404, [b'{"error":"no such path"}']
        self.headers = headers
        self.requests.append(json.loads(raw))
        reply = self.replies[min(len(self.requests), len(self.replies)) - 1]
        if reply.body is not None:
            return reply.status, [reply.body]
        if reply.status != 200:
            return reply.status, [json.dumps({"error": reply.error}).encode()]
        stream = self.requests[-1].get("stream", True)
        return 200, reply.lines() if stream else [reply.whole()]
