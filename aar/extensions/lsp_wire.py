"""One language server's process, and the messages of the Language Server Protocol over its pipes.

Framing and messages: https://microsoft.github.io/language-server-protocol/specifications/lsp/3.17/specification/.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from aar.protocol.errors import AarError
from aar.protocol.ports import SpawnRequest
from aar.safety.spawn import ProcessSpawner
from aar.safety.spawn_process import InteractiveProcess, ServedProcess

JsonDict = dict[str, Any]
_MAX_MESSAGE = 32_000_000
_MAX_HEAD = 4096
_STDERR_BYTES = 4096
_GRACE_S = 0.5
_NO_METHOD = -32601
ENDED = "$/ended"
"""Told like a method of the server when it is gone."""


class LspError(AarError):
    """A language server ended, refused or broke the protocol."""


class Frames:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[JsonDict]:
        """Take a piece; return the messages that are whole now.

        Raises:
            LspError: It is no message, or too long.
        """
        self._data += data
        found: list[JsonDict] = []
        while (message := self._next()) is not None:
            found.append(message)
        return found

    def _next(self) -> JsonDict | None:
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            if len(self._data) > _MAX_HEAD:
                raise LspError("it does not speak the protocol of language servers")
            return None
        length = _length(bytes(self._data[:end]))
        start = end + 4
        if len(self._data) < start + length:
            return None
        body = bytes(self._data[start : start + length])
        del self._data[: start + length]
        try:
            message = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise LspError("it sent a message that is no JSON") from error
        if not isinstance(message, dict):
            raise LspError("it sent a message that is no object")
        return cast("JsonDict", message)


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            length = int(value)
            if length <= _MAX_MESSAGE:
                return length
            raise LspError(f"it sent a message of {length:,} bytes")
    raise LspError("it does not speak the protocol of language servers")


def framed(message: Mapping[str, Any]) -> bytes:
    """Return a message as it goes over the wire."""
    body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


class Wire:
    """Talks to one process.

    Args:
        on_notice: Gets method and parameters of what the server tells by itself.
        answer: Answers what the server asks; ``None`` for what is not known.
    """

    def __init__(
        self,
        on_notice: Callable[[str, JsonDict], None],
        answer: Callable[[str, JsonDict], Any],
    ) -> None:
        self._on_notice, self._answer = on_notice, answer
        self._frames = Frames()
        self._number = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._process: ServedProcess | InteractiveProcess | None = None
        self._out: asyncio.WriteTransport | None = None
        self._stderr = bytearray()
        self._ending: asyncio.Task[None] | None = None
        self.ended: str | None = None
        """Why it can be used no more; ``None``: it can."""

    async def start(self, spawner: ProcessSpawner, request: SpawnRequest) -> None:
        """Start the process.

        Raises:
            SandboxError: The wall could not be raised.
            OSError: It cannot be executed.
        """
        theirs, ours = os.pipe2(os.O_CLOEXEC)
        try:
            process = await spawner.start(
                replace(request, stdin_fd=theirs, merge_stderr=False, max_output=4096, timeout_s=None),
                self._take,
                self._take_stderr,
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        self._process = process
        loop = asyncio.get_running_loop()
        self._out, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(ours, "wb", 0))
        assert isinstance(process, ServedProcess)
        process.on_end(lambda: self._end("it ended"))

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Tell the server something."""
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def ask(self, method: str, params: Mapping[str, Any] | None) -> Any:
        """Ask the server something; the caller says how long that may take.

        Raises:
            LspError: It refused, or it is gone.
        """
        self._number += 1
        number = self._number
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            return await future
        except asyncio.CancelledError:
            if self.ended is None:
                self.notify("$/cancelRequest", {"id": number})
            raise
        finally:
            self._waiting.pop(number, None)

    async def aclose(self) -> None:
        """End the process, with a word of warning where there is time for it."""
        if self._process is not None and self.ended is None:
            try:
                async with asyncio.timeout(_GRACE_S):
                    await self.ask("shutdown", None)
                    self.notify("exit", {})
                    await self._process.ended_within(_GRACE_S)
            except (LspError, TimeoutError):
                pass
        self._end("it was ended")
        if self._process is not None:
            await self._process.kill()
        if self._ending is not None:
            await asyncio.wait({self._ending})

    def _send(self, message: Mapping[str, Any]) -> None:
        if self._out is None or self.ended is not None:
            raise LspError(self.ended or "it is not running")
        self._out.write(framed(message))

    def _take_stderr(self, data: bytes) -> None:
        self._stderr += data
        del self._stderr[:-_STDERR_BYTES]

    def _take(self, data: bytes) -> None:
        if self.ended is not None:
            return
        try:
            for message in self._frames.feed(data):
                self._handle(message)
        except LspError as error:
            self._end(str(error))
            if self._process is not None:
                self._ending = asyncio.get_running_loop().create_task(self._process.kill())

    def _handle(self, message: JsonDict) -> None:
        method, number = message.get("method"), message.get("id")
        params = message.get("params")
        given = cast("JsonDict", params) if isinstance(params, dict) else {}
        if isinstance(method, str) and number is not None:
            found = self._answer(method, given)
            reply: JsonDict = {"jsonrpc": "2.0", "id": number}
            if found is NotImplemented:
                reply["error"] = {"code": _NO_METHOD, "message": "not known here"}
            else:
                reply["result"] = found
            self._send(reply)
        elif isinstance(method, str):
            self._on_notice(method, given)
        elif isinstance(number, int):
            future = self._waiting.get(number)
            if future is not None and not future.done():
                _settle(future, message)

    def _end(self, why: str) -> None:
        if self.ended is not None:
            return
        last = bytes(self._stderr).decode("utf-8", "replace").strip().splitlines()
        self.ended = f"{why}; its last words: {last[-1][:300]}" if last and why == "it ended" else why
        if self._out is not None:
            self._out.close()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(LspError(self.ended))
        self._on_notice(ENDED, {})


def _settle(future: asyncio.Future[Any], message: JsonDict) -> None:
    error = message.get("error")
    if isinstance(error, dict):
        future.set_exception(LspError(str(cast("JsonDict", error).get("message"))[:300]))
    else:
        future.set_result(message.get("result"))
