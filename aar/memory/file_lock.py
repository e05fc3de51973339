"""Locks on open files, so that one session has one writer."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

_UNSUPPORTED = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


def try_lock(fd: int) -> bool:
    """Take the exclusive lock of an open file without waiting.

    A file system that knows no locks counts as free: a session there works, unprotected.

    Returns:
        False when another process (or another descriptor of this one) holds it.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    return True


def unlock(fd: int) -> None:
    """Give the lock back, also for descriptors that child processes inherited."""
    try:
        fcntl.flock(fd, fcntl.LOCK_UN)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise


def lock_holder(fd: int) -> int | None:
    """Return the id of the process that holds the lock, where the system tells (Linux: /proc/locks)."""
    try:
        stat = os.fstat(fd)
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    # "1: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF"; see proc_locks(5).
    place = f"{os.major(stat.st_dev):02x}:{os.minor(stat.st_dev):02x}:{stat.st_ino}"
    for line in lines:
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5] == place:
            pid = int(fields[4])
            return pid if pid > 0 else None
    return None
