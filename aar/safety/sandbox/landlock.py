"""The Landlock wall: Landlock for files, a namespace or seccomp for the network, seccomp for the rest.

Landlock (https://docs.kernel.org/userspace-api/landlock.html) is an allow-list of folders. The ruleset is
made here, in aar, which stays free itself; only its descriptor goes to the spawn server, where each
command enters it. A secret folder is kept unreadable by granting its siblings one by one instead of its
parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import stat
import struct
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from aar.protocol.errors import SandboxError
from aar.safety.sandbox.base import CAP_DAC_OVERRIDE, Fence, Limits, Plan, Probe, Step
from aar.safety.sandbox.layout import Layout, everything, unlocked_paths
from aar.safety.sandbox.seccomp import build_filter
from aar.safety.sandbox.view import windows_subsystem

_CREATE_RULESET, _ADD_RULE = 444, 445
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_MAKE_DEVICES = 1 << 6 | 1 << 11
_FILES_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_TCP = 0b11
"""LANDLOCK_ACCESS_NET_BIND_TCP and _CONNECT_TCP, from ABI 4."""
_SCOPES = 0b11
"""LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET and _SIGNAL, from ABI 6."""

_ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""Rights that may stand in a rule for something that is not a folder."""
_READ = EXECUTE | READ_FILE | READ_DIR

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts")
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - POSIX semaphores live there


