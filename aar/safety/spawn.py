"""The one way to start a process (DESIGN 1.3, 12).

`ProcessSpawner` keeps a spawn server (see `aar.safety.spawn_server`), started with the first process. Each
process has a control socket of its own: it tells how the process fares, and closing it ends the whole tree.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import stat
import subprocess
import tempfile
import time
import weakref
from collections.abc import Generator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import cast

from aar.config.schema import SandboxConfig
from aar.protocol.errors import SandboxError
from aar.protocol.ports import SpawnRequest, SpawnResult
from aar.safety.beneath import FOLDER, open_beneath
from aar.safety.environment import child_environment
from aar.safety.sandbox.base import Fence, Limits, Plan, Probe, Step, Wall, WallStatus
from aar.safety.sandbox.choose import choose_wall
from aar.safety.sandbox.egress import Egress
from aar.safety.sandbox.git_config import writes_config
from aar.safety.sandbox.guard import Guard, Keeper
from aar.safety.sandbox.masks import Masks
from aar.safety.sandbox.plan import make_plan, make_private_folder
from aar.safety.sandbox.preflight import probe_wall
from aar.safety.sandbox.secrets import own_folders
from aar.safety.spawn_link import SpawnServer
from aar.safety.spawn_process import InteractiveProcess, OnOutput, ServedProcess, add_notices


class ProcessSpawner:
    """Starts every process of a session; implements `aar.protocol.ports.Spawner`.

    Args:
        workspace: Root of the project.
        sandbox: ``[sandbox]`` of the config.
        extra_roots: More folders that may be written (``--add-dir``).
        own: aar's own data, config and cache folders, which commands may not read; the default is
            where the environment places them.
        never: Hosts that no command reaches (those of the models in use), besides the known ones.
        shared_git: Whether commands may write the git folder that a work tree shares with its repository.
    """

    def __init__(
        self,
        workspace: Path,
        sandbox: SandboxConfig | None = None,
        extra_roots: Iterable[Path] = (),
        *,
        own: Iterable[Path] | None = None,
        never: Iterable[str] = (),
        shared_git: bool = True,
    ) -> None:
        self._workspace = workspace.resolve()
        self._config = sandbox or SandboxConfig()
        self._home = Path(os.environ.get("HOME") or "~").expanduser().resolve()
        self._extra = tuple(path.resolve() for path in extra_roots)
        self._own = tuple(own) if own is not None else own_folders(os.environ, self._home)
        self._shared_git = shared_git
        self._let_go = False
        self._unwanted: tuple[Path, ...] = ()
        self._server = SpawnServer()
        self._private: Path | None = None
        self._plan: Plan | None = None
        self._wall: Wall | None = None
        self._status: WallStatus | None = None
        self._running: set[ServedProcess] = set()
        self._guards: dict[Guard, None] = {}
        self._granted: list[Path] = []
        self._masks = Masks()
        self._keeper = Keeper()
        self.egress = Egress(self._server, self._config.allow_domains, never)

    @property
    def wall(self) -> str:
        """Name of the wall around ``tool`` processes; ``none`` when there is none."""
        return self.status().name

    @property
    def temp_folder(self) -> Path:
        """The private folder (0700) that is ``TMPDIR`` of commands; removed by `close`."""
        if self._private is None:
            self._private = make_private_folder()
            # For an exit without `close`; after kill -9 the folder stays, as with any program.
            self._removal = weakref.finalize(self, _remove_tree, self._private)
        return self._private / "tmp"

    def warm(self) -> None:
        """Begin what the first process will need, without waiting for it."""
        self._server.warm()

    def status(self) -> WallStatus:
        """Return how the wall stands. The first call tries it, which takes some 50 ms.

        Raises:
            SandboxError: The wall that the config demands does not work here.
        """
        if self._status is None:
            self._wall, self._status = choose_wall(self._config, self._session_plan(), self._probe)
        return self._status

    def allow_domain(self, rule: str) -> None:
        """Let commands reach one more host (or a preset) from now on, until the session ends.

        Raises:
            ConfigurationError: ``rule`` is none.
        """
        self.egress.domains.add(rule)

    def keep_from(self, hosts: Iterable[str]) -> None:
        """Let no command reach ``hosts`` from now on: those of the models in use."""
        self.egress.domains.shut(hosts)

    def accept_change(self, path: Path) -> None:
        """Tell that aar itself wrote a protected path, so that no command that runs now undoes it."""
        for guard in self._guards:
            guard.accept(path)

    @contextlib.contextmanager
    def own_change(self, path: Path) -> Generator[None]:
        """Surround aar's own change of a protected path: no mask is in its way, no command undoes it."""
        self._masks.lift(path)
        try:
            yield
        finally:
            self.accept_change(path)

    async def start(
        self, request: SpawnRequest, on_output: OnOutput | None = None, on_error: OnOutput | None = None
    ) -> ServedProcess | InteractiveProcess:
        """Start a process; ``on_output`` gets every piece as it comes, ``on_error`` those of a stream apart.

        Raises:
            SandboxError: The wall could not be raised.
            FileNotFoundError: The program or the working folder does not exist.
            OSError: It cannot be executed.
        """
        if request.kind == "interactive":
            return self._start_interactive(request)
        if request.kind == "tool":
            await self._look_around()
        process = self._start_served(request, on_output, on_error)
        self._running.add(process)
        process.on_end(lambda: self._running.discard(process))
        await process.started()
        if process.failure is not None:
            await process.kill()
            raise _start_error(request, *process.failure)
        return process

    async def run(
        self, request: SpawnRequest, on_output: OnOutput | None = None, on_error: OnOutput | None = None
    ) -> SpawnResult:
        """Start a process and wait for its end. Cancelling kills the tree.

        Raises:
            SandboxError: As `start`, or the wall failed after the start.
        """
        return await (await self.start(request, on_output, on_error)).wait()

    def let_go(self, process: ServedProcess, log: Path) -> None:
        """Let a process go on when this spawner is closed, in its wall; its output goes to the file ``log``.

        Raises:
            OSError: The file cannot be made, or the process is gone.
        """
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            process.let_go(fd)
        finally:
            os.close(fd)
        self._let_go = True
        if process.guard is not None:
            self._guards.pop(process.guard, None)
            process.guard.undo()
            self._unwanted += process.guard.unwanted or ()

    def close(self) -> None:
        """Kill whatever still runs, and remove the private folder. The spawner can be used again.

        Where a process was let go that may use the private folder, that goes with it.
        """
        for process in list(self._running):
            process.abandon()
        self._running.clear()
        if self._let_go and self._private is not None:
            self._server.stay(self._private, self._unwanted)
        else:
            self._server.close()
        self.egress.close()
        if self._wall is not None:
            self._wall.close()
        if self._private is not None:
            if self._let_go:
                self._removal.detach()
            else:
                _remove_tree(self._private)
            self._private = self._plan = self._status = self._wall = None
        self._let_go, self._unwanted = False, ()

    def _session_plan(self) -> Plan:
        if self._plan is None:
            temp = self.temp_folder
            self._plan = make_plan(
                self._config,
                self._workspace,
                self._home,
                self._extra,
                self._own,
                temp,
                shared_git=self._shared_git,
            )
        return self._plan

    async def _look_around(self) -> None:
        """Let a wall that must look through a large workspace do it beside the event loop."""
        self.status()
        if self._wall is not None and self._wall.slow:
            await asyncio.to_thread(self._wall.refresh)

    def _fence(self, request: SpawnRequest) -> tuple[Fence, str]:
        if request.kind != "tool" or self.wall == "none" or self._wall is None:
            return Fence(), "none"
        writable = tuple(path.resolve() for path in request.writable)
        lasting = request.timeout_s is None
        limits = Limits(writable, request.read_only, request.network, writes_config(request.argv), lasting)
        return self._wall.fence(limits), self._wall.name

    def _limits(self, request: SpawnRequest) -> dict[str, int]:
        limits = {"CORE": 0}
        if request.kind != "tool":
            return limits
        config = self._config
        limits["AS"] = config.memory_mb << 20
        limits["NPROC"] = config.processes
        limits["CPU"] = config.cpu_seconds
        limits["FSIZE"] = config.file_mb << 20
        return {name: value for name, value in limits.items() if value or name == "CORE"}

    def _body(self, request: SpawnRequest, fence: Fence, masks: tuple[Path, ...]) -> dict[str, object]:
        is_tool = request.kind == "tool"
        plan = self._session_plan()
        env = child_environment(
            os.environ,
            request.kind,
            temp=plan.temp if is_tool else None,
            home=self._home,
            shared_caches=self._config.shared_caches,
            additions={**self._proxy(fence), **request.env},
        )
        steps = dict(fence.steps)
        if masks and self._wall is not None:
            view = cast("list[Step]", steps["view"])
            steps["view"] = [*view, *(self._wall.mask_step(path) for path in masks)]
        return {
            "argv": [*fence.prefix, *request.argv],
            "cwd": str(request.cwd),
            "env": env,
            "limits": self._limits(request),
            # The kernel does not count the processes of root.
            "most_tasks": self._config.processes if is_tool and os.geteuid() == 0 else 0,
            "sacrifice": is_tool,
            "wall": steps,
            "masks": [str(path) for path in masks],
        }

    def _proxy(self, fence: Fence) -> dict[str, str]:
        return self.egress.variables() if fence.steps.get("private_network") else {}

    def _grant(self, paths: tuple[Path, ...]) -> None:
        """Let a command change protected paths, whatever masks and other commands there are."""
        for path in paths:
            self._masks.lift(path)
            for guard in self._guards:
                guard.open(path)
        self._granted += paths

    def _end_grant(self, paths: tuple[Path, ...]) -> None:
        for path in paths:
            self._granted.remove(path)
            self.accept_change(path)

    def _start_served(
        self, request: SpawnRequest, on_output: OnOutput | None, on_error: OnOutput | None
    ) -> ServedProcess:
        fence, wall = self._fence(request)
        self._grant(fence.granted)
        masks = self._masks.acquire(fence.masks)
        guard = self._guard(fence)
        began = time.monotonic()

        def afterwards(result: SpawnResult) -> SpawnResult:
            self._masks.release(masks)
            notices: tuple[str, ...] = ()
            if guard is not None:
                self._guards.pop(guard, None)
                notices = guard.undo()
            self._end_grant(fence.granted)
            if wall in ("bubblewrap", "namespaces") and result.exit_code != 0:
                notices += _refused_notices(result.output, self._session_plan())
            blocked = self.egress.blocked_since(began) if fence.steps.get("private_network") else ()
            notices += tuple(
                _blocked_notice(item.host, item.port, item.reason, item.rule) for item in blocked
            )
            return add_notices(replace(result, blocked=blocked), notices)

        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            ours.callback(self._masks.release, masks)
            ours.callback(self._end_grant, fence.granted)
            body = self._body(request, fence, masks)
            control, far = socket.socketpair()
            theirs.callback(far.close)
            ours.callback(control.close)
            stdin = os.dup(request.stdin_fd) if request.stdin_fd is not None else _input(request.stdin)
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
            process = ServedProcess(request, control, pipes, wall, on_output, on_error, afterwards)
            process.guard = guard
            ours.pop_all()
            try:
                self._server.send(body, fds)
            except SandboxError:
                process.abandon()
                raise
        return process

    def _guard(self, fence: Fence) -> Guard | None:
        if not fence.guarded:
            return None
        aside = self._own[0] / "undone" if self._own else self._session_plan().temp
        guard = Guard(self._keeper, self._workspace, fence.guarded, aside)
        for path in self._granted:
            guard.open(path)
        self._guards[guard] = None
        return guard

    def _start_interactive(self, request: SpawnRequest) -> InteractiveProcess:
        env = child_environment(os.environ, "interactive", additions=request.env)
        return InteractiveProcess(subprocess.Popen(request.argv, cwd=request.cwd, env=env))  # noqa: S603 - what the user opened

    def _probe(self, fence: Fence) -> Probe:
        return probe_wall(self._server, fence, self._session_plan())


