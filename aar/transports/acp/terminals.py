"""Commands in the editor's terminals: ``aar sandbox exec`` runs them there, behind the same wall.

Only where that is truly the same: a session whose wall, folders and hosts the command line can say. All
else, such as commands in the background, runs as ever, and its output is streamed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from aar.protocol.ports import Process, Spawner, SpawnRequest, SpawnResult
from aar.runtime.parts import Runtime
from aar.runtime.policy import model_hosts
from aar.transports.acp.messages import RpcError, object_of
from aar.transports.acp.snippets import command

Ask = Callable[[str, dict[str, Any]], Awaitable[Any]]
Show = Callable[[str, str], bool]
"""``show(call_id, terminal_id)``: put a terminal into a tool call; false where there is no such call."""
_CREATED_S = 30.0
_LAST_WORDS_S = 5.0
_NOT_SAID = frozenset({"config_file", "profile", "sets", "add_dirs", "base_url"})
"""Options of `open_runtime` that change the wall, and that `aar sandbox exec` does not take."""


class EditorTerminals:
    """The terminals of one session.

    Args:
        runtime: Of the session.
        options: With which it was opened.
        ask: Sends a request of the session to the editor.
        show: See `Show`.
    """

    def __init__(self, runtime: Runtime, options: dict[str, Any], ask: Ask, show: Show) -> None:
        self._runtime = runtime
        self._said = not any(options.get(name) for name in _NOT_SAID)
        self.ask = ask
        self.show = show
        self.refused = False

    def spawner(self, call_id: str) -> Spawner:
        """Return what starts the processes of one tool call."""
        return _CallSpawner(self, self._runtime.spawner, call_id)

    def takes(self, request: SpawnRequest) -> bool:
        """Tell whether a command may run in a terminal."""
        runtime = self._runtime
        plain = request.kind == "tool" and request.timeout_s is not None and not request.network
        as_it_is = not (request.env or request.stdin or request.stdin_fd or request.writable)
        walled = runtime.mode != "unsafe" and runtime.spawner.wall != "none" and not request.read_only
        folders = not (runtime.roots or runtime.base.writable or model_hosts(runtime.config))
        return self._said and not self.refused and plain and as_it_is and walled and folders

    def line(self, request: SpawnRequest) -> list[str]:
        """Return the command line that runs ``request`` behind the wall of the session."""
        spawner = self._runtime.spawner
        domains = [word for rule in spawner.egress.domains.rules for word in ("--allow-domain", str(rule))]
        return [*command()[:-1], "sandbox", "exec", "--wall", spawner.wall, *domains, "--", *request.argv]


class _CallSpawner:
    """Starts the commands of one call in a terminal where that may be; implements `Spawner`."""

    def __init__(self, terminals: EditorTerminals, own: Spawner, call_id: str) -> None:
        self._terminals = terminals
        self._own = own
        self._call_id = call_id

    @property
    def wall(self) -> str:
        """Name of the wall around commands."""
        return self._own.wall

    async def start(self, request: SpawnRequest, on_output: Callable[[bytes], None] | None = None) -> Process:
        """Start a process."""
        if self._terminals.takes(request):
            made = await self._in_terminal(request)
            if made is not None:
                return made
        return await self._own.start(request, on_output)

    async def run(
        self, request: SpawnRequest, on_output: Callable[[bytes], None] | None = None
    ) -> SpawnResult:
        """Start a process and wait for its end."""
        process = await self.start(request, on_output)
        return await process.wait()

    async def _in_terminal(self, request: SpawnRequest) -> TerminalProcess | None:
        """Start a command in a terminal; ``None``: the editor did not give one."""
        program, *args = self._terminals.line(request)
        home = os.environ.get("AAR_HOME")
        params = {
            "command": program,
            "args": args,
            "env": [{"name": "AAR_HOME", "value": home}] if home else [],
            "cwd": str(request.cwd),
            "outputByteLimit": request.max_output,
        }
        try:
            async with asyncio.timeout(_CREATED_S):
                answer = await self._terminals.ask("terminal/create", params)
            name = answer["terminalId"]
        except (RpcError, KeyError, TypeError, TimeoutError):
            self._terminals.refused = True
            return None
        process = TerminalProcess(str(name), request, self._terminals.ask, self._own.wall)
        self._terminals.show(self._call_id, str(name))
        return process


class TerminalProcess:
    """A command in a terminal of the editor; implements `Process`."""

    pid = 0

    def __init__(self, name: str, request: SpawnRequest, ask: Ask, wall: str) -> None:
        self._name = name
        self._request = request
        self._ask = ask
        self._wall = wall
        self._began = time.monotonic()
        self._timed_out = False
        self._output = b""
        self._deadline: asyncio.Timeout | None = None
        self._ended: SpawnResult | None = None
        self._over = asyncio.Event()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._ended is None

    def output(self) -> bytes:
        """Return what the terminal showed when it was last asked."""
        return self._output

    def lift_time_limit(self) -> None:
        """Let it run for as long as it takes."""
        if self._deadline is not None:
            self._deadline.reschedule(None)

    async def ended_within(self, seconds: float) -> bool:
        """Wait up to ``seconds`` until it is known that it ended; return whether it is."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()
        return not self.running

    async def kill(self) -> None:
        """Kill it; its output can still be read."""
        await self._tell("terminal/kill")

    async def wait(self) -> SpawnResult:
        """Wait for the end. Cancelling the wait kills it. The terminal is given back in any case."""
        if self._ended is not None:
            return self._ended
        status: Any = None
        try:
            try:
                async with asyncio.timeout(self._request.timeout_s) as self._deadline:
                    status = await self._tell("terminal/wait_for_exit")
            except TimeoutError:
                self._timed_out = True
            except asyncio.CancelledError:
                await asyncio.shield(self._end(None))
                raise
        finally:
            self._deadline = None
        return await asyncio.shield(self._end(status))

    async def _end(self, status: Any) -> SpawnResult:
        """Read what was written, give the terminal back, and tell how it ended."""
        told: Any = None
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                if status is None:
                    await self.kill()
                told = await self._tell("terminal/output")
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                await self._tell("terminal/release")
        shown = object_of(told)
        if status is None:
            status = shown.get("exitStatus")
        code = object_of(status).get("exitCode")
        self._output = str(shown.get("output") or "").encode()
        if self._request.spool is not None and shown.get("truncated") is True:
            await asyncio.to_thread(self._request.spool.write_bytes, self._output)
        self._ended = SpawnResult(
            output=self._output,
            stderr=b"",
            exit_code=code if isinstance(code, int) else None,
            total_bytes=len(self._output),
            truncated=shown.get("truncated") is True,
            timed_out=self._timed_out,
            duration_s=time.monotonic() - self._began,
            wall=self._wall,
        )
        self._over.set()
        return self._ended

    async def _tell(self, method: str) -> Any:
        try:
            return await self._ask(method, {"terminalId": self._name})
        except RpcError:
            return None  # the terminal or the editor has gone; what is known is told
