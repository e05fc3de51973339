"""``@file`` in a prompt: expanded once, below the transports, under the policy of ``read_file``."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from aar.protocol.errors import ToolFailure
from aar.protocol.late import late_pattern
from aar.protocol.messages import ContentBlock, ResourceBlock, TextBlock
from aar.protocol.ports import FileAccess

_MENTION = late_pattern(
    r"(?<![\w@/.])@(?:\"(?P<quoted>[^\"\n]+)\"|(?P<path>[^\s@,;:!?'\"()<>]+))(?::(?P<first>\d+)-(?P<last>\d+))?"
)
_MAX_CHARS = 200_000
_MAX_NAMES = 500
"""Names of a folder that are attached."""

MayRead = Callable[[str], str | None]
"""Tells why policy does not let a path be read unasked; ``None``: it does."""


def expand_mentions(
    content: tuple[ContentBlock, ...],
    files: FileAccess,
    may_read: MayRead = lambda path: None,
    max_bytes: int = 10_000_000,
) -> tuple[tuple[ContentBlock, ...], list[str]]:
    """Return ``content`` with the text of every mentioned file added as a resource block, and problems.

    Reads files: for a thread.

    An ``@word`` that is no file stays what it is: e-mail addresses, decorators and names are not touched.
    ``@path:10-20`` takes those lines, ``@folder/`` the names of what is in it, ``@"a path"`` a name with
    spaces. Each problem is a sentence
    about a file that exists but was not attached, or not whole.
    """
    problems: list[str] = []
    found: dict[str, ResourceBlock] = {}
    for block in content:
        if isinstance(block, TextBlock):
            for match in _MENTION.finditer(block.text):
                resource = _resource(match, files, may_read, max_bytes, problems.append)
                if resource is not None:
                    found.setdefault(resource.uri, resource)
    return (*found.values(), *content), problems


def _resource(
    match: re.Match[str],
    files: FileAccess,
    may_read: MayRead,
    max_bytes: int,
    notice: Callable[[str], None],
) -> ResourceBlock | None:
    path = match["quoted"] or match["path"].rstrip(".")
    try:
        if not path or not files.exists(path):
            return None
        why_not = may_read(path)
        if why_not is not None:
            notice(f"@{path} was not attached: {why_not}")
            return None
        if files.resolve(path).is_dir():
            return _folder(path, files.resolve(path))
        data = files.read_bytes(path)
    except ToolFailure as error:
        notice(f"@{path} was not attached: {error.message}")
        return None
    except OSError as error:
        notice(f"@{path} was not attached: {error.strerror or error}.")
        return None
    if len(data) > max_bytes:
        notice(f"@{path} was not attached: it is larger than {max_bytes:,} bytes.")
        return None
    if b"\0" in data[:8192]:
        notice(f"@{path} was not attached: it is not a text file.")
        return None
    text, uri = data.decode("utf-8", "replace"), path
    if match["first"]:
        first, last = int(match["first"]), int(match["last"])
        text = "".join(text.splitlines(keepends=True)[max(first - 1, 0) : last])
        uri = f"{path}:{first}-{last}"
    if len(text) > _MAX_CHARS:
        notice(f"@{path} was cut: only its first {_MAX_CHARS:,} characters were attached.")
        text = text[:_MAX_CHARS]
    return ResourceBlock(uri=uri, text=text)


def _folder(path: str, folder: Path) -> ResourceBlock:
    """Return the names of what is in a folder, folders first, with a slash."""
    with os.scandir(folder) as entries:
        names = sorted(
            (not entry.is_dir(), entry.name + ("/" if entry.is_dir() else ""))
            for entry in islice(entries, 10_000)
        )
    shown = [name for _, name in names[:_MAX_NAMES]]
    if len(names) > len(shown):
        shown.append(f"… and {len(names) - len(shown):,} more")
    return ResourceBlock(uri=f"{path.rstrip('/')}/", text="\n".join(shown) or "(empty folder)")
