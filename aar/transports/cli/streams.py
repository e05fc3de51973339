"""Standard streams that cannot surprise: closed ones, readers that went away, full disks, odd encodings."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO


def secure_streams() -> None:
    """Give the process three open standard streams.

    Without this the next file that is opened would get the number of a closed one, and what is printed
    would go into it.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number is taken, which is this one.
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - a descriptor
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    _reconfigure(sys.stdout, None)
    _reconfigure(sys.stderr, None)


def machine_output() -> None:
    """Make standard output UTF-8 whatever the locale says, as JSON must be; lone surrogates are escaped."""
    _reconfigure(sys.stdout, "utf-8")


def _reconfigure(stream: TextIO, encoding: str | None) -> None:
    change = getattr(stream, "reconfigure", None)
    if change is not None:
        change(encoding=encoding, errors="backslashreplace")


def write(stream: TextIO, text: str) -> OSError | None:
    """Write ``text`` and flush. When that fails, return why; the stream then leads to nowhere."""
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        silence(stream)
        return error
    except ValueError as error:  # closed by somebody
        return OSError(str(error))
    return None


def silence(stream: TextIO) -> None:
    """Lead ``stream`` to nowhere, so that Python does not complain about it when it ends."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        return