_REFUSALS = (b"Read-only file system", b"Device or resource busy")


def _refused_notices(output: bytes, plan: Plan) -> tuple[str, ...]:
    """Return why a command failed at protected paths that its output names: the kernel tells little."""
    lines = [line for line in output.splitlines() if any(words in line for words in _REFUSALS)]
    if not lines:
        return ()
    names = [
        str(path.relative_to(plan.workspace))
        for path in plan.protected
        if path.is_relative_to(plan.workspace)
    ]
    return tuple(
        f"{name} is protected from commands, and was left as it is. The file tools can change it when the "
        "user agrees; a pull or checkout that changes it is for the user's own terminal."
        for name in names
        if any(name.encode() in line for line in lines)
    )


def _blocked_notice(host: str, port: int, reason: str, rule: str | None) -> str:
    advice = f"; the user can allow it with allow_domains = [{rule!r}]" if rule else ""
    return f"{host}:{port} was blocked: {reason}{advice}."


def _remove_tree(folder: Path) -> None:
    """Remove a private folder, also where a command took away its own rights. It may be gone already."""

    def again(_function: object, name: str, _error: object) -> None:
        path = Path(name)
        if not _open_up(folder, path):
            return
        with contextlib.suppress(OSError):
            shutil.rmtree(path, onerror=again) if path.is_dir() else path.unlink()

    if os.path.lexists(folder):
        shutil.rmtree(folder, onerror=again)


def _open_up(top: Path, path: Path) -> bool:
    """Give the owner all rights on the folders ``path`` and above it; return whether some were missing.

    Only from ``top`` down, for what is above is everybody's, and through no link that a command left. Without
    ``O_PATH`` (macOS) a folder that cannot be read stays as it is.
    """
    opened = False
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        start = os.open(top, FOLDER)
        stack.callback(os.close, start)
        for one in (path.parent, path):
            if not one.is_relative_to(top):
                continue
            fd = open_beneath(start, one.relative_to(top).parts, FOLDER)
            stack.callback(os.close, fd)
            if os.fstat(fd).st_mode & stat.S_IRWXU != stat.S_IRWXU:
                # fchmod refuses descriptors of O_PATH.
                Path(f"/proc/self/fd/{fd}" if hasattr(os, "O_PATH") else one).chmod(0o700)
                opened = True
    return opened


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
