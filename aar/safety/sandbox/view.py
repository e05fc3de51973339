"""A private view of the file system: what a command sees behind both walls that are made of namespaces.

The steps of a view are done in their order, so that what must win comes last: first everything read-only,
then what may be written, then what is protected inside of that, then what is hidden. A step is a
tuple: ``bind``, ``ro-bind`` and ``ro-bind-try`` with SOURCE, as it lies outside, and TARGET; ``dev``,
``proc``, ``remount-ro`` and ``tmpfs`` with TARGET, the last also with a size in bytes (0: the kernel's).

The network namespace is the session's own (see `aar.safety.spawn_server.network`), or one for each command
where that cannot be made.
"""

from __future__ import annotations

import os
import platform
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from aar.safety.sandbox.base import Fence, Limits, Plan, Probe, Step
from aar.safety.sandbox.layout import Layout, Protection, protect, stamp
from aar.safety.sandbox.scan import Findings, WorkspaceScan
from aar.safety.sandbox.seccomp import build_filter

_SHARED_MEMORY_BYTES = 1 << 30
_TEMP = ("/tmp", "/var/tmp")  # noqa: S108 - behind the wall both are the session's own
_REPLACED = (*_TEMP, "/run")
_SYSTEM_OF_RUN = ("/run/current-system", "/run/opengl-driver", "/run/wrappers", "/run/systemd/resolve")
"""What programs of some distributions need of ``/run``; the rest of it is sockets of services."""
_SOCKETS = (
    "/var/snap/lxd/common/lxd/unix.socket",
    "/var/lib/lxd/unix.socket",
    "/var/lib/incus/unix.socket",
)
_KERNEL_SETTINGS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")
"""Owned by root, whose user id is the same inside: so they would be open to root."""
_HOME_SOCKETS = (
    ".docker/run",
    ".docker/desktop",
    ".colima",
    ".orbstack/run",
    ".local/share/containers/podman/machine",
)


def windows_subsystem() -> bool:
    """Return whether this Linux runs below Windows, whose programs can be started past any wall."""
    try:
        return "microsoft" in Path("/proc/sys/kernel/osrelease").read_text().lower()
    except OSError:
        return False


