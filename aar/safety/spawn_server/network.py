"""The private network of a session: a namespace with loopback only, and one listening socket in it."""

from __future__ import annotations

import _socket
import array
import errno
import fcntl
import os
import struct

from aar.safety.spawn_server.kernel import (
    CLONE_NEWNET,
    CLONE_NEWUSER,
    IFF_UP,
    SIOCGIFFLAGS,
    SIOCSIFFLAGS,
    StageError,
    check,
    libc,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


class PrivateNetwork:
    """A network namespace with nothing but loopback, made once and entered by each command.

    One for all commands of a session, so that a command reaches the test server that another one
    started. Without privileges it lives in a user namespace that maps only the own user.
    """

    def __init__(self) -> None:
        self.user: int | None = None
        self.net: int | None = None
        self.listener: int | None = None
        """A TCP socket that listens on its loopback. Whoever holds it answers, from whatever network."""

    def make(self) -> None:
        """Make the namespace once; raises `StageError` where the kernel does not let us."""
        if self.net is not None:
            return
        ours, theirs = _socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            self._hold(theirs)
        theirs.close()
        try:
            answer, sockets = _receive_one(ours)
            if answer != "ok":
                raise StageError("wall", errno.EPERM, answer or "the namespace holder died")
            self.listener = sockets
            if os.geteuid() != 0:
                self.user = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
            self.net = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise StageError("wall", error.errno or 0, f"namespace: {error}") from error
        finally:
            ours.close()
            os.waitpid(pid, 0)

    def _hold(self, channel: _socket.socket) -> NoReturn:
        """Make the namespaces in a process of their own and keep them until the server holds them."""
        try:
            self._unshare()
            loopback_up()
            listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
            listener.bind(("127.0.0.1", 0))
            listener.listen(128)
            handed = array.array("i", [listener.fileno()])
            channel.sendmsg([b"ok"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, handed)])
        except (StageError, OSError) as error:
            channel.sendall(f"no private network: {error}".encode()[:500])
        channel.recv(1)
        os._exit(0)

    @staticmethod
    def _unshare() -> None:
        if os.geteuid() == 0:
            check(libc.unshare(CLONE_NEWNET), "unshare(net)")
            return
        uid, gid = os.geteuid(), os.getegid()
        check(libc.unshare(CLONE_NEWUSER | CLONE_NEWNET), "unshare(user, net)")
        map_own_user(uid, gid)

    def enter(self) -> None:
        """Move the calling process into the namespace."""
        if self.user is not None:
            check(libc.setns(self.user, CLONE_NEWUSER), "setns(user)")
        if self.net is not None:
            check(libc.setns(self.net, CLONE_NEWNET), "setns(net)")


def map_own_user(uid: int, gid: int) -> None:
    """Keep the numbers of user and group in a user namespace that was just made; no others are in it."""
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        try:
            with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123 - pathlib is slow to import here
                file.write(text)
        except OSError as error:
            raise StageError("wall", error.errno or 0, f"{name}: {error.strerror}") from error


def _receive_one(channel: _socket.socket) -> tuple[str, int | None]:
    """Return what arrives, and the descriptor that came with it."""
    width = struct.calcsize("i")
    data, ancillary, _, _ = channel.recvmsg(512, _socket.CMSG_SPACE(width), _socket.MSG_CMSG_CLOEXEC)
    fds = [struct.unpack("i", item[2][:width])[0] for item in ancillary]
    return data.decode(errors="replace"), fds[0] if fds else None


def loopback_up() -> None:
    """Bring up ``lo`` in the present network namespace (netdevice(7))."""
    sock = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    query = struct.pack("16sH22x", b"lo", 0)
    flags = struct.unpack("16sH22x", fcntl.ioctl(sock, SIOCGIFFLAGS, query))[1]
    fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | IFF_UP))
    sock.close()
