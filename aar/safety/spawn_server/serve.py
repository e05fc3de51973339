"""The server's loop: take a request, fork its supervisor, collect what has ended."""

from __future__ import annotations

import _socket
import array
import gc
import marshal
import os
import select
import struct
import time

from aar.safety.spawn_server.kernel import LINUX, PR_SET_CHILD_SUBREAPER, StageError, prctl, quietly, signal
from aar.safety.spawn_server.network import PrivateNetwork
from aar.safety.spawn_server.supervisor import descendants, supervise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HEADER = struct.Struct("!IB")
MAX_DESCRIPTORS = 5
MASK_MODE = 0o1555
"""Mode of the empty folders that stand for absent protected paths (see `aar.safety.sandbox.masks`)."""
END_LIMIT_S = 4.0
"""Seconds that the server gives its supervisors once aar is gone."""


def receive(sock: _socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Read one request with its descriptors; ``None`` at the end."""
    width = struct.calcsize("i")
    flags = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)
    head, ancillary, _, _ = sock.recvmsg(HEADER.size, _socket.CMSG_SPACE(MAX_DESCRIPTORS * width), flags)
    fds: list[int] = []
    for level, kind, data in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            fds += struct.unpack(f"{len(data) // width}i", data[: len(data) - len(data) % width])
    head += read_exactly(sock, HEADER.size - len(head)) if head else b""
    if len(head) < HEADER.size:
        return None
    length, expected = HEADER.unpack(head)
    body = read_exactly(sock, length)
    if len(body) < length or len(fds) != expected:
        return None
    if not flags:
        for fd in fds:
            os.set_inheritable(fd, False)
    return marshal.loads(body), fds  # noqa: S302 - aar itself is the sender


def read_exactly(sock: _socket.socket, length: int) -> bytes:
    """Read ``length`` bytes, or less at the end of the stream."""
    parts: list[bytes] = []
    while length > 0:
        part = sock.recv(min(length, 1 << 20))
        if not part:
            break
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def serve_one(sock: _socket.socket, request: dict[str, Any], fds: list[int], network: PrivateNetwork) -> int:
    """Fork the supervisor for one request and return its pid; -1 when that failed, which was told."""
    try:
        if request.get("listener"):
            return hand_listener(fds, network)
        if request["wall"].get("private_network"):
            network.make()
        pid = os.fork()
    except (StageError, OSError) as error:
        text = f"failed wall {getattr(error, 'code', 0)} {error}\n"
        quietly(os.write, fds[0], text.encode(errors="replace"))
        pid = -1
    if pid == 0:
        try:
            sock.close()
            supervise(request, fds, network)
        finally:
            os._exit(1)
    for fd in fds:
        os.close(fd)
    return pid


def hand_listener(fds: list[int], network: PrivateNetwork) -> int:
    """Send the socket that listens inside the private network; returns -1: nothing was forked."""
    network.make()
    assert network.listener is not None
    control = _socket.socket(fileno=fds[0])
    handed = array.array("i", [network.listener])
    quietly(control.sendmsg, [b"listener\n"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, handed)])
    control.close()
    for fd in fds[1:]:
        os.close(fd)
    return -1


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
        wanted = supervisors.union(*(descendants(pid) for pid in supervisors))
        for pid in set(descendants(os.getpid())) - wanted:
            quietly(os.kill, pid, signal.SIGKILL)


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
                os.rmdir(path)  # noqa: PTH106
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
    network = PrivateNetwork()
    supervisors: set[int] = set()
    masks: set[str] = set()
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    poller.register(wake_read, select.POLLIN)
    parent = os.getppid()
    if hasattr(os, "pidfd_open"):
        try:  # noqa: SIM105
            poller.register(os.pidfd_open(parent), select.POLLIN)
        except OSError:
            pass  # The end of the socket tells it too.
    gc.freeze()
    while True:
        ready = {fd for fd, _ in poller.poll()}
        if wake_read in ready:
            os.read(wake_read, 4096)
            reap_orphans(supervisors)
        if sock.fileno() in ready:
            message = receive(sock)
            if message is None:
                break
            masks.update(message[0].get("masks", ()))
            pid = serve_one(sock, *message, network)
            if pid > 0:
                supervisors.add(pid)
        elif ready - {wake_read}:
            break
    sock.close()
    for pid in supervisors:
        quietly(os.kill, pid, signal.SIGTERM)
    clean_up(masks)
