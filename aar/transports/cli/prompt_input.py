"""Where the task of ``aar run`` comes from: the argument, standard input, or both."""

from __future__ import annotations

import os
import select
import stat
import sys

from aar.protocol.errors import UsageError

FIRST_BYTE_S = 3.0
"""Seconds that the first byte of a pipe beside a PROMPT is waited for."""
_MAX_STDIN = 50_000_000
_EXAMPLE = 'Say what to do: aar run "fix the failing test".'


def read_prompt(argument: str | None) -> str:
    """Return the prompt: the argument, standard input, or both.

    Raises:
        UsageError: There is none.
    """
    if argument is None or argument == "-":
        if argument is None and sys.stdin.isatty():
            raise UsageError(f"There is no task. {_EXAMPLE}")
        text = _read_stdin()
    else:
        piped = _read_stdin() if _stdin_is_piped() else ""
        text = f"{argument}\n\n{piped}" if piped.strip() else argument
    if not text.strip():
        raise UsageError(f"The task is empty. {_EXAMPLE}")
    return text.encode("utf-8", "replace").decode()


def _read_stdin() -> str:
    try:
        data = sys.stdin.buffer.read(_MAX_STDIN + 1)
    except OSError as error:
        raise UsageError(f"Standard input cannot be read: {error.strerror}.") from error
    if len(data) > _MAX_STDIN:
        raise UsageError(
            f"Standard input is longer than {_MAX_STDIN:,} bytes; put it into a file and name that."
        )
    return data.decode("utf-8", "replace")


def _stdin_is_piped() -> bool:
    """Tell whether standard input is a file, or a pipe or socket into which somebody writes."""
    try:
        descriptor = sys.stdin.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):
        return False
    if stat.S_ISREG(mode):
        return True
    if not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode):
        return False
    # A parent that forgot to close its pipe must not hang the run for ever.
    ready = bool(select.select([descriptor], [], [], FIRST_BYTE_S)[0])
    if not ready:
        sys.stderr.write("aar: Nothing came on standard input; going on without it.\n")
    return ready
