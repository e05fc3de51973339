"""A supervisor and its child, forked before they are needed: two forks of Python cost more than all else.

Both wait for the same request, each on a socket of its own, so that the child need not wait for its
supervisor. The end of the sockets, when the server has gone, ends both.
"""

from __future__ import annotations

import _socket
import os

from aar.safety.spawn_server.command import run_command
from aar.safety.spawn_server.kernel import (
    LINUX,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    StageError,
    prctl,
    signal,
)
from aar.safety.spawn_server.supervisor import Supervisor, supervise
from aar.safety.spawn_server.wire import hand_on, receive, unpack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from aar.safety.spawn_server.network import PrivateNetwork


class Spare:
    """The server's end of one such pair.

    Attributes:
        pid: The supervisor.
    """

    def __init__(self, server: _socket.socket, network: PrivateNetwork) -> None:
        """Fork it; raises `OSError` when that cannot be."""
        self._above, above = _socket.socketpair()
        self._below, below = _socket.socketpair()
        try:
            self.pid = os.fork()
            if self.pid == 0:
                try:
                    for sock in (server, self._above, self._below):
                        sock.close()
                    _wait_above(above, below, network)
                finally:
                    os._exit(1)
        except OSError:
            self.close()
            raise
        finally:
            above.close()
            below.close()

    def use(self, body: bytes, fds: list[int]) -> None:
        """Hand it the request; raises `OSError` when it is gone."""
        try:
            # First to the supervisor: a command never runs without.
            hand_on(self._above, b"", fds[:1])
            hand_on(self._below, body, fds)
            hand_on(self._above, body, [])
        finally:
            self.close()

    def close(self) -> None:
        """Let it go, when it was not used."""
        self._above.close()
        self._below.close()


def _wait_above(above: _socket.socket, below: _socket.socket, network: PrivateNetwork) -> NoReturn:
    """Be the supervisor: fork the child, then wait for the request."""
    if LINUX:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    me = os.getpid()
    status, status_end = os.pipe()
    errors, report = os.pipe()
    boss = Supervisor(status)
    boss.pid = os.fork()
    if boss.pid == 0:
        try:
            above.close()
            _wait_below(below, me, network, status_end, report)
        finally:
            os._exit(127)
    below.close()
    os.close(report)
    os.close(status_end)
    first = receive(above)
    second = receive(above) if first is not None else None
    if first is None or second is None:
        os.kill(boss.pid, signal.SIGKILL)
        os.waitpid(boss.pid, 0)
        os._exit(0)
    above.close()
    supervise(boss, unpack(second[0]), first[1][0], errors)


def _wait_below(
    below: _socket.socket, supervisor: int, network: PrivateNetwork, status: int, report: int
) -> None:
    """Be the child: wait for the request and become the command; tells why where that fails."""
    signal.set_wakeup_fd(-1)
    if LINUX:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    # Python ignores the first two, and what is ignored stays so through exec.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    message = receive(below)
    if message is None:
        os._exit(0)
    try:
        run_command(unpack(message[0]), message[1], supervisor, network, status)
    except StageError as error:
        os.write(report, f"{error.stage} {error.code} {error.text}".encode(errors="replace")[:2000])
    except BaseException as error:
        os.write(report, f"internal 0 {error!r}".encode(errors="replace")[:2000])
