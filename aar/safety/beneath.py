"""Opening a path beneath a folder so that no link on the way is followed, in one call where the kernel can.

``openat2`` (Linux 5.6) resolves a whole path inside the kernel; nobody can swap a part of it in between.
Where it is missing or a filter refuses it, each part is opened by itself.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

FOLDER: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_OPENAT2: Final = 437
"""The number of the call, the same on every architecture."""
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_RESOLVE: Final = _NO_MAGICLINKS | _NO_SYMLINKS | _BENEATH
_MISSING: Final = frozenset({errno.ENOSYS, errno.EPERM, errno.E2BIG, errno.EINVAL})
_TRIES: Final = 16

OpenAt2 = Callable[[int, str, int], int]


def open_beneath(folder: int, parts: Sequence[str], flags: int) -> int:
    """Open ``parts`` below the folder descriptor, following no link and never leaving it.

    Args:
        folder: Descriptor of a folder; it stays open.
        parts: Names on the way; none may be ``..`` or hold a slash.
        flags: As for `os.open`, without those that make a file.

    Raises:
        OSError: ``ELOOP`` or ``ENOTDIR`` where a link stands in the way, else as `os.open`.
    """
    if any(part in ("", ".", "..") or "/" in part for part in parts):
        raise OSError(errno.EINVAL, "not a name below the folder")
    call = openat2()
    if call is not None:
        return call(folder, "/".join(parts) or ".", flags)
    return _walk(folder, parts, flags)


def _walk(folder: int, parts: Sequence[str], flags: int) -> int:
    current = os.dup(folder)
    try:
        for part in parts[:-1]:
            following = os.open(part, FOLDER, dir_fd=current)
            os.close(current)
            current = following
        return os.open(parts[-1] if parts else ".", flags | os.O_NOFOLLOW, dir_fd=current)
    finally:
        os.close(current)


@lru_cache(maxsize=1)
def openat2() -> OpenAt2 | None:
    """Return the call of this kernel, tried once; ``None`` where it is missing or refused."""
    if not sys.platform.startswith("linux"):
        return None
    call = _bound()
    try:
        root = os.open("/", FOLDER)
        try:
            os.close(call(root, ".", FOLDER))
        finally:
            os.close(root)
    except OSError as error:
        return None if error.errno in _MISSING else call
    return call


def _bound() -> OpenAt2:
    import ctypes

    class How(ctypes.Structure):
        _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]

    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long

    def call(folder: int, path: str, flags: int) -> int:
        how = How(flags | os.O_CLOEXEC, 0, _RESOLVE)
        size = ctypes.c_size_t(ctypes.sizeof(how))
        for _ in range(_TRIES):
            found = int(
                syscall(
                    ctypes.c_long(_OPENAT2),
                    ctypes.c_int(folder),
                    ctypes.c_char_p(os.fsencode(path)),
                    ctypes.byref(how),
                    size,
                )
            )
            if found >= 0:
                return found
            # EAGAIN: something was renamed at that moment, so the kernel could not be sure.
            if ctypes.get_errno() not in (errno.EAGAIN, errno.EINTR):
                break
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)

    return call
