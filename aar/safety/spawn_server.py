"""The spawn server: a small single-threaded process from which every command is forked.

It is not imported by aar but run by `aar.safety.spawn` as ``python -I -S -E spawn_server.py FD``, so
that a fork never happens in a process with threads, and costs the same however large aar has grown.
Only the standard library is at hand, and little of it is
used, because the size counts at each fork.

Processes::

    aar ── spawn server ── supervisor (one a command) ── the command ── its descendants

The supervisor adopts every orphan below it (PR_SET_CHILD_SUBREAPER), also those that left the process
group by ``setsid``, so that the tree can be killed whole. It kills the tree when the command has ended,
when it is told to, and when aar (its control socket) or the server has died.

Requests on socket FD: ``!IB`` (length of the body, number of descriptors) with the descriptors attached
(SCM_RIGHTS), then the body, a dict in marshal format. Descriptors: control socket, stdin, stdout,
stderr, then, where there is one, a Landlock ruleset. Answers on the control socket, one a line:
``started PID``, ``failed STAGE ERRNO TEXT``, ``exit STATUS`` (negative: signal), ``gone`` (the whole tree
is; the end of the socket tells the same), ``probe WRITE NETWORK`` (0 or 1).
Anything that arrives on the control socket, and its end, kills the tree.
"""

from __future__ import annotations

import _socket
import ctypes
import errno
import fcntl
import gc
import marshal
import os
import resource
import select
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from typing import Any, NoReturn
else:
    # The bare C modules: every module more makes the start slower, and every fork.
    import _signal as signal

HEADER = struct.Struct("!IB")
MAX_DESCRIPTORS = 5
TERM_GRACE_S = 0.25
"""Seconds between the polite signal and SIGKILL."""
KILL_LIMIT_S = 2.0
"""Seconds after which a supervisor stops trying (processes that the kernel cannot end yet)."""

LINUX = sys.platform == "linux"
libc = ctypes.CDLL(None, use_errno=True)

PR_SET_PDEATHSIG = 1
PR_CAPBSET_DROP = 24
PR_SET_SECCOMP = 22
PR_SET_SECUREBITS = 28
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
SECCOMP_MODE_FILTER = 2
SECBIT_NOROOT_LOCKED = 0b11
CAPABILITY_VERSION_3 = 0x20080522
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
SYS_LANDLOCK_RESTRICT_SELF = 446
SIOCGIFFLAGS = 0x8913
SIOCSIFFLAGS = 0x8914
IFF_UP = 1


class StageError(Exception):
    """A step between fork and exec failed."""

    def __init__(self, stage: str, code: int, text: str) -> None:
        super().__init__(text)
        self.stage = stage
        self.code = code
        self.text = text


def check(result: int, what: str) -> int:
    """Return ``result`` of a libc call, or raise for -1."""
    if result == -1:
        code = ctypes.get_errno()
        raise StageError("wall", code, f"{what}: {os.strerror(code)}")
    return result


def quietly(call: Callable[..., object], *args: object) -> None:
    """Call something whose failure means that the other side is gone already."""
    try:  # noqa: SIM105 - contextlib is slow to import here
        call(*args)
    except OSError:
        pass


def raw_prctl(option: int, value: int = 0) -> int:
    """Call prctl(2); arguments that are not used must be zero."""
    zero = ctypes.c_ulong(0)
    return libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero)


def prctl(option: int, value: int = 0, what: str = "prctl") -> None:
    """Do the same and raise when it fails."""
    check(raw_prctl(option, value), what)


# --- the private network -----------------------------------------------------------------------------


class PrivateNetwork:
    """A network namespace with nothing but loopback, made once and entered by each command.

    One for all commands of a session, so that a command reaches the test server that another one
    started. Without privileges it lives in a user namespace that maps only the own user.
    """

    def __init__(self) -> None:
        self.user: int | None = None
        self.net: int | None = None

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
            answer = ours.recv(512).decode()
            if answer != "ok":
                raise StageError("wall", errno.EPERM, answer or "the namespace holder died")
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
            channel.sendall(b"ok")
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
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123 - pathlib is slow to import here
                file.write(text)

    def enter(self) -> None:
        """Move the calling process into the namespace."""
        if self.user is not None:
            check(libc.setns(self.user, CLONE_NEWUSER), "setns(user)")
        if self.net is not None:
            check(libc.setns(self.net, CLONE_NEWNET), "setns(net)")


def loopback_up() -> None:
    """Bring up ``lo`` in the present network namespace (netdevice(7))."""
    sock = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    query = struct.pack("16sH22x", b"lo", 0)
    flags = struct.unpack("16sH22x", fcntl.ioctl(sock, SIOCGIFFLAGS, query))[1]
    fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | IFF_UP))
    sock.close()


# --- the wall, as it is put around the calling process -------------------------------------------------