class ViewWall(ABC):
    """What the walls of namespaces have in common; subclasses say who makes the view."""

    name: ClassVar[str]

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._filter = build_filter(internet=True)
        self._session_network = True
        self._own_proc = True
        self.scan = WorkspaceScan(plan.workspace, plan.readable)
        self._layout = Layout(plan)
        self._fences: dict[Limits, tuple[object, Fence]] = {}
        sockets = [Path(name) for name in _SOCKETS] + [plan.home / name for name in _HOME_SOCKETS]
        self._hideable = (*plan.secrets, *sockets)
        watched = (*self._hideable, plan.workspace, *plan.writable, *plan.caches)
        self._watched = tuple(map(str, watched))

    @property
    def covers(self) -> tuple[str, ...]:
        """What it holds."""
        lone = "a network of loopback only, and allowed domains through aar's proxy"
        return (
            "everything outside the workspace, added folders, /tmp and package caches is read-only",
            f"{len(self._plan.secrets)} secret paths, and secret files in the workspace, are not read",
            "protected paths of the workspace are not written; made where absent, they are removed again",
            f"network off: {lone if self._session_network else 'each command has loopback only'}",
            "processes outside are not seen; /tmp, /dev, /run and shared memory are its own",
            "no capabilities, no new namespaces, no system calls that the seccomp filter denies",
        )

    @property
    def gaps(self) -> tuple[str, ...]:
        """What it does not hold."""
        gaps = [
            "package caches are shared with your own tools, which may use what a command leaves there",
            "secret files in the workspace whose content git has committed can be read",
            "absent protected paths (such as AGENTS.md) can be made while a command with a time limit runs, "
            "files of shells also without one; afterwards changes are undone (git hooks are never made)",
            "sockets of services outside /run and /tmp can be reached where their file mode allows it",
            "git repositories that a command makes itself are not protected",
        ]
        if not self.scan.findings().whole:
            gaps.append("the workspace is large: secret files and git folders deep inside may be overlooked")
        if not self._session_network:
            gaps.append("no shared network: commands do not reach each other, and no domain can be allowed")
        if not self._own_proc:
            gaps.append("/proc is the machine's: names of other processes are seen")
        return tuple(gaps)

    def missing(self) -> str | None:
        """Return why this machine cannot have it."""
        if sys.platform != "linux":
            return f"{self.name} needs Linux, this is {sys.platform}."
        if windows_subsystem():
            return f"{self.name}: this is Linux below Windows (WSL), whose programs run past any wall."
        if self._filter is None:
            return f"{self.name}: no system call table for {platform.machine()}."
        if os.geteuid() == 0 and _owner(self._plan.workspace) != 0:
            return f"{self.name}: root has no rights inside, and the workspace belongs to another user."
        return None

    def fence(self, limits: Limits) -> Fence:
        """Return the view for ``limits`` as the file system is now, made again when that differs."""
        findings = self.scan.findings()
        state = (
            findings,
            self._layout.state(findings.git_folders),
            stamp(self._watched),
            stamp(map(str, limits.writable)),
            self._session_network,
            self._own_proc,
        )
        known = self._fences.get(limits)
        if known is None or known[0] != state:
            known = self._fences[limits] = state, self._make(limits, findings)
        return known[1]

    def _make(self, limits: Limits, findings: Findings) -> Fence:
        session = self._session_network and not limits.network
        protection = protect(self._plan, limits, findings.git_folders)
        view = [*self._system(), *self._writable(limits), *_protected(protection)]
        view += self._hidden(findings.secrets)
        steps: dict[str, object] = {
            **self._maker(own_network=not session and not limits.network),
            "private_network": session,
            "view": view,
            "filter": (self._filter or b"").decode("latin-1"),
        }
        absent, guarded = tuple(protection.absent), tuple(protection.guarded)
        return Fence(steps, None, (), absent, guarded, protection.granted)

    @abstractmethod
    def _maker(self, *, own_network: bool) -> dict[str, object]:
        """Return the steps that say who makes the view, and whether with a network of its own."""

    def weaken(self, probe: Probe) -> bool:
        """Give up the session's network, then the own ``/proc``: containers often forbid one of them."""
        if probe.error is None:
            return False
        if self._session_network and (
            "namespace" in probe.error or "network" in probe.error or "setns" in probe.error
        ):
            self._session_network = False
            return True
        if self._own_proc and "proc" in probe.error:
            self._own_proc = False
            return True
        return False

    def mask_step(self, path: Path) -> Step:
        """Return what binds an empty read-only folder over ``path``."""
        return ("ro-bind", str(self._plan.blank / "mask"), str(path))

    @property
    def slow(self) -> bool:
        """Whether the next look through the workspace may take long."""
        return self.scan.slow

    def refresh(self) -> None:
        """Look through the workspace."""
        self.scan.findings()

    def close(self) -> None:
        """Nothing is held."""

    def _system(self) -> list[Step]:
        steps: list[Step] = [("ro-bind", "/", "/"), ("dev", "/dev")]
        steps += [("tmpfs", "/dev/shm", _SHARED_MEMORY_BYTES), ("remount-ro", "/dev")]  # noqa: S108 - a new one for each view
        steps += [("proc", "/proc")] if self._own_proc else []
        steps += [("ro-bind-try", name, name) for name in _KERNEL_SETTINGS]
        steps.append(("tmpfs", "/run", 0))
        steps += [("ro-bind-try", name, name) for name in _SYSTEM_OF_RUN]
        temp = str(self._plan.temp)
        steps += [("bind", temp, name) for name in _TEMP]
        return steps + [("ro-bind", str(folder), str(folder)) for folder in self._uncovered()]

    def _uncovered(self) -> list[Path]:
        """Return folders that must be seen although they lie where everything is replaced."""
        wanted = [self._plan.home, Path(sys.prefix), Path(sys.base_prefix), *self._plan.seen]
        replaced = [Path(top) for top in _REPLACED]
        inside = [
            path for path in wanted if path.is_dir() and any(path.is_relative_to(top) for top in replaced)
        ]
        return [path for path in dict.fromkeys(inside) if path not in replaced]

    def _writable(self, limits: Limits) -> list[Step]:
        plan = self._plan
        kind = "ro-bind" if limits.read_only else "bind"
        chosen = dict.fromkeys((plan.workspace, *plan.writable), kind)
        chosen |= dict.fromkeys((*plan.caches, plan.temp), "bind")
        # Bound onto itself a file could not be replaced any more, as git and editors do.
        within = () if limits.read_only else (plan.workspace, *plan.writable)
        granted = [path for path in limits.writable if not any(path.is_relative_to(top) for top in within)]
        chosen |= dict.fromkeys(granted, "bind")
        paths = sorted(chosen, key=lambda path: len(path.parts))
        steps: list[Step] = [(chosen[path], str(path), str(path)) for path in paths if path.exists()]
        return [*steps, ("remount-ro", "/run")]

    def _hidden(self, found: tuple[Path, ...]) -> list[Step]:
        steps: list[Step] = []
        last = "\0"
        # Sorted, so that what lies in a hidden folder comes right after it.
        for path in sorted({*self._hideable, *found}):
            text = str(path)
            if text.startswith(last) or not os.path.lexists(text) or text != os.path.realpath(text):
                continue
            if not self._reaches(path):
                continue
            last = text + "/"
            steps.append(("ro-bind", str(self._plan.blank / ("folder" if path.is_dir() else "file")), text))
        return steps

    def _reaches(self, path: Path) -> bool:
        """Return whether ``path`` is there inside at all."""
        shown = (self._plan.workspace, *self._plan.writable, self._plan.home)
        if any(path.is_relative_to(top) for top in _REPLACED):
            return any(path.is_relative_to(top) for top in shown)
        return True


def _protected(protection: Protection) -> list[Step]:
    anchors = sorted(protection.anchors, key=lambda path: len(path.parts))
    steps: list[Step] = [("bind", str(path), str(path)) for path in anchors]
    return steps + [("ro-bind", str(path), str(path)) for path in protection.read_only]


def _owner(path: Path) -> int:
    try:
        return path.stat().st_uid
    except OSError:
        return 0
