"""The one way to start a process (DESIGN 1.3, 12).

`ProcessSpawner` keeps a spawn server (see ``spawn_server``), started with the first process. Each process
has a control socket of its own: it tells how the process fares, and closing it ends the whole tree.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import marshal
import os
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from aar.config.schema import SandboxConfig
from aar.protocol.errors import SandboxError
from aar.protocol.ports import SpawnRequest, SpawnResult
from aar.safety.environment import child_environment
from aar.safety.sandbox.base import Fence, Limits, Plan, Probe, Wall, WallStatus
from aar.safety.sandbox.choose import choose_wall
from aar.safety.sandbox.git_folders import outside_git_folders
from aar.safety.sandbox.secrets import expand, own_folders, protected_paths, secret_paths
from aar.safety.stream_buffer import StreamBuffer

_HEADER = struct.Struct("!IB")
_READ_SIZE = 1 << 16
_PROBE_TIMEOUT_S = 5.0
_DRAIN_TIMEOUT_S = 0.5
_KILL_TIMEOUT_S = 1.0

OnOutput = Callable[[bytes], None]


class SpawnServer:
    """aar's end of the spawn server; started with the first request, and again should it have died."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._pid: int | None = None
        self._lock = threading.Lock()

    def send(self, body: dict[str, object], fds: Sequence[int]) -> None:
        """Hand over one request with its descriptors.

        Raises:
            SandboxError: The server cannot be started.
        """
        data = marshal.dumps(body)
        with self._lock:
            for attempt in (1, 2):
                if self._socket is None:
                    self._start()
                assert self._socket is not None
                try:
                    ancillary = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
                    self._socket.sendmsg([_HEADER.pack(len(data), len(fds))], [ancillary])
                    self._socket.sendall(data)
                except OSError as error:
                    self._stop()
                    if attempt == 2:
                        raise SandboxError(f"The spawn server does not answer: {error}.") from error
                else:
                    return

    def warm(self) -> None:
        """Start the server now, so that it gets ready while other work is done. Failures show later."""
        with self._lock, contextlib.suppress(SandboxError):
            if self._socket is None:
                self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        script = Path(__file__).with_name("spawn_server.py")
        argv = [sys.executable, "-I", "-S", "-E", "-X", "utf8", str(script), str(theirs.fileno())]
        try:
            # Popen would want to wait for it; the server ends by itself when our socket closes.
            process = subprocess.Popen(  # noqa: S603 - our own script
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"PATH": os.environ.get("PATH", os.defpath)},
                pass_fds=(theirs.fileno(),),
            )
        except OSError as error:
            ours.close()
            raise SandboxError(f"The spawn server cannot be started: {error}.") from error
        finally:
            theirs.close()
        self._socket, self._pid = ours, process.pid
        process.returncode = 0  # reaped in _stop, not by Popen's finaliser

    def _stop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._pid is not None:
            _reap(self._pid, _KILL_TIMEOUT_S)
            self._pid = None

    def close(self) -> None:
        """End the server and all that it started."""
        with self._lock:
            self._stop()


def _reap(pid: int, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.002)


