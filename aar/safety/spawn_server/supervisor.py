"""The process above one command: it watches it, and ends the whole tree."""

from __future__ import annotations

import _socket
import os
import select
import struct
import time

from aar.safety.spawn_server.kernel import LINUX, quietly, signal
from aar.safety.spawn_server.walls import tasks_of_machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

TERM_GRACE_S = 0.25
"""Seconds between the polite signal and SIGKILL."""
KILL_LIMIT_S = 2.0
"""Seconds after which a supervisor stops trying (processes that the kernel cannot end yet)."""
NAMESPACE_END_S = 0.05
"""Seconds in which a process namespace ends by itself once its first process has."""
COUNT_PAUSE_MS = 100
"""Milliseconds between two looks at the number of tasks, where the kernel does not count for us."""
MAX_LOG = 200_000_000
"""Bytes of output of a command that goes on without aar; what comes after them is lost."""


def _families() -> dict[int, list[int]]:
    """Return the children of each process (/proc/PID/stat, field 4 is the parent)."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib is slow to import here
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
    return children


def children_of(root: int) -> list[int]:
    """Return the processes right below ``root``."""
    return _families().get(root, [])


def descendants(root: int) -> list[int]:
    """Return all processes below ``root``."""
    children = _families()
    found: list[int] = []
    todo = [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def count_below(root: int) -> int:
    """Return the number of threads below ``root``."""
    count = 0
    for pid in descendants(root):
        try:
            count += len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 - as above
        except OSError:
            continue
    return count


class Supervisor:
    """Watches one command and ends its tree.

    Args:
        status: Pipe to which bubblewrap tells how it fares, when that is the child.
    """

    def __init__(self, status: int) -> None:
        self.control = -1
        self.bubblewrap: int | None = status
        self.wrapped = True
        """Whether the child is not the command itself but stands for a process namespace."""
        self.most_tasks = self.first_tasks = 0
        self.pid = 0
        self.status: int | None = None
        self.terminated = False
        self.pipe = self.log = -1
        self.logged = 0
        self.wake_read, wake_write = os.pipe()
        os.set_blocking(self.wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_term)

    def take(self, control: int, request: dict[str, Any]) -> None:
        """Learn what is to be watched.

        Args:
            control: Socket to aar.
            request: See the package. ``most_tasks``: threads that the tree may have, where RLIMIT_NPROC does
                not bind (root); 0: no limit.
        """
        self.control = control
        if "bubblewrap" not in request["wall"]:
            self.bubblewrap = None
            self.wrapped = bool(request["wall"].get("namespaces"))
        self.most_tasks = request.get("most_tasks", 0)
        self.first_tasks = tasks_of_machine() if self.most_tasks else 0

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
            ready = {fd for fd, _ in poller.poll(COUNT_PAUSE_MS if self.most_tasks else None)}
            if not ready and self._too_many():
                self.tell("limit processes")
                return
            if errors in ready:
                poller.unregister(errors)
                self._settle_start(errors)
                errors = -1
            if self.wake_read in ready:
                os.read(self.wake_read, 4096)
                self.reap()
            if self.control in ready and self._let_go():
                poller.unregister(self.control)
                poller.register(self.pipe, select.POLLIN)
                continue
            if self.pipe in ready and not self.keep_output():
                poller.unregister(self.pipe)
            if self.control in ready or self.terminated or self.status is not None:
                return

    def _let_go(self) -> bool:
        """Take over the output if aar lets the command go; return whether it does."""
        sock = _socket.socket(fileno=os.dup(self.control))
        width = struct.calcsize("i")
        try:
            data, ancillary, _, _ = sock.recvmsg(1, _socket.CMSG_SPACE(2 * width))
        except OSError:
            return False
        finally:
            sock.close()
        if data != b"d" or not ancillary or len(ancillary[0][2]) != 2 * width:
            return False
        self.pipe, self.log = struct.unpack("2i", ancillary[0][2])
        os.set_blocking(self.pipe, False)
        # The end of the server is not its end any more.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return True

    def keep_output(self) -> bool:
        """Write what came to the log; return whether more may come."""
        try:
            data = os.read(self.pipe, 1 << 16)
        except BlockingIOError:
            return True
        if data and self.logged < MAX_LOG:
            quietly(os.write, self.log, data)
            self.logged += len(data)
        return bool(data)

    def _settle_start(self, errors: int) -> None:
        report = os.read(errors, 4096)
        if report:
            self.tell("failed " + report.decode(errors="replace"))
        else:
            self.tell(f"started {self.pid}")
        os.close(errors)

    def _too_many(self) -> bool:
        if tasks_of_machine() <= self.first_tasks + self.most_tasks:
            return False
        return count_below(os.getpid()) > self.most_tasks

    def signal_all(self, number: int) -> None:
        """Signal the command's group and, where /proc tells them, all its descendants.

        Who stands for a namespace is left out of what is polite: its end would kill the rest at once.
        """
        spared = self.pid if self.wrapped and number != signal.SIGKILL else 0
        if self.status is None and not spared:
            quietly(os.killpg, self.pid, number)
        targets = descendants(os.getpid()) if LINUX else []
        for pid in targets:
            if pid != spared:
                quietly(os.kill, pid, number)

    def freeze_all(self) -> None:
        """Stop everything until no process is new, so that none forks away from being killed."""
        stopped: set[int] = set()
        for _ in range(20):
            new = set(descendants(os.getpid())) - stopped if LINUX else set[int]()
            if not new:
                return
            for pid in new:
                quietly(os.kill, pid, signal.SIGSTOP)
            stopped |= new

    def setup_failed(self) -> bool:
        """Return whether bubblewrap ended before it ran the command: then it reports no exit code."""
        if self.bubblewrap is None or self.status != 1:
            return False
        os.set_blocking(self.bubblewrap, False)
        try:
            report = os.read(self.bubblewrap, 4096)
        except BlockingIOError:
            report = b""
        return b'"exit-code"' not in report

    def end_tree(self) -> None:
        """Kill whatever is left: politely first, then not."""
        ended = self.wrapped and self.status is not None
        if not self.reap() or (ended and self._gone_within(NAMESPACE_END_S)):
            return
        if not self.most_tasks or not self._too_many():
            self.signal_all(signal.SIGTERM)
            self.signal_all(signal.SIGCONT)
            if self._gone_within(TERM_GRACE_S):
                return
        deadline = time.monotonic() + KILL_LIMIT_S
        while time.monotonic() < deadline:
            if not self.wrapped:
                self.freeze_all()
            self.signal_all(signal.SIGKILL)
            if self._gone_within(0.02):
                return

    def _gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.reap():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            # The end of a child wakes it.
            if select.select([self.wake_read], [], [], min(left, 0.02))[0]:
                os.read(self.wake_read, 4096)
        return True


def supervise(boss: Supervisor, request: dict[str, Any], control: int, errors: int) -> NoReturn:
    """Be the supervisor of one command, whose process is there and has the same request.

    Args:
        boss: Made before the fork.
        request: See the package.
        control: Socket to aar.
        errors: Pipe on which the child tells why it cannot become the command.
    """
    boss.take(control, request)
    boss.watch(errors)
    told = boss.status is not None and boss.reap()
    if boss.setup_failed():
        boss.tell("failed wall 0 bubblewrap could not set it up")
    if told:
        boss.tell(f"exit {boss.status}")
    boss.end_tree()
    while boss.pipe >= 0 and select.select([boss.pipe], [], [], 0)[0] and boss.keep_output():
        pass
    last = "" if told or boss.status is None else f"exit {boss.status}\n"
    boss.tell(last + "gone")
    os._exit(0)
