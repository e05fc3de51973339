"""aar's end of the spawn server: how it is started, asked and ended (see `aar.safety.spawn_server`)."""

from __future__ import annotations

import array
import contextlib
import marshal
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from aar.protocol.errors import SandboxError

_HEADER = struct.Struct("!IB")
_ANSWER_TIMEOUT_S = 5.0
_STOP_TIMEOUT_S = 1.0
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from aar.safety.spawn_server.serve import serve; serve(int(sys.argv[2]))"
)
_ROOT = Path(__file__).parents[2]


class SpawnServer:
    """aar's end of the spawn server; started with the first request, and again should it have died."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._pid: int | None = None
        self.generation = 0
        """How often it was started: what lived in an earlier one is gone."""
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

    def listener(self) -> socket.socket:
        """Return a socket that listens on the loopback of the session's private network.

        Raises:
            SandboxError: There is no private network here.
        """
        ours, far = socket.socketpair()
        with ours, far:
            self.send({"listener": True, "wall": {}}, [far.fileno()])
            far.close()
            if not select.select([ours], [], [], _ANSWER_TIMEOUT_S)[0]:
                raise SandboxError("The spawn server gave no answer.")
            data, fds, _, _ = socket.recv_fds(ours, 4096, 1)
        if not fds:
            raise SandboxError(f"There is no private network: {data.decode(errors='replace').strip()}.")
        return socket.socket(fileno=fds[0])

    def warm(self) -> None:
        """Start the server now, so that it gets ready while other work is done. Failures show later."""
        with self._lock, contextlib.suppress(SandboxError):
            if self._socket is None:
                self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        argv = [
            sys.executable,
            "-I",
            "-S",
            "-E",
            "-X",
            "utf8",
            "-c",
            _START,
            str(_ROOT),
            str(theirs.fileno()),
        ]
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
        self.generation += 1
        process.returncode = 0  # reaped in _stop, not by Popen's finaliser

    def _stop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._pid is not None:
            _reap(self._pid, _STOP_TIMEOUT_S)
            self._pid = None

    def close(self) -> None:
        """End the server and all that it started."""
        with self._lock:
            self._stop()

    def stay(self, folder: Path, unwanted: Iterable[Path]) -> None:
        """Let the server end with the commands that were let go, and start another one when one is needed.

        Args:
            folder: What is removed with the last of them.
            unwanted: What is removed as soon as one of them makes it.
        """
        with contextlib.suppress(SandboxError):
            self.send({"stay": str(folder), "unwanted": [str(path) for path in unwanted], "wall": {}}, [])
        with self._lock:
            if self._socket is not None:
                self._socket.close()
            self._socket = self._pid = None


def _reap(pid: int, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.002)