class ServedProcess:
    """A process below the spawn server; implements `aar.protocol.ports.Process`."""

    def __init__(
        self,
        request: SpawnRequest,
        control: socket.socket,
        pipes: list[int],
        wall: str,
        on_output: OnOutput | None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._began = time.monotonic()
        self._control = control
        self._lines = b""
        self._wall = wall
        self._on_output = on_output
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
        """Wait for the end. Cancelling the wait kills the tree."""
        try:
            return await asyncio.shield(self._ended)
        except asyncio.CancelledError:
            await self.kill()
            raise

    async def kill(self) -> None:
        """Kill the tree; returns within a second."""
        self._ask_to_die()
        await asyncio.wait([self._ended], timeout=_KILL_TIMEOUT_S)
        if self.running:
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
        if self._on_output is not None:
            self._on_output(data)

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
        if self._loop.is_closed():
            return
        if not self._started.done():
            self._failure = self._failure or ("internal", 0, "the spawn server ended")
            self._started.set_result(None)
        self._ended.set_result(self._result())

    def _result(self) -> SpawnResult:
        first, *more = self._buffers
        return SpawnResult(
            output=first.value(),
            stderr=more[0].value() if more else b"",
            exit_code=self._exit_code,
            total_bytes=sum(buffer.total for buffer in self._buffers),
            truncated=any(buffer.truncated for buffer in self._buffers),
            timed_out=self._timed_out,
            duration_s=time.monotonic() - self._began,
            wall=self._wall,
        )


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
            while self.running:  # noqa: ASYNC110 - Popen has nothing to wait for
                await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            await self.kill()
            raise
        code = self._process.returncode
        return SpawnResult(b"", b"", code, 0, False, False, time.monotonic() - self._began, "none")

    async def kill(self) -> None:
        """Ask it to end, then end it."""
        self._process.terminate()
        deadline = time.monotonic() + _KILL_TIMEOUT_S / 2
        while self.running and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        self._process.kill()


class ProcessSpawner:
    """Starts every process of a session; implements `aar.protocol.ports.Spawner`.

    Args:
        workspace: Root of the project.
        sandbox: ``[sandbox]`` of the config.
        extra_roots: More folders that may be written (``--add-dir``).
        own: aar's own data, config and cache folders, which commands may not read; the default is
            where the environment places them.
    """

    def __init__(
        self,
        workspace: Path,
        sandbox: SandboxConfig | None = None,
        extra_roots: Iterable[Path] = (),
        *,
        own: Iterable[Path] | None = None,
    ) -> None:
        self._workspace = workspace.resolve()
        self._config = sandbox or SandboxConfig()
        self._home = Path(os.environ.get("HOME") or "~").expanduser().resolve()
        self._extra = tuple(path.resolve() for path in extra_roots)
        self._own = tuple(own) if own is not None else own_folders(os.environ, self._home)
        self._server = SpawnServer()
        self._temp: Path | None = None
        self._wall: Wall | None = None
        self._status: WallStatus | None = None
        self._running: set[ServedProcess] = set()

    @property
    def wall(self) -> str:
        """Name of the wall around ``tool`` processes; ``none`` when there is none."""
        return self.status().name

    @property
    def temp_folder(self) -> Path:
        """The private folder (0700) that is ``TMPDIR`` of commands; removed by `close`."""
        if self._temp is None:
            self._temp = Path(tempfile.mkdtemp(prefix="aar-")).resolve()
            # For an exit without `close`; after kill -9 the folder stays, as with any program.
            weakref.finalize(self, shutil.rmtree, self._temp, ignore_errors=True)
        return self._temp

    def warm(self) -> None:
        """Begin what the first process will need, without waiting for it."""
        self._server.warm()

    def status(self) -> WallStatus:
        """Return how the wall stands. The first call tries it, which takes some 20 ms.

        Raises:
            SandboxError: The wall that the config demands does not work here.
        """
        if self._status is None:
            self._wall, self._status = choose_wall(self._config, self._plan(), self._probe)
        return self._status

    async def start(
        self, request: SpawnRequest, on_output: OnOutput | None = None
    ) -> ServedProcess | InteractiveProcess:
        """Start a process; ``on_output`` gets every piece as it comes.

        Raises:
            SandboxError: The wall could not be raised.
            FileNotFoundError: The program or the working folder does not exist.
            OSError: It cannot be executed.
        """
        if request.kind == "interactive":
            return self._start_interactive(request)
        fence, wall = self._fence(request)
        process = self._start_served(request, fence, wall, on_output)
        self._running.add(process)
        process.on_end(lambda: self._running.discard(process))
        await process.started()
        if process.failure is not None:
            await process.kill()
            raise _start_error(request, *process.failure)
        return process

    async def run(self, request: SpawnRequest, on_output: OnOutput | None = None) -> SpawnResult:
        """Start a process and wait for its end. Cancelling kills the tree."""
        return await (await self.start(request, on_output)).wait()

    def close(self) -> None:
        """Kill whatever still runs, and remove the private folder. The spawner can be used again."""
        for process in list(self._running):
            process.abandon()
        self._running.clear()
        self._server.close()
        if self._wall is not None:
            self._wall.close()
        if self._temp is not None:
            shutil.rmtree(self._temp, ignore_errors=True)
            self._temp = None
            self._status = None

    def _plan(self) -> Plan:
        config, home, workspace = self._config, self._home, self._workspace
        return Plan(
            workspace=workspace,
            writable=(
                *self._extra,
                *(expand(name, home, workspace) for name in config.writable),
                *outside_git_folders(workspace),
            ),
            temp=self.temp_folder,
            home=home,
            secrets=secret_paths(
                home, workspace, own=self._own, extra=config.secrets, readable=config.readable
            ),
            protected=protected_paths(workspace, home, config.protected),
        )

    def _fence(self, request: SpawnRequest) -> tuple[Fence, str]:
        if request.kind != "tool" or self.wall == "none" or self._wall is None:
            return Fence(), "none"
        writable = tuple(path.resolve() for path in request.writable)
        return self._wall.fence(Limits(writable, request.read_only, request.network)), self._wall.name

    def _body(self, request: SpawnRequest, fence: Fence) -> dict[str, object]:
        limits = {"CORE": 0}
        if request.kind == "tool" and self._config.memory_mb:
            limits["AS"] = self._config.memory_mb << 20
        if request.kind == "tool" and self._config.processes:
            limits["NPROC"] = self._config.processes
        temp = self.temp_folder if request.kind == "tool" else None
        env = child_environment(os.environ, request.kind, temp=temp, additions=request.env)
        return {
            "argv": [*fence.prefix, *request.argv],
            "cwd": str(request.cwd),
            "env": env,
            "limits": limits,
            "wall": dict(fence.steps),
        }

    def _start_served(
        self, request: SpawnRequest, fence: Fence, wall: str, on_output: OnOutput | None
    ) -> ServedProcess:
        body = self._body(request, fence)
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            control, far = socket.socketpair()
            theirs.callback(far.close)
            ours.callback(control.close)
            stdin = _input(request.stdin)
            theirs.callback(os.close, stdin)
            pipes: list[int] = []
            writers: list[int] = []
            for _ in range(1 if request.merge_stderr else 2):
                reader, writer = os.pipe()
                theirs.callback(os.close, writer)
                ours.callback(os.close, reader)
                pipes.append(reader)
                writers.append(writer)
            fds = [far.fileno(), stdin, writers[0], writers[-1]]
            if fence.ruleset is not None:
                fds.append(fence.ruleset)
            process = ServedProcess(request, control, pipes, wall, on_output)
            ours.pop_all()
            try:
                self._server.send(body, fds)
            except SandboxError:
                process.abandon()
                raise
        return process

    def _start_interactive(self, request: SpawnRequest) -> InteractiveProcess:
        env = child_environment(os.environ, "interactive", additions=request.env)
        return InteractiveProcess(subprocess.Popen(request.argv, cwd=request.cwd, env=env))  # noqa: S603

    def _probe(self, fence: Fence) -> Probe:
        """Try what must fail inside ``fence``; blocks for a few milliseconds."""
        ours, far = socket.socketpair()
        with ours, far, tempfile.NamedTemporaryFile(prefix="aar-preflight-") as outside:
            fds = [far.fileno()] + ([fence.ruleset] if fence.ruleset is not None else [])
            # The layout of descriptors is that of any request: control, three streams, ruleset.
            with Path(os.devnull).open("rb") as null:
                fds[1:1] = [null.fileno()] * 3
                body: dict[str, object] = {"probe": True, "outside": outside.name, "wall": dict(fence.steps)}
                self._server.send(body, fds)
            far.close()
            return _probe_answer(ours)


def _probe_answer(sock: socket.socket) -> Probe:
    data = b""
    deadline = time.monotonic() + _PROBE_TIMEOUT_S
    while not data.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([sock], [], [], left)[0]:
            return Probe(error="the preflight gave no answer")
        part = sock.recv(4096)
        if not part:
            return Probe(error="the preflight died")
        data += part
    word, *rest = data.decode(errors="replace").strip().split(" ", 3)
    if word != "probe":
        return Probe(error=rest[-1])
    write, network = rest
    return Probe(write=write == "1", network=network == "1")


def _input(data: bytes | None) -> int:
    """Return a descriptor from which ``data`` can be read; nothing is there to read without it."""
    if data is None:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("stdin", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _start_error(request: SpawnRequest, stage: str, code: int, text: str) -> Exception:
    if stage == "exec":
        return OSError(code, text, request.argv[0])
    if stage == "chdir":
        return OSError(code, text, str(request.cwd))
    if stage == "wall":
        return SandboxError(f"The wall could not be raised: {text}.")
    return SandboxError(f"The process could not be started: {text}.")
