"""System calls that the standard library does not offer, and the error of the steps between fork and exec."""

from __future__ import annotations

import ctypes
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as signal
    from collections.abc import Callable
else:
    # The bare C module: every module more makes the start slower, and every fork.
    import _signal

    signal = _signal


LINUX = sys.platform == "linux"
libc = ctypes.CDLL(None, use_errno=True)

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
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
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
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
