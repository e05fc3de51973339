"""Finds, starts and talks to the worker process of the embedded model (see `local_worker`)."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import itertools
import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aar
from aar.protocol.errors import ConfigurationError, ErrorKind, ProviderError

LLAMA_ENGINE = "aar.providers.local.engine:LlamaEngine"

_START_SECONDS = 30
_MAX_SOCKET_PATH = 103
_LINE_LIMIT = 4 * 1024 * 1024
_PROTOCOL = 1

_PASSED_ON = ("HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ")
"""Variables that the worker gets; no key of any vendor is among them."""


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """What makes one worker differ from another.

    Attributes:
        model: Weights file.
        n_ctx: Tokens of context.
        threads: Threads that compute.
        prefix_dir: Where evaluated system prompts are kept.
        runtime_dir: Private folder for sockets and locks.
        keep_warm: Seconds that the worker stays after its last request; not part of its identity.
        engine: ``module:callable`` that makes the engine.
    """

    model: Path
    n_ctx: int
    threads: int
    prefix_dir: Path
    runtime_dir: Path
    keep_warm: float
    engine: str = LLAMA_ENGINE

    @property
    def key(self) -> str:
        """Names the worker; changes with weights, settings and versions."""
        status = self.model.stat()
        parts = [
            str(self.model),
            status.st_size,
            status.st_mtime_ns,
            self.n_ctx,
            self.threads,
            self.engine,
            aar.__version__,
            _PROTOCOL,
            _llama_version(),
            _code_age(),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]

    @property
    def socket(self) -> Path:
        """Where the worker listens."""
        return self.runtime_dir / f"w-{self.key}.sock"


class WorkerGone(Exception):  # noqa: N818 - told to the caller as a ProviderError where it matters
    """The worker closed the connection."""


class Connection:
    """One connection to a worker. One request at a time; a cancelled one needs no reading to its end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)
        self._loop = asyncio.get_running_loop()

    @property
    def usable(self) -> bool:
        """Whether it belongs to the running event loop and was not closed."""
        same_loop = self._loop is asyncio.get_running_loop()
        return same_loop and not self._writer.is_closing() and not self._reader.at_eof()

    async def ask(self, request: Mapping[str, Any], patience: float) -> AsyncGenerator[dict[str, Any]]:
        """Send a request, yield its events up to the last. Leaving early cancels it in the worker.

        Args:
            request: Without ``id``.
            patience: Seconds without an event after which the worker counts as hung.

        Raises:
            WorkerGone: The worker ended.
            TimeoutError: It is silent.
        """
        identity = next(self._ids)
        ended = False
        self._send({**request, "id": identity})
        try:
            while not ended:
                async with asyncio.timeout(patience):
                    event = await self._read()
                if event.get("id") != identity:
                    continue
                ended = "done" in event or "error" in event
                yield event
        except WorkerGone:
            ended = True
            raise
        finally:
            if not ended:
                with suppress(WorkerGone):
                    self._send({"op": "cancel", "id": identity})

    def _send(self, message: Mapping[str, Any]) -> None:
        if self._writer.is_closing():
            raise WorkerGone
        self._writer.write(json.dumps(message).encode() + b"\n")

    async def _read(self) -> dict[str, Any]:
        try:
            line = await self._reader.readline()
        except (OSError, ValueError) as error:
            raise WorkerGone from error
        if not line.endswith(b"\n"):
            raise WorkerGone
        return json.loads(line)

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    def drop(self) -> None:
        """Hang up from another event loop, or when nobody can wait."""
        with suppress(RuntimeError):
            self._writer.transport.abort()


async def connect(spec: WorkerSpec, progress: Callable[[str], None]) -> Connection:
    """Return a connection to the worker of ``spec``; starts one when there is none.

    Raises:
        ConfigurationError: The runtime folder cannot be used.
        ProviderError: ``provider_internal``: the worker did not start.
    """
    path = _checked_folder(spec)
    connection = await _try_connect(path)
    if connection is not None:
        return connection
    async with _start_lock(path.with_suffix(".lock")):
        connection = await _try_connect(path)
        if connection is not None:
            return connection
        progress("starting the embedded model")
        await asyncio.to_thread(_retire_others, spec.runtime_dir, path)
        await asyncio.to_thread(start_worker, spec, path)
        connection = await _try_connect(path)
    if connection is None:
        raise ProviderError(
            ErrorKind.PROVIDER_INTERNAL, "The process of the embedded model ended at its start: try again."
        )
    return connection