class _SockFprog(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def drop_capabilities(keep: int) -> None:
    """Drop all capabilities but those of the mask ``keep``, for good (capabilities(7))."""
    header = struct.pack("Ii", CAPABILITY_VERSION_3, 0)
    held = ctypes.create_string_buffer(24)
    check(libc.capget(header, held), "capget")
    permitted = struct.unpack("6I", held.raw)
    keep &= permitted[1] | permitted[4] << 32
    # Without no_new_privs the bounding set would matter; with it, only root's own rise at exec does.
    if not keep:
        raw_prctl(PR_SET_SECUREBITS, SECBIT_NOROOT_LOCKED)
    else:
        for number in range(64):
            if not keep >> number & 1 and raw_prctl(PR_CAPBSET_DROP, number) == -1:
                break
    raw_prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    low, high = keep & 0xFFFFFFFF, keep >> 32
    check(libc.capset(header, struct.pack("6I", low, low, 0, high, high, 0)), "capset")


def raise_wall(wall: dict[str, Any], ruleset: int | None, network: PrivateNetwork) -> None:
    """Put ``wall`` around the calling process. Each step takes rights that the former needs."""
    if wall.get("private_network"):
        network.enter()
    prctl(PR_SET_NO_NEW_PRIVS, 1, "no_new_privs")
    if "keep_capabilities" in wall:
        drop_capabilities(int(wall["keep_capabilities"]))
    if ruleset is not None:
        restricted = libc.syscall(SYS_LANDLOCK_RESTRICT_SELF, ruleset, ctypes.c_uint32(0))
        check(restricted, "landlock_restrict_self")
    if program := wall.get("seccomp"):
        code = program.encode("latin-1")
        install = _SockFprog(len(code) // 8, code)
        zero = ctypes.c_ulong(0)
        done = libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(install), zero, zero)
        check(done, "seccomp")


def set_limits(limits: dict[str, int]) -> None:
    """Set resource limits by name (``RLIMIT_`` left out); a hard limit below ours stays."""
    for name, value in limits.items():
        number = getattr(resource, f"RLIMIT_{name}", None)
        if number is None:
            continue
        hard = resource.getrlimit(number)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (value, value))


def count_tasks() -> int:
    """Return the number of threads of this user, against which RLIMIT_NPROC counts."""
    uid, count = os.geteuid(), 0
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib is slow to import here
        try:
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == uid:  # noqa: PTH116
                count += len(os.listdir(f"/proc/{name}/task"))  # noqa: PTH208
        except OSError:
            continue
    return count


# --- the command ---------------------------------------------------------------------------------------


def run_command(request: dict[str, Any], fds: list[int], supervisor: int, network: PrivateNetwork) -> None:
    """Become the command (in the forked child). Returns only by `StageError`."""
    os.setsid()
    # Python ignores the first two, and what is ignored stays so through exec.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    for target, fd in enumerate(fds[1:4]):
        os.dup2(fd, target)
    try:
        os.chdir(request["cwd"])
    except OSError as error:
        raise StageError("chdir", error.errno or 0, error.strerror or "") from error
    limits = dict(request["limits"])
    if "NPROC" in limits and LINUX:
        limits["NPROC"] += count_tasks()
    set_limits(limits)
    if LINUX:
        raise_wall(request["wall"], fds[4] if len(fds) > 4 else None, network)
        # Last, because a change of user namespace clears it.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)
    try:
        execute(request["argv"], request["env"])
    except OSError as error:
        raise StageError("exec", error.errno or 0, error.strerror or "") from error
    except ValueError as error:
        raise StageError("exec", errno.EINVAL, str(error)) from error


def execute(argv: list[str], env: dict[str, str]) -> NoReturn:
    """Become the program, looked up in the PATH of ``env`` as execvp(3) does.

    ``os.execvpe`` would import a module first, behind the wall.
    """
    name = argv[0]
    if "/" in name:
        os.execve(name, argv, env)  # noqa: S606 - that is what it is for
    refused: OSError | None = None
    for folder in env.get("PATH", os.defpath).split(":"):
        try:
            os.execve(f"{folder or '.'}/{name}", argv, env)  # noqa: S606
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            refused = refused or error
    raise refused or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def probe(request: dict[str, Any], fds: list[int], network: PrivateNetwork) -> NoReturn:
    """Raise the wall in this process, try what it forbids, and tell how that went."""
    try:
        raise_wall(request["wall"], fds[4] if len(fds) > 4 else None, network)
        line = f"probe {int(try_write(request['outside']))} {int(try_network())}"
    except StageError as error:
        line = f"failed wall {error.code} {error.text}"
    os.write(fds[0], line.encode(errors="replace") + b"\n")
    os._exit(0)


def try_write(path: str) -> bool:
    """Return whether a file outside the wall could be written."""
    try:
        os.close(os.open(path, os.O_WRONLY))
    except OSError:
        return False
    return True


