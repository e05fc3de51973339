"""Adding a line to a file of lines, also behind one that a crash has torn."""

from __future__ import annotations

import os
from pathlib import Path

FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


def append_line(file: Path, line: bytes) -> None:
    """Add ``line`` (with its end) in one write; the file is made for the owner only.

    Raises:
        OSError: It cannot be written.
    """
    descriptor = os.open(file, FLAGS, 0o600)
    try:
        write_line(descriptor, line)
    finally:
        os.close(descriptor)


def write_line(descriptor: int, line: bytes) -> None:
    """Add ``line`` to a file that was opened with `FLAGS`; see `append_line`."""
    size = os.fstat(descriptor).st_size
    torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
    os.write(descriptor, (b"\n" if torn else b"") + line)
