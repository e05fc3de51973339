"""System calls that commands may not make, as a seccomp filter (seccomp(2), classic BPF).

The filter is a list of 8-byte instructions, assembled here. Denied calls return EPERM, so that programs
go on without them; calls of a foreign architecture are denied as a whole.
"""

from __future__ import annotations

import errno
import platform
import struct
from dataclasses import dataclass

# Instructions of classic BPF (linux/bpf_common.h).
_LOAD = 0x20
_JUMP_EQUAL = 0x15
_JUMP_GREATER_EQUAL = 0x35
_JUMP_ANY_BIT = 0x45
_RETURN = 0x06

# struct seccomp_data: int nr; u32 arch; u64 instruction_pointer; u64 args[6], little endian.
_NUMBER = 0
_ARCH = 4
_FIRST_ARGUMENT = 16
_SECOND_ARGUMENT = 24

_ALLOW = 0x7FFF0000
_DENY = 0x00050000 | errno.EPERM
_NOT_THERE = 0x00050000 | errno.ENOSYS

_X32_BIT = 0x40000000
_NEW_NAMESPACES = 0x7E020080
"""CLONE_NEW{USER,NS,CGROUP,UTS,IPC,PID,NET,TIME} in the flags of clone and unshare."""
_TIOCSTI = 0x5412
_TIOCLINUX = 0x541C

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16

_DENIED = [
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "process_madvise",
    "kcmp",
    "pidfd_getfd",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "keyctl",
    "add_key",
    "request_key",
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "setns",
    "swapon",
    "swapoff",
    "reboot",
    "kexec_load",
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
    "open_by_handle_at",
    "quotactl",
    "acct",
    "settimeofday",
    "clock_settime",
    "adjtimex",
    "clock_adjtime",
    "sethostname",
    "setdomainname",
    "syslog",
    "move_mount",
    "open_tree",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    "quotactl_fd",
]


@dataclass(frozen=True, slots=True)
class Machine:
    """System call numbers of one architecture (arch/x86/entry/syscalls, asm-generic/unistd.h)."""

    audit: int
    numbers: dict[str, int]
    x32: bool


_NEW = {
    "pidfd_getfd": 438,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "clone3": 435,
    "process_madvise": 440,
    "mount_setattr": 442,
    "quotactl_fd": 443,
}
"""Calls that have one number on every architecture."""

_X86_64 = {
    "ioctl": 16, "socket": 41, "socketpair": 53, "clone": 56, "ptrace": 101, "syslog": 103,
    "pivot_root": 155, "adjtimex": 159, "chroot": 161, "acct": 163, "settimeofday": 164, "mount": 165,
    "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169, "sethostname": 170, "setdomainname": 171,
    "init_module": 175, "delete_module": 176, "quotactl": 179, "clock_settime": 227, "kexec_load": 246,
    "add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272, "perf_event_open": 298,
    "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308,
    "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "finit_module": 313,
    "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323,
}  # fmt: skip

_AARCH64 = {
    "ioctl": 29, "umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51, "quotactl": 60, "acct": 89,
    "unshare": 97, "kexec_load": 104, "init_module": 105, "delete_module": 106, "clock_settime": 112,
    "syslog": 116, "ptrace": 117, "reboot": 142, "sethostname": 161, "setdomainname": 162,
    "settimeofday": 170, "adjtimex": 171, "socket": 198, "socketpair": 199, "add_key": 217,
    "request_key": 218, "keyctl": 219, "clone": 220, "swapon": 224, "swapoff": 225, "perf_event_open": 241,
    "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268,
    "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "bpf": 280,
    "userfaultfd": 282, "kexec_file_load": 294,
}  # fmt: skip

MACHINES = {
    "x86_64": Machine(0xC000003E, _X86_64 | _NEW, x32=True),
    "aarch64": Machine(0xC00000B7, _AARCH64 | _NEW, x32=False),
}
"""Architectures for which a filter can be made, by ``platform.machine()``."""


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _when(number: int, *body: bytes) -> bytes:
    """Run ``body``, which returns, when the loaded system call number is ``number``."""
    return _op(_JUMP_EQUAL, number, 0, len(body)) + b"".join(body)


def _socket_rule(number: int, families: tuple[int, ...]) -> bytes:
    body = [_op(_LOAD, _FIRST_ARGUMENT)]
    for index, family in enumerate(families):
        body.append(_op(_JUMP_EQUAL, family, len(families) - index, 0))
    body += [_op(_RETURN, _DENY), _op(_RETURN, _ALLOW)]
    return _when(number, *body)


def _flags_rule(number: int) -> bytes:
    """Deny a call whose first argument asks for a new namespace."""
    return _when(
        number,
        _op(_LOAD, _FIRST_ARGUMENT),
        _op(_JUMP_ANY_BIT, _NEW_NAMESPACES, 0, 1),
        _op(_RETURN, _DENY),
        _op(_RETURN, _ALLOW),
    )


def _ioctl_rule(number: int) -> bytes:
    """Deny typing into the user's terminal."""
    return _when(
        number,
        _op(_LOAD, _SECOND_ARGUMENT),
        _op(_JUMP_EQUAL, _TIOCSTI, 1, 0),
        _op(_JUMP_EQUAL, _TIOCLINUX, 0, 1),
        _op(_RETURN, _DENY),
        _op(_RETURN, _ALLOW),
    )


def build_filter(internet: bool, machine: str | None = None) -> bytes | None:
    """Return the filter program, or ``None`` for an architecture without a table.

    Args:
        internet: Whether IPv4 and IPv6 sockets are allowed. Unix and netlink sockets always are, and no
            others (raw packets, virtual machine and Bluetooth sockets lead around a network namespace).
        machine: As of ``platform.machine()``; the default is this one.
    """
    table = MACHINES.get(machine or platform.machine())
    if table is None:
        return None
    numbers = table.numbers
    program = (
        _op(_LOAD, _ARCH) + _op(_JUMP_EQUAL, table.audit, 1, 0) + _op(_RETURN, _DENY) + _op(_LOAD, _NUMBER)
    )
    if table.x32:
        program += _op(_JUMP_GREATER_EQUAL, _X32_BIT, 0, 1) + _op(_RETURN, _DENY)
    for name in _DENIED:
        if name in numbers:
            program += _when(numbers[name], _op(_RETURN, _DENY))
    # The flags of clone3 lie in memory, out of the filter's sight: libraries fall back to clone.
    program += _when(numbers["clone3"], _op(_RETURN, _NOT_THERE))
    program += _flags_rule(numbers["clone"]) + _flags_rule(numbers["unshare"]) + _ioctl_rule(numbers["ioctl"])
    families = (AF_UNIX, AF_NETLINK, AF_INET, AF_INET6) if internet else (AF_UNIX, AF_NETLINK)
    program += _socket_rule(numbers["socket"], families)
    return program + _op(_RETURN, _ALLOW)
