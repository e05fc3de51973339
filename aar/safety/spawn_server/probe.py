"""The preflight: a process inside a wall that tries what the wall must refuse.

Run as ``python -I -S -E -c "<source of this module>" OUTSIDE HOME``, so that it works where aar's own files
cannot be read. Prints ``probe WRITE NETWORK`` (0 or 1): whether the file OUTSIDE could be written or a
nameless file be made in the folder HOME (unless that is empty), and whether a packet could be addressed to
another host.
"""

from __future__ import annotations

import _socket
import os
import sys


def try_write(path: str) -> bool:
    """Return whether a file outside the wall could be written."""
    try:
        os.close(os.open(path, os.O_WRONLY))
    except OSError:
        return False
    return True


def try_make(folder: str) -> bool:
    """Return whether a file could be made in a folder outside. It has no name, so nothing is left behind."""
    try:
        os.close(os.open(folder, os.O_WRONLY | os.O_TMPFILE))
    except (OSError, AttributeError):
        return False
    return True


def try_network() -> bool:
    """Return whether a packet could be sent to another host (an address kept for examples, RFC 5737)."""
    try:
        _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM).connect(("192.0.2.1", 9))
    except OSError:
        return False
    return True


if __name__ == "__main__":
    wrote = try_write(sys.argv[1]) or try_make(sys.argv[2])
    os.write(1, f"probe {int(wrote)} {int(try_network())}\n".encode())
