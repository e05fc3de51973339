"""The process above one command: it watches it, and ends the whole tree."""

from __future__ import annotations

import os
import select
import time

from aar.safety.spawn_server.command import run_command
from aar.safety.spawn_server.kernel import (
    LINUX,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    StageError,
    prctl,
    quietly,
    signal,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from aar.safety.spawn_server.network import PrivateNetwork

TERM_GRACE_S = 0.25
"""Seconds between the polite signal and SIGKILL."""
KILL_LIMIT_S = 2.0
"""Seconds after which a supervisor stops trying (processes that the kernel cannot end yet)."""
COUNT_PAUSE_MS = 100
"""Milliseconds between two looks at the number of tasks, where the kernel does not count for us."""


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


def count_below(root: int) -> int:
    """Return the number of threads below ``root``."""
    count = 0
    for pid in descendants(root):
        try:
            count += len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208
        except OSError:
            continue
    return count


def tasks_of_machine() -> int:
    """Return the number of all threads (the fourth word of /proc/loadavg): one cheap read."""
    fd = os.open("/proc/loadavg", os.O_RDONLY)
    try:
        return int(os.read(fd, 128).split()[3].partition(b"/")[2])
    finally:
        os.close(fd)


class Supervisor:
    """Watches one command and ends its tree.

    Args:
        control: Socket to aar.
        most_tasks: Threads that the tree may have, where RLIMIT_NPROC does not bind (root); 0: no limit.
        status: Pipe from bubblewrap, when that is the child.
    """

    def __init__(self, control: int, most_tasks: int, status: int | None) -> None:
        self.control = control
        self.bubblewrap = status
        self.most_tasks = most_tasks
        self.first_tasks = tasks_of_machine() if most_tasks else 0
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
            ready = {fd for fd, _ in poller.poll(COUNT_PAUSE_MS if self.most_tasks else None)}
            if not ready and self._too_many():
                self.tell("limit processes")
                return
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

    def _too_many(self) -> bool:
        if tasks_of_machine() <= self.first_tasks + self.most_tasks:
            return False
        return count_below(os.getpid()) > self.most_tasks

    def signal_all(self, number: int) -> None:
        """Signal the command's group and, where /proc tells them, all its descendants.

        bubblewrap's own process is left out of what is polite: its end would kill the rest at once.
        """
        spared = self.pid if self.bubblewrap is not None and number != signal.SIGKILL else 0
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
        if not self.reap():
            return
        if not self.most_tasks or not self._too_many():
            self.signal_all(signal.SIGTERM)
            self.signal_all(signal.SIGCONT)
            if self._gone_within(TERM_GRACE_S):
                return
        deadline = time.monotonic() + KILL_LIMIT_S
        while time.monotonic() < deadline:
            if self.bubblewrap is None:
                self.freeze_all()
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
    status, status_end = os.pipe() if "bubblewrap" in request["wall"] else (None, None)
    boss = Supervisor(fds[0], request.get("most_tasks", 0), status)
    errors, report = os.pipe()
    me = os.getpid()
    boss.pid = os.fork()
    if boss.pid == 0:
        try:
            run_command(request, fds, me, network, status_end)
        except StageError as error:
            os.write(report, f"{error.stage} {error.code} {error.text}".encode(errors="replace")[:2000])
        except BaseException as error:
            os.write(report, f"internal 0 {error!r}".encode(errors="replace")[:2000])
        os._exit(127)
    os.close(report)
    if status_end is not None:
        os.close(status_end)
    for fd in fds[1:]:
        os.close(fd)
    boss.watch(errors)
    told = boss.status is not None and boss.reap()
    if boss.setup_failed():
        boss.tell("failed wall 0 bubblewrap could not set it up")
    if told:
        boss.tell(f"exit {boss.status}")
    boss.end_tree()
    last = "" if told or boss.status is None else f"exit {boss.status}\n"
    boss.tell(last + "gone")
    os._exit(0)