def abi_version() -> int:
    """Return the kernel's Landlock ABI; 0 where there is none."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return 0
    return max(_syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG), 0)


def _syscall(number: int, address: object, size: int, flags: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.syscall(ctypes.c_long(number), address, ctypes.c_size_t(size), ctypes.c_uint32(flags)))


def handled_files(abi: int) -> int:
    """Return all rights over files that ABI ``abi`` knows."""
    return _FILES_BY_ABI[max(known for known in _FILES_BY_ABI if known <= abi)]


class Ruleset:
    """One ruleset, open for rules until it is handed over."""

    def __init__(self, abi: int, *, tcp: bool) -> None:
        self.files = handled_files(abi)
        parts = [self.files]
        if abi >= 4:
            parts.append(0 if tcp else _TCP)
        if abi >= 6:
            parts.append(_SCOPES)
        attributes = struct.pack(f"{len(parts)}Q", *parts)
        self.fd = _syscall(_CREATE_RULESET, attributes, len(attributes), 0)
        if self.fd < 0:
            raise SandboxError(f"Landlock made no ruleset: {os.strerror(ctypes.get_errno())}.")
        os.set_inheritable(self.fd, False)

    def allow(self, path: Path | str, rights: int) -> None:
        """Grant ``rights`` beneath ``path``; something that is not there or not ours to open is left out."""
        try:
            target = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return
        try:
            rights &= self.files
            if not stat.S_ISDIR(os.fstat(target).st_mode):
                rights &= _ON_FILES
            if rights:
                self._add(target, rights, path)
        finally:
            os.close(target)

    def _add(self, target: int, rights: int, path: Path | str) -> None:
        rule = struct.pack("=Qi", rights, target)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syscall(ctypes.c_long(_ADD_RULE), self.fd, _RULE_PATH_BENEATH, rule, ctypes.c_uint32(0)) != 0:
            raise SandboxError(f"Landlock refused a rule for {path}: {os.strerror(ctypes.get_errno())}.")

    def allow_around(self, top: Path, rights: int, hidden: Iterable[Path]) -> None:
        """Grant ``rights`` beneath ``top`` but not beneath any of ``hidden``."""
        inside = [path for path in hidden if path.is_relative_to(top)]
        if not inside:
            self.allow(top, rights)
            return
        if top in inside:
            return
        steps = {path.relative_to(top).parts[0] for path in inside}
        with contextlib.suppress(OSError), os.scandir(top) as entries:
            for entry in entries:
                if entry.name in steps:
                    self.allow_around(top / entry.name, rights, inside)
                elif not entry.is_symlink():
                    self.allow(entry.path, rights)


class LandlockWall:
    """See the module."""

    name = "landlock"

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._abi = abi_version()
        self._private_network = sys.platform == "linux"
        self._rulesets: dict[Limits, Ruleset] = {}
        self._layout = Layout(plan)
        self._guarded: dict[Limits, tuple[object, tuple[Path, ...]]] = {}
        self._filters = {internet: build_filter(internet) for internet in (True, False)}

    @property
    def covers(self) -> tuple[str, ...]:
        """What it holds."""
        network = "a network namespace with loopback only" if self._private_network else "no internet sockets"
        return (
            "files outside the workspace and the temporary folder are not written, made, renamed or removed",
            f"{len(self._plan.secrets)} secret paths are not read",
            f"network off: {network}",
            "processes outside are not traced" + (" or signalled" if self._abi >= 6 else ""),
        )

    @property
    def gaps(self) -> tuple[str, ...]:
        """What it does not hold."""
        gaps = [
            "chmod, chown, time stamps and extended attributes of your own files outside the workspace",
            "protected paths inside the workspace (such as .git/hooks) can be written while a command runs; "
            "afterwards they are compared and changes are undone",
            "package caches are shared with your own tools, which may use what a command leaves there",
            "secret files inside the workspace (such as .env) can be read by commands",
            "names of files in secret folders can be listed",
            "sockets of services (such as Docker's) can be reached where their file mode allows it",
            f"{_SHARED_MEMORY} is shared",
        ]
        if self._abi < 2:
            gaps.append("ABI 1: files cannot be moved between folders, not even in the workspace")
        if self._abi < 3:
            gaps.append("ABI below 3: truncate(2) works outside the workspace")
        if self._abi < 6:
            gaps.append("ABI below 6: processes of the same user can be signalled")
        if not self._private_network:
            gaps.append("no network namespace: commands cannot use 127.0.0.1")
        if self._home_is_workspace():
            gaps.append("the workspace holds your home: new entries directly in it cannot be made")
        return tuple(gaps)

    def missing(self) -> str | None:
        """Return why this machine cannot have it."""
        if sys.platform != "linux":
            return f"Landlock needs Linux, this is {sys.platform}."
        if windows_subsystem():
            return "Landlock: this is Linux below Windows (WSL), whose programs run past any wall."
        if self._filters[False] is None:
            return f"Landlock: no system call table for {platform.machine()}."
        if self._abi < 1:
            return "Landlock is not in this kernel, or not enabled (lsm= on the kernel's command line)."
        return None

    def fence(self, limits: Limits) -> Fence:
        """Return ruleset and filter for ``limits``; rulesets are made once."""
        private = self._private_network and not limits.network
        internet = limits.network or private
        program = self._filters[internet] or b""
        steps: dict[str, object] = {"private_network": private, "seccomp": program.decode("latin-1")}
        # Also a user who is not root may hold some, and has all of them in an own user namespace.
        steps["keep_capabilities"] = self._kept_capabilities()
        granted = unlocked_paths(self._plan, limits)
        outside = tuple(path for path in limits.writable if path not in granted)
        key = replace(limits, writable=outside, git_config=False, lasting=False)
        if key not in self._rulesets:
            self._rulesets[key] = self._make(key, tcp=internet)
        guarded = self._everything(replace(limits, lasting=False))
        return Fence(steps, self._rulesets[key].fd, guarded=guarded, granted=granted)

    def weaken(self, probe: Probe) -> bool:
        """Without a network namespace, internet sockets are denied as a whole."""
        if probe.error is None or not self._private_network:
            return False
        self._private_network = False
        self.close()
        return True

    def mask_step(self, path: Path) -> Step:
        """Nothing: this wall has no masks."""
        return ()

    @property
    def slow(self) -> bool:
        """It looks at nothing that could be large."""
        return False

    def refresh(self) -> None:
        """Nothing to look at."""

    def close(self) -> None:
        """Close all rulesets."""
        for ruleset in self._rulesets.values():
            os.close(ruleset.fd)
        self._rulesets.clear()

    def _everything(self, limits: Limits) -> tuple[Path, ...]:
        state = self._layout.state(())
        known = self._guarded.get(limits)
        if known is None or known[0] != state:
            known = self._guarded[limits] = state, everything(self._plan, limits, ())
        return known[1]

    def _kept_capabilities(self) -> int:
        """Root needs to pass by file modes in a workspace that is somebody else's, and only there."""
        if os.geteuid() != 0:
            return 0
        try:
            owner = self._plan.workspace.stat().st_uid
        except OSError:
            return 0
        return 0 if owner == 0 else CAP_DAC_OVERRIDE

    def _home_is_workspace(self) -> bool:
        return self._plan.home.is_relative_to(self._plan.workspace)

    def _make(self, limits: Limits, *, tcp: bool) -> Ruleset:
        ruleset = Ruleset(self._abi, tcp=tcp)
        plan = self._plan
        everything = ruleset.files & ~_MAKE_DEVICES
        outer = [path for path in plan.secrets if not self._inside_workspace(path)]
        ruleset.allow("/", READ_DIR)
        ruleset.allow_around(Path("/"), _READ, outer)
        ruleset.allow(plan.workspace, _READ) if not self._home_is_workspace() else None
        folders = [plan.temp, *plan.caches, *limits.writable]
        if not limits.read_only:
            folders += [plan.workspace, *plan.writable]
        for folder in folders:
            ruleset.allow_around(folder, everything & ~IOCTL_DEV, outer)
        for device in _DEVICES:
            ruleset.allow(f"/dev/{device}", READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | IOCTL_DEV)
        ruleset.allow(_SHARED_MEMORY, everything & ~IOCTL_DEV)
        return ruleset

    def _inside_workspace(self, path: Path) -> bool:
        """Such a path cannot be hidden without making the workspace unusable; it is a gap (told)."""
        return path.is_relative_to(self._plan.workspace) and not self._home_is_workspace()
