"""Stdio transport for the SDK's client over aar's own processes: walled, killed as a tree, bounded.

Imported only when a server is started: it needs the SDK.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage

from aar.protocol.errors import McpError
from aar.protocol.ports import SpawnRequest
from aar.safety.spawn import ProcessSpawner
from aar.safety.spawn_process import InteractiveProcess, ServedProcess

MAX_LINE = 32_000_000
"""Bytes of one message."""
_MAX_WAITING = 64_000_000
_FLOOD_MESSAGES = 20_000
_FLOOD_S = 5.0
_GRACE_S = 1.0


class _Lines:
    """Bytes of standard output as they come, cut into lines; tells when there is too much."""

    def __init__(self) -> None:
        self._partial = bytearray()
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._count = 0
        self._window = 0.0
        self._wake = asyncio.Event()
        self._ended = False
        self.failure: str | None = None
        self.over = asyncio.Event()

    def add(self, data: bytes) -> None:
        """Take a piece of output."""
        if self.failure is not None:
            return
        self._partial += data
        if b"\n" in data:
            *lines, rest = bytes(self._partial).split(b"\n")
            self._partial = bytearray(rest)
            for line in lines:
                self._bytes += len(line)
                self._waiting.append(line)
            self._watch(len(lines))
        if len(self._partial) > MAX_LINE:
            self._fail(f"sent a message of more than {MAX_LINE:,} bytes")
        elif self._bytes > _MAX_WAITING:
            self._fail("sent more than could be read")
        self._wake.set()

    def _watch(self, lines: int) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._window > _FLOOD_S:
            self._window, self._count = now, 0
        self._count += lines
        if self._count > _FLOOD_MESSAGES:
            self._fail(f"sent more than {_FLOOD_MESSAGES:,} messages within {_FLOOD_S:g} s")

    def _fail(self, what: str) -> None:
        self.failure = f"The server {what} and was ended."
        self._waiting.clear()
        self._partial.clear()
        self.over.set()

    def end(self) -> None:
        """Take note that no more will come."""
        self._ended = True
        self._wake.set()

    async def next(self) -> bytes | None:
        """Return the next line, ``None`` after the last."""
        while not self._waiting:
            if self._ended or self.failure is not None:
                return None
            self._wake.clear()
            await self._wake.wait()
        line = self._waiting.popleft()
        self._bytes -= len(line)
        return line


@contextlib.asynccontextmanager
async def spawned(
    spawner: ProcessSpawner,
    request: SpawnRequest,
    on_stderr: Callable[[bytes], None],
    on_end: Callable[[str], None],
) -> AsyncGenerator[TransportStreams]:
    """Start a server and yield the streams that the SDK's client speaks through.

    Args:
        spawner: Starts it.
        request: What to start; its standard streams are set here.
        on_stderr: Gets what it writes to standard error.
        on_end: Told once in a sentence when it ended by itself or had to be ended.

    Raises:
        SandboxError: The wall could not be raised.
        OSError: It cannot be executed.
    """
    lines = _Lines()
    theirs, ours = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(ours, False)
    try:
        request = _with_stdin(request, theirs)
        process = await spawner.start(request, lines.add, on_stderr)
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    incoming, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](64)
    write_stream, outgoing = anyio.create_memory_object_stream[SessionMessage](64)
    tasks = [
        asyncio.create_task(_read(lines, incoming)),
        asyncio.create_task(_write(outgoing, ours)),
        asyncio.create_task(_watch(process, lines, on_end)),
    ]
    try:
        yield read_stream, write_stream
    finally:
        for task in tasks:
            task.cancel()
        os.close(ours)
        with anyio.CancelScope(shield=True):
            await asyncio.wait(tasks)
            # A server ends when its input does; who takes too long is killed with all its children.
            await process.ended_within(_GRACE_S)
            await process.kill()
        for stream in (incoming, read_stream, write_stream, outgoing):
            stream.close()


def _with_stdin(request: SpawnRequest, fd: int) -> SpawnRequest:
    return replace(request, stdin_fd=fd, merge_stderr=False, max_output=4096, timeout_s=None)


async def _read(lines: _Lines, incoming: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    """Hand on messages; what is no message becomes an error that the session logs."""
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async with incoming:
            while (line := await lines.next()) is not None:
                if not line.strip():
                    continue
                try:
                    message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    await incoming.send(McpError("The server wrote a line that is no message."))
                    continue
                await incoming.send(SessionMessage(message))


async def _write(outgoing: MemoryObjectReceiveStream[SessionMessage], fd: int) -> None:
    """Write messages to the server, as fast as it reads."""
    async for item in outgoing:
        data = memoryview(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        try:
            while data:
                data = data[await _write_some(fd, data) :]
        except OSError:
            return  # it ended; `_watch` tells


async def _write_some(fd: int, data: memoryview) -> int:
    try:
        return os.write(fd, data)
    except BlockingIOError:
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        loop.add_writer(fd, lambda: ready.done() or ready.set_result(None))
        try:
            await ready
        finally:
            loop.remove_writer(fd)
        return 0


async def _watch(
    process: ServedProcess | InteractiveProcess, lines: _Lines, on_end: Callable[[str], None]
) -> None:
    """Tell when the server is gone; end one that sends too much."""
    assert isinstance(process, ServedProcess)
    process.on_end(lines.over.set)
    await lines.over.wait()
    if lines.failure is not None:
        # Told first: with the end of the messages this task ends too.
        on_end(lines.failure)
        await process.kill()
    else:
        code = (await process.wait()).exit_code
        on_end("The server ended." if code == 0 else f"The server ended with exit code {code}.")
    lines.end()