def try_network() -> bool:
    """Return whether a packet could be sent to another host (an address kept for examples, RFC 5737)."""
    try:
        _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM).connect(("192.0.2.1", 9))
    except OSError:
        return False
    return True


# --- the supervisor --------------------------------------------------------------------------------------


def descendants(root: int) -> list[int]:
    """Return all processes below ``root`` (/proc/PID/stat, field 4 is the parent)."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if not name.isdigit():
            continue
        try:
            fd = os.open(f"/proc/{name}/stat", os.O_RDONLY)
        except OSError:
            continue
        try:
            rest = os.read(fd, 1024).rpartition(b")")[2].split()
        except OSError:
            continue
        finally:
            os.close(fd)
        if rest[0] != b"Z":
            children.setdefault(int(rest[1]), []).append(int(name))
    found: list[int] = []
    todo = [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


class Supervisor:
    """Watches one command and ends its tree."""

    def __init__(self, control: int) -> None:
        self.control = control
        self.pid = 0
        self.status: int | None = None
        self.terminated = False
        self.wake_read, wake_write = os.pipe()
        os.set_blocking(self.wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_term)

    def _on_term(self, _number: int, _frame: object) -> None:
        self.terminated = True

    def tell(self, line: str) -> None:
        """Send one line to aar, which may be gone."""
        quietly(os.write, self.control, line.encode(errors="replace") + b"\n")

    def reap(self) -> bool:
        """Collect ended children; returns whether any child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.pid:
                self.status = os.waitstatus_to_exitcode(status)

    def watch(self, errors: int) -> None:
        """Wait until the command has ended or the tree must go."""
        poller = select.poll()
        for fd in (self.control, self.wake_read, errors):
            poller.register(fd, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poller.poll()}
            if errors in ready:
                poller.unregister(errors)
                self._settle_start(errors)
            if self.wake_read in ready:
                os.read(self.wake_read, 4096)
                self.reap()
            if self.control in ready or self.terminated or self.status is not None:
                return

    def _settle_start(self, errors: int) -> None:
        report = os.read(errors, 4096)
        if report:
            self.tell("failed " + report.decode(errors="replace"))
        else:
            self.tell(f"started {self.pid}")
        os.close(errors)

    def signal_all(self, number: int) -> None:
        """Signal the command's group and, where /proc tells them, all its descendants."""
        if self.status is None:
            quietly(os.killpg, self.pid, number)
        targets = descendants(os.getpid()) if LINUX else []
        for pid in targets:
            quietly(os.kill, pid, number)

    def end_tree(self) -> None:
        """Kill whatever is left: politely first, then not."""
        if not self.reap():
            return
        self.signal_all(signal.SIGTERM)
        self.signal_all(signal.SIGCONT)
        if self._gone_within(TERM_GRACE_S):
            return
        deadline = time.monotonic() + KILL_LIMIT_S
        while time.monotonic() < deadline:
            self.signal_all(signal.SIGKILL)
            if self._gone_within(0.02):
                return

    def _gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        pause = 0.001
        while self.reap():
            if time.monotonic() > deadline:
                return False
            time.sleep(pause)
            pause = min(pause * 2, 0.02)
        return True


def supervise(request: dict[str, Any], fds: list[int], network: PrivateNetwork) -> NoReturn:
    """Be the supervisor of one command."""
    if LINUX:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    boss = Supervisor(fds[0])
    errors, report = os.pipe()
    me = os.getpid()
    boss.pid = os.fork()
    if boss.pid == 0:
        try:
            run_command(request, fds, me, network)
        except StageError as error:
            os.write(report, f"{error.stage} {error.code} {error.text}".encode(errors="replace")[:2000])
        except BaseException as error:
            os.write(report, f"internal 0 {error!r}".encode(errors="replace")[:2000])
        os._exit(127)
    os.close(report)
    for fd in fds[1:]:
        os.close(fd)
    boss.watch(errors)
    told = boss.status is not None and boss.reap()
    if told:
        boss.tell(f"exit {boss.status}")
    boss.end_tree()
    last = "" if told or boss.status is None else f"exit {boss.status}\n"
    boss.tell(last + "gone")
    os._exit(0)


# --- the server --------------------------------------------------------------------------------------------


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
            if request.get("probe"):
                probe(request, fds, network)
            supervise(request, fds, network)
        finally:
            os._exit(1)
    for fd in fds:
        os.close(fd)
    return pid


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


def serve(fd: int) -> None:
    """Serve requests until aar is gone."""
    os.setsid()
    if LINUX:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    sock = _socket.socket(fileno=fd)
    os.set_inheritable(fd, False)
    network = PrivateNetwork()
    supervisors: set[int] = set()
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
                return
            supervisors.add(serve_one(sock, *message, network))
        elif ready - {wake_read}:
            return


if __name__ == "__main__":
    gc.disable()
    serve(int(sys.argv[1]))