def start_worker(spec: WorkerSpec, path: Path) -> None:
    """Start a worker of its own session and environment; returns when it listens.

    Raises:
        ProviderError: ``provider_internal``: it could not.
    """
    log = path.with_suffix(".log")
    settings = {
        name: str(value) if isinstance(value, Path) else value for name, value in asdict(spec).items()
    }
    settings |= {"socket": str(path), "folder": str(path.parent), "key": path.stem.removeprefix("w-")}
    command = [sys.executable, "-P", "-m", "aar.providers.local.worker", json.dumps(settings)]
    with log.open("wb") as output:
        log.chmod(0o600)
        try:
            code = subprocess.run(  # noqa: S603 - our own interpreter and module, no shell
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                env=_environment(),
                start_new_session=True,
                timeout=_START_SECONDS,
                check=False,
            ).returncode
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _not_started(log, str(error)) from error
    if code != 0:
        raise _not_started(log, f"exit code {code}")


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    home = Path(aar.__file__).parent.parent
    # Threads that wait spin by default; beside other busy processes that makes answers ten times slower.
    return {**kept, "PYTHONPATH": str(home), "PYTHONDONTWRITEBYTECODE": "1", "GOMP_SPINCOUNT": "1000"}


def _not_started(log: Path, reason: str) -> ProviderError:
    with suppress(OSError):
        tail = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        reason = f"{reason}; {tail[0]}" if tail else reason
    return ProviderError(
        ErrorKind.PROVIDER_INTERNAL,
        f"The process of the embedded model could not be started ({reason}): see {log}.",
    )


def _checked_folder(spec: WorkerSpec) -> Path:
    """Make the private folder, and refuse one that others may enter."""
    folder = spec.runtime_dir
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise ConfigurationError(
            f"The folder {folder} for aar's sockets cannot be made ({error.strerror}): "
            "set AAR_HOME to a folder of yours."
        ) from error
    path = spec.socket
    if folder.is_symlink() or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise ConfigurationError(
            f"The folder {folder} must be yours alone: remove it, or run `chmod 700` on it."
        )
    if len(os.fsencode(path)) > _MAX_SOCKET_PATH:
        raise ConfigurationError(
            f"The path {path} is too long for a socket (at most {_MAX_SOCKET_PATH} bytes): "
            "set AAR_HOME to a shorter one."
        )
    return path


async def _try_connect(path: Path) -> Connection | None:
    try:
        reader, writer = await asyncio.open_unix_connection(str(path), limit=_LINE_LIMIT)
    except OSError:
        return None
    if not _same_user(writer.get_extra_info("socket")):
        writer.close()
        raise ConfigurationError(f"The socket {path} belongs to another user: remove it.")
    return Connection(reader, writer)


def _same_user(connection: socket.socket) -> bool:
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", raw)[1] == os.geteuid()


@asynccontextmanager
async def _start_lock(path: Path) -> AsyncGenerator[None]:
    """Hold a lock between processes (and between tasks: each opens the file anew)."""
    with path.open("w") as file:
        while not _try_lock(file.fileno()):  # noqa: ASYNC110 - a lock between processes wakes nobody
            await asyncio.sleep(0.03)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _retire_others(folder: Path, own: Path) -> None:
    """Ask workers with other settings to end when their work is done: each holds more than 1 GB."""
    for path in folder.glob("w-*.sock"):
        if path == own:
            continue
        with _talk(path) as connection:
            if connection is not None:
                connection.sendall(b'{"op":"retire"}\n')
            elif _is_old(path):
                path.unlink(missing_ok=True)


def _is_old(path: Path) -> bool:
    """Tell whether a socket that nobody answers is no newcomer's that does not listen yet."""
    with suppress(OSError):
        return time.time() - path.stat().st_mtime > _START_SECONDS
    return False


@contextmanager
def _talk(path: Path) -> Generator[socket.socket | None]:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(1)
    try:
        try:
            connection.connect(str(path))
        except OSError:
            yield None
            return
        with suppress(OSError):
            yield connection
    finally:
        connection.close()


def _code_age() -> list[int]:
    """Return when the worker's code was changed: in a checkout an old worker must not serve new code."""
    folder = Path(__file__).parent
    names = ("local_worker.py", "local_engine.py", "local_prefixes.py")
    return [(folder / name).stat().st_mtime_ns for name in names if (folder / name).exists()]


def _llama_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("xllamacpp")
    except PackageNotFoundError:
        return ""
