"""Requests on a socket: a head, the descriptors that come with it, and a body (see the package)."""

from __future__ import annotations

import _socket
import array
import marshal
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HEADER = struct.Struct("!IB")
MAX_DESCRIPTORS = 5


def receive(sock: _socket.socket) -> tuple[bytes, list[int]] | None:
    """Read the body of one request, and its descriptors; ``None`` at the end."""
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
    return body, fds


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


def hand_on(sock: _socket.socket, body: bytes, fds: list[int]) -> None:
    """Send a request on to a process that waits for it."""
    ancillary = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", fds))
    sock.sendmsg([HEADER.pack(len(body), len(fds))], [ancillary])
    sock.sendall(body)


def unpack(body: bytes) -> dict[str, Any]:
    """Return what a body says."""
    return marshal.loads(body)  # noqa: S302 - aar itself is the sender
