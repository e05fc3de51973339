"""Files that were dragged into the terminal or pasted by name: images become chips, other files mentions."""

from __future__ import annotations

import base64
import os
import shlex
from pathlib import Path
from urllib.parse import unquote, urlsplit

from aar.protocol.images import image_type
from aar.transports.tui.prompt.chips import PastedImage

MAX_IMAGE_BYTES = 10_000_000
"""Largest image that is taken."""
_MOST_FILES = 10


def dropped_paths(text: str) -> list[Path]:
    """Return the files that ``text`` names, if it is nothing but names of files that exist; else none.

    Terminals write a dragged file as a path in quotes, with escaped spaces, or as a ``file://`` address.
    """
    stripped = text.strip()
    if not stripped or len(stripped) > 4096 or "\n\n" in stripped or not _may_be_path(stripped):
        return []
    try:
        words = shlex.split(stripped)
    except ValueError:
        words = [stripped]
    for candidates in ([stripped], words):
        found = [path for path in map(_existing, candidates) if path is not None]
        if len(found) == len(candidates) <= _MOST_FILES:
            return found
    return []


def _may_be_path(text: str) -> bool:
    return text.lstrip("'\"").startswith(("/", "~/", "./", "../", "file://"))


def _existing(word: str) -> Path | None:
    if word.startswith("file://"):
        word = unquote(urlsplit(word).path)
    try:
        path = Path(os.path.expanduser(word))  # noqa: PTH111 - Path.expanduser raises for an unknown user
        return path if path.is_file() else None
    except (OSError, ValueError):
        return None


def image_of(name: str, data: bytes) -> PastedImage | None:
    """Return the image of a file's ``data``; ``None`` where it is none that models take."""
    kind = image_type(data)
    return None if kind is None else PastedImage(name, kind, base64.b64encode(data).decode("ascii"))


def read_image(path: Path) -> PastedImage | str | None:
    """Return the image in ``path``, a sentence why it cannot be taken, or ``None`` when it is no image."""
    try:
        with path.open("rb") as file:
            head = file.read(16)
            if image_type(head) is None:
                return None
            data = head + file.read(MAX_IMAGE_BYTES)
    except OSError as error:
        return f"{path.name} cannot be read: {error.strerror}."
    if len(data) > MAX_IMAGE_BYTES:
        return f"{path.name} is larger than {MAX_IMAGE_BYTES // 1_000_000} MB; make it smaller first."
    return image_of(path.name, data)
