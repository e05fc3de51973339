"""The server's loop: take a request, fork its supervisor, collect what has ended."""

from __future__ import annotations

import _socket
import array
import gc
import os
import select
import time

from aar.safety.spawn_server.kernel import LINUX, PR_SET_CHILD_SUBREAPER, StageError, prctl, quietly, signal
from aar.safety.spawn_server.network import PrivateNetwork
from aar.safety.spawn_server.spare import Spare
from aar.safety.spawn_server.supervisor import children_of, descendants
from aar.safety.spawn_server.wire import receive, unpack

MASK_MODE = 0o1555
"""Mode of the empty folders that stand for absent protected paths (see `aar.safety.sandbox.masks`)."""
PREPARE_AFTER_MS = 10
"""Milliseconds of quiet until the next pair is forked: at once it would hold up the command that begins."""
SWEEP_S = 1.0
"""Seconds between two looks at what commands that go on without aar may not make."""
END_LIMIT_S = 4.0
"""Seconds that the server gives its supervisors once aar is gone."""


class Server:
    """What lives as long as aar: the private network, the supervisors, and one spare pair.

    Args:
        sock: Where requests come from.
    """

    def __init__(self, sock: _socket.socket) -> None:
        self.sock = sock
        self.network = PrivateNetwork()
        self.supervisors: set[int] = set()
        self.masks: set[str] = set()
        self.stays = ""
        """Private folder of commands that aar has let go; empty: there are none."""
        self.unwanted: tuple[str, ...] = ()
        """What these may not leave, and no wall keeps them from making."""
        self.prepared = False
        """Whether the next request has what it needs, or nothing can be prepared."""
        self._spare: Spare | None = None

    def take(self, body: bytes, fds: list[int]) -> None:
        """Serve one request; what fails is told on its control socket."""
        request = unpack(body)
        if request.get("stay"):
            self.stays = str(request["stay"])
            self.unwanted = tuple(request["unwanted"])
            return
        self.masks.update(request.get("masks", ()))
        try:
            if request.get("listener") or request["wall"].get("private_network"):
                self._need_network()
            if request.get("listener"):
                hand_listener(fds, self.network)
                return
            try:
                self._get_spare().use(body, fds)
            except BrokenPipeError:
                # Somebody has killed it while it waited.
                self._spare = None
                self._get_spare().use(body, fds)
        except (StageError, OSError) as error:
            text = f"failed wall {getattr(error, 'code', 0)} {error}\n"
            quietly(os.write, fds[0], text.encode(errors="replace"))
        finally:
            self._spare = None
            self.prepared = False
            for fd in fds:
                os.close(fd)

    def prepare(self) -> None:
        """Have a pair ready for the next request."""
        self.prepared = True
        quietly(self._get_spare)

    def close(self) -> None:
        """Let all go: the supervisors end their trees."""
        self.sock.close()
        if self._spare is not None:
            self._spare.close()
        # Where some stay, the others see the end of their control sockets.
        for pid in () if self.stays else self.supervisors:
            quietly(os.kill, pid, signal.SIGTERM)

    def _get_spare(self) -> Spare:
        if self._spare is None:
            self._spare = Spare(self.sock, self.network)
            self.supervisors.add(self._spare.pid)
        return self._spare

    def _need_network(self) -> None:
        if self.network.net is None and self._spare is not None:
            # Forked without it, so it could not enter.
            self._spare.close()
            self._spare = None
        self.network.make()


def hand_listener(fds: list[int], network: PrivateNetwork) -> None:
    """Send the socket that listens inside the private network."""
    assert network.listener is not None
    control = _socket.socket(fileno=os.dup(fds[0]))
    handed = array.array("i", [network.listener])
    quietly(control.sendmsg, [b"listener\n"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, handed)])
    control.close()


def reap_orphans(supervisors: set[int]) -> None:
    """Collect ended supervisors, and end whatever one that was killed has left behind."""
    strays = False
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid == 0:
            break
        strays = strays or status != 0 or pid not in supervisors
        supervisors.discard(pid)
    if strays and LINUX:
        # Supervisors adopt what is below them: only what lost its supervisor is a child of this process.
        for root in set(children_of(os.getpid())) - supervisors:
            for pid in (root, *descendants(root)):
                quietly(os.kill, pid, signal.SIGKILL)


def sweep(unwanted: tuple[str, ...]) -> None:
    """Remove files that commands have made, following no link on the way."""
    walk = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    for path in unwanted:
        try:
            fd = os.open("/", walk)
            try:
                *folders, name = path[1:].split("/")
                for part in folders:
                    inner = os.open(part, walk, dir_fd=fd)
                    os.close(fd)
                    fd = inner
                os.unlink(name, dir_fd=fd)
            finally:
                os.close(fd)
        except OSError:
            continue


def outlive(supervisors: set[int], wake: int, unwanted: tuple[str, ...]) -> None:
    """Wait for the end of commands that go on without aar: they keep their walls, masks included.

    Args:
        supervisors: Theirs.
        wake: Readable when a child has ended.
        unwanted: What they may not leave.
    """
    while supervisors:
        reap_orphans(supervisors)
        sweep(unwanted)
        if supervisors and select.select([wake], [], [], SWEEP_S if unwanted else None)[0]:
            os.read(wake, 4096)


def clean_up(masks: set[str]) -> None:
    """After aar: wait for the supervisors, who end their trees, and remove the masks that are left."""
    deadline = time.monotonic() + END_LIMIT_S
    while masks and time.monotonic() < deadline:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)
        except ChildProcessError:
            break
    for path in masks:
        try:
            if os.lstat(path).st_mode & 0o7777 == MASK_MODE:
                os.rmdir(path)  # noqa: PTH106 - pathlib is slow to import here
        except OSError:
            continue


def serve(fd: int) -> None:
    """Serve requests until aar is gone."""
    gc.disable()
    os.setsid()
    if LINUX:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    sock = _socket.socket(fileno=fd)
    os.set_inheritable(fd, False)
    server = Server(sock)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    poller.register(wake_read, select.POLLIN)
    parent = os.getppid()
    if hasattr(os, "pidfd_open"):
        try:  # noqa: SIM105 - contextlib is slow to import here
            poller.register(os.pidfd_open(parent), select.POLLIN)
        except OSError:
            pass  # The end of the socket tells it too.
    gc.freeze()
    while True:
        ready = {fd for fd, _ in poller.poll(None if server.prepared else PREPARE_AFTER_MS)}
        if not ready:
            server.prepare()
        if wake_read in ready:
            os.read(wake_read, 4096)
            reap_orphans(server.supervisors)
        if sock.fileno() in ready:
            message = receive(sock)
            if message is None:
                break
            server.take(*message)
        elif ready - {wake_read}:
            break
    server.close()
    if server.stays:
        outlive(server.supervisors, wake_read, server.unwanted)
        # Slow to import, but nobody waits any more.
        import shutil

        shutil.rmtree(server.stays, ignore_errors=True)
    clean_up(server.masks)
