"""Processes as aar sees them: one below the spawn server, or one that the user opened."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from aar.protocol.errors import SandboxError
from aar.protocol.ports import SpawnRequest, SpawnResult
from aar.safety.stream_buffer import StreamBuffer

if TYPE_CHECKING:
    from aar.safety.sandbox.guard import Guard

_READ_SIZE = 1 << 16
_DRAIN_TIMEOUT_S = 0.5
_KILL_TIMEOUT_S = 1.0
_LOOK_S = 0.02

OnOutput = Callable[[bytes], None]
Afterwards = Callable[[SpawnResult], SpawnResult]
"""Called once when a process has ended, with its result; returns it with what else is to be said."""


class ServedProcess:
    """A process below the spawn server; implements `aar.protocol.ports.Process`.

    Attributes:
        guard: Restores protected paths at its end; ``None``: it can reach none.
    """

    def __init__(
        self,
        request: SpawnRequest,
        control: socket.socket,
        pipes: list[int],
        wall: str,
        on_output: OnOutput | None,
        on_error: OnOutput | None,
        afterwards: Afterwards,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._began = time.monotonic()
        self.guard: Guard | None = None
        self._control = control
        self._lines = b""
        self._wall = wall
        self._on_output = dict.fromkeys(pipes[:1], on_output) | dict.fromkeys(
            pipes[1:], on_error or on_output
        )
        self._afterwards = afterwards
        self._limit: str | None = None
        self._buffers = [StreamBuffer(request.max_output, request.spool)]
        if len(pipes) > 1:
            self._buffers.append(StreamBuffer(request.max_output))
        self._pipes = dict(zip(pipes, self._buffers, strict=True))
        self._pid = 0
        self._exit_code: int | None = None
        self._timed_out = False
        self._failure: tuple[str, int, str] | None = None
        self._tree_gone = False
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[SpawnResult] = self._loop.create_future()
        self._timers: list[asyncio.TimerHandle] = []
        control.setblocking(False)
        self._loop.add_reader(control, self._read_control)
        for pipe in pipes:
            os.set_blocking(pipe, False)
            self._loop.add_reader(pipe, self._read_pipe, pipe)
        if request.timeout_s is not None:
            self._timers.append(self._loop.call_later(request.timeout_s, self._on_timeout))

    @property
    def pid(self) -> int:
        """Process id; also its process group."""
        return self._pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return not self._ended.done()

    @property
    def failure(self) -> tuple[str, int, str] | None:
        """Stage, errno and text when the process could not be started."""
        return self._failure

    def output(self) -> bytes:
        """Head and tail of what was written so far."""
        return self._buffers[0].value()

    async def started(self) -> None:
        """Wait until the program runs, or has failed to."""
        try:
            await asyncio.shield(self._started)
        except asyncio.CancelledError:
            await self.kill()
            raise

    async def wait(self) -> SpawnResult:
        """Wait for the end. Cancelling the wait kills the tree.

        Raises:
            SandboxError: The wall failed after the process was started.
        """
        try:
            result = await asyncio.shield(self._ended)
        except asyncio.CancelledError:
            await self.kill()
            raise
        if self._failure is not None and self._failure[0] == "wall":
            raise SandboxError(
                f"The wall could not be raised: {self._failure[2]}: {_last_line(result.output)}"
            )
        return result

    async def ended_within(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for the end; return whether it came. Cancelling leaves the process alone."""
        await asyncio.wait([self._ended], timeout=seconds)
        return not self.running

    async def kill(self) -> None:
        """Kill the tree; returns within a second."""
        self._ask_to_die()
        if not await self.ended_within(_KILL_TIMEOUT_S):
            self._finish()

    def lift_time_limit(self) -> None:
        """Let it run for as long as it takes; one that is being killed for time is killed."""
        if not self._timed_out:
            for timer in self._timers:
                timer.cancel()

    @property
    def wall(self) -> str:
        """Name of the wall around it."""
        return self._wall

    @property
    def outlives(self) -> bool:
        """Whether it can go on without aar: nobody need compare and restore what its wall leaves open."""
        watched = self.guard is not None and self.guard.unwanted is None
        return len(self._pipes) == 1 and self._wall in ("bubblewrap", "namespaces", "none") and not watched

    def let_go(self, log: int) -> None:
        """Let it go on without aar, in the wall in which it is; all that it writes goes to the file ``log``.

        Nobody can end it by this object any more.

        Raises:
            OSError: Its supervisor is gone.
        """
        os.write(log, self._buffers[0].value())
        [pipe] = self._pipes
        socket.send_fds(self._control, [b"d"], [pipe, log])
        self._afterwards = _as_it_is
        self._finish()

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once the process has ended."""
        self._ended.add_done_callback(lambda _: callback())

    def abandon(self) -> None:
        """Drop everything at once: the supervisor kills the tree when the control socket closes."""
        self._finish()

    def _ask_to_die(self) -> None:
        if self.running and not self._tree_gone:
            with contextlib.suppress(OSError):
                self._control.send(b"k")

    def _on_timeout(self) -> None:
        if self._exit_code is None and self.running:
            self._timed_out = True
            self._ask_to_die()
            self._timers.append(self._loop.call_later(_KILL_TIMEOUT_S, self._finish))

    def _read_control(self) -> None:
        try:
            data = self._control.recv(4096)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        self._lines += data
        *lines, self._lines = self._lines.split(b"\n")
        for line in lines:
            self._take(line.decode(errors="replace"))
        if not data:
            self._on_tree_gone()

    def _take(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "started":
            self._pid = int(rest)
        elif word == "failed":
            stage, code, *text = rest.split(" ", 2)
            self._failure = (stage, int(code), " ".join(text))
        elif word == "limit":
            self._limit = rest
        elif word == "exit":
            self._exit_code = int(rest)
        elif word == "gone":
            self._on_tree_gone()
        if word in ("started", "failed") and not self._started.done():
            self._started.set_result(None)

    def _on_tree_gone(self) -> None:
        if self._tree_gone:
            return
        self._tree_gone = True
        self._loop.remove_reader(self._control)
        if not self._pipes:
            self._finish()
            return
        # All writers are dead, so the pipes end by themselves; the timer is for what escaped the tree.
        self._timers.append(self._loop.call_later(_DRAIN_TIMEOUT_S, self._finish))

    def _read_pipe(self, pipe: int) -> None:
        try:
            data = os.read(pipe, _READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._close_pipe(pipe)
            if self._tree_gone and not self._pipes:
                self._finish()
            return
        self._pipes[pipe].add(data)
        if (listener := self._on_output[pipe]) is not None:
            listener(data)

    def _close_pipe(self, pipe: int) -> None:
        self._loop.remove_reader(pipe)
        del self._pipes[pipe]
        os.close(pipe)

    def _finish(self) -> None:
        if self._ended.done():
            return
        for timer in self._timers:
            timer.cancel()
        if not self._loop.is_closed():
            self._loop.remove_reader(self._control)
            for pipe in list(self._pipes):
                self._close_pipe(pipe)
        self._control.close()
        for buffer in self._buffers:
            buffer.close()
        result = self._afterwards(self._result())
        if self._loop.is_closed():
            return
        if not self._started.done():
            self._failure = self._failure or ("internal", 0, "the spawn server ended")
            self._started.set_result(None)
        self._ended.set_result(result)

    def _result(self) -> SpawnResult:
        first, *more = self._buffers
        result = SpawnResult(
            output=first.value(),
            stderr=more[0].value() if more else b"",
            exit_code=self._exit_code,
            total_bytes=sum(buffer.total for buffer in self._buffers),
            truncated=any(buffer.truncated for buffer in self._buffers),
            timed_out=self._timed_out,
            duration_s=time.monotonic() - self._began,
            wall=self._wall,
        )
        if self._limit is None:
            return result
        return add_notices(result, (f"The command was ended: it went over the limit of {self._limit}.",))


def _as_it_is(result: SpawnResult) -> SpawnResult:
    return result


def add_notices(result: SpawnResult, notices: tuple[str, ...]) -> SpawnResult:
    """Return ``result`` with sentences for people, which the model sees at the end of the output."""
    if not notices:
        return result
    lines = "".join(f"[aar: {notice}]\n" for notice in notices).encode(errors="replace")
    gap = b"" if not result.output or result.output.endswith(b"\n") else b"\n"
    return replace(result, output=result.output + gap + lines, notices=(*result.notices, *notices))


def _last_line(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it gave no reason"


class InteractiveProcess:
    """A program that the user opened: it has the terminal, and nothing of it is kept."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._began = time.monotonic()

    @property
    def pid(self) -> int:
        """Process id. It stays in aar's own process group, so that the terminal's keys reach it."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def output(self) -> bytes:
        """Nothing: its output went to the terminal."""
        return b""

    async def wait(self) -> SpawnResult:
        """Wait for the end. Cancelling the wait kills it."""
        try:
            await self.ended_within(math.inf)
        except asyncio.CancelledError:
            await self.kill()
            raise
        code = self._process.returncode
        return SpawnResult(b"", b"", code, 0, False, False, time.monotonic() - self._began, "none")

    async def ended_within(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for the end; return whether it came. Cancelling leaves the process alone."""
        deadline = time.monotonic() + seconds
        while self.running and time.monotonic() < deadline:  # noqa: ASYNC110 - Popen has nothing to wait for
            await asyncio.sleep(_LOOK_S)
        return not self.running

    def lift_time_limit(self) -> None:
        """Do nothing: what the user opened has no limit."""

    async def kill(self) -> None:
        """Ask it to end, then end it."""
        self._process.terminate()
        await self.ended_within(_KILL_TIMEOUT_S / 2)
        self._process.kill()
