"""The token of a server: made anew at each start, or kept in a file that only its owner can read."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from aar.protocol.errors import ConfigurationError

_SHORTEST = 20
"""Characters; a token that was made here has 43."""


def token_from(file: Path | None) -> str:
    """Return the token in ``file``, which is made where there is none; without a file a new one.

    Raises:
        ConfigurationError: The file cannot be used, others can read it, or what it holds is too short.
    """
    if file is None:
        return secrets.token_urlsafe(32)
    file = file.expanduser()
    try:
        return _made(file)
    except FileExistsError:
        return _read(file)
    except OSError as error:
        raise ConfigurationError(f"--token-file {file} cannot be written: {error.strerror}.") from error


def _made(file: Path) -> str:
    token = secrets.token_urlsafe(32)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as opened:
        opened.write(token + "\n")
    return token


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            info = os.fstat(opened.fileno())
            data = opened.read(4096) if stat.S_ISREG(info.st_mode) else b""
    except OSError as error:
        raise ConfigurationError(f"--token-file {file} cannot be read: {error.strerror}.") from error
    if info.st_mode & 0o077 or info.st_uid != os.getuid():
        raise ConfigurationError(f"--token-file {file} can be read by others; run: chmod 600 {file}")
    token = data.decode("ascii", "replace").strip()
    if len(token) < _SHORTEST or not token.isprintable() or " " in token:
        raise ConfigurationError(
            f"--token-file {file} holds no token of {_SHORTEST} or more characters; remove it to make one."
        )
    return token
