"""Reading and writing small files with care: bounded, regular, atomic, for the owner only."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


class UnusableFileError(Exception):
    """A file that exists but is not read; ``str(error)`` is the reason, without the name."""


def read_regular(path: Path, limit: int, *, inside: Path | None = None) -> bytes | None:
    """Return at most ``limit + 1`` bytes of a regular file, or ``None`` when there is no such file.

    Args:
        path: The file.
        limit: Bytes; one more is returned so that the caller can tell that there are more.
        inside: A resolved folder that the file, links followed, must lie in.

    Raises:
        UnusableFileError: It is unreadable, not a regular file, or a link that leads out of ``inside``.
    """
    try:
        real = path.resolve(strict=True)
        if inside is not None and not real.is_relative_to(inside):
            raise UnusableFileError("it is a link that leads out of the project")
        # Non-blocking, so that a pipe in place of a file cannot hold the program.
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            raise UnusableFileError("it is a link to nothing") from None
        return None
    except (OSError, RuntimeError) as error:
        raise UnusableFileError(_reason(error)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnusableFileError("it is not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        try:
            return file.read(limit + 1)
        except OSError as error:
            raise UnusableFileError(_reason(error)) from error


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) else None
    return (text or str(error)).lower()


def cannot_write(path: Path, error: OSError) -> str:
    """Say that ``path`` could not be written, why, and what helps."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    advice = "free some space on its disk" if full else "make it and its folder writable"
    return f"{path} cannot be written ({error.strerror}): {advice}."


def write_atomic(path: Path, data: bytes, mode: int = 0o600, *, durable: bool = True) -> None:
    """Replace ``path`` by ``data`` in one step. A link is followed, so that it stays one.

    Args:
        path: The file.
        data: Its new content.
        mode: Its permission bits.
        durable: Whether to wait for the disk; not for what a power cut may take.

    Raises:
        OSError: It cannot be written; the old content is then untouched.
    """
    import tempfile

    target = Path(os.path.realpath(path))
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(data)
            if durable:
                file.flush()
                os.fsync(descriptor)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
