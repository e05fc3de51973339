"""What is put around the calling process between fork and exec."""

from __future__ import annotations

import ctypes
import os
import resource
import struct

from aar.safety.spawn_server.kernel import (
    CAPABILITY_VERSION_3,
    PR_CAP_AMBIENT,
    PR_CAP_AMBIENT_CLEAR_ALL,
    PR_CAPBSET_DROP,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_SECCOMP,
    PR_SET_SECUREBITS,
    SECBIT_NOROOT_LOCKED,
    SECCOMP_MODE_FILTER,
    SYS_LANDLOCK_RESTRICT_SELF,
    check,
    libc,
    prctl,
    raw_prctl,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from aar.safety.spawn_server.network import PrivateNetwork


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
        install_filter(program.encode("latin-1"))


def install_filter(code: bytes) -> None:
    """Let the kernel judge system calls by a seccomp program from now on."""
    program = _SockFprog(len(code) // 8, code)
    zero = ctypes.c_ulong(0)
    done = libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), zero, zero)
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


def tasks_of_machine() -> int:
    """Return the number of all threads (the fourth word of /proc/loadavg): one cheap read."""
    fd = os.open("/proc/loadavg", os.O_RDONLY)
    try:
        return int(os.read(fd, 128).split()[3].partition(b"/")[2])
    finally:
        os.close(fd)
