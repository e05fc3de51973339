"""Where the task of ``aar run`` comes from: the argument, standard input, or both; and images."""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aar.protocol.errors import NotThereError, UsageError
from aar.protocol.images import IMAGE_SUFFIXES

if TYPE_CHECKING:
    from aar.protocol.messages import ImageBlock

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


def read_images(paths: Sequence[Path]) -> list[ImageBlock]:
    """Return the files of ``--image``.

    Raises:
        UsageError: One is of another kind.
        NotThereError: One cannot be read.
    """
    import base64

    from aar.protocol.messages import ImageBlock

    blocks: list[ImageBlock] = []
    for path in paths:
        media_type = IMAGE_SUFFIXES.get(path.suffix.lower())
        if media_type is None:
            raise UsageError(f"--image {path}: give a png, jpeg, gif or webp file.")
        try:
            data = path.read_bytes()
        except OSError as error:
            raise NotThereError(f"--image {path} cannot be read: {error.strerror}.") from error
        blocks.append(ImageBlock(media_type=media_type, data=base64.b64encode(data).decode(), name=path.name))
    return blocks
