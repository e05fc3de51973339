"""What the file tools share: fuller file access, file changes with their diff, path labels."""

from __future__ import annotations

import io
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Literal, Protocol, runtime_checkable

from aar.protocol.errors import ToolCategory, ToolFailure
from aar.protocol.ports import FileAccess, FileStamp, ToolContext
from aar.protocol.tool import FileChange
from aar.safety.paths import is_secret
from aar.tools.builtin.diff import count_changes, unified_diff
from aar.tools.builtin.text_file import SNIFF_BYTES, decode, is_binary

PATH_ALIASES: Final = {
    "file_path": "path",
    "filepath": "path",
    "filename": "path",
    "file": "path",
    "absolute_path": "path",
    "target_file": "path",
    "relative_path": "path",
}
"""Other names for the ``path`` of a file."""

FOLDER_ALIASES: Final = {
    "dir_path": "path",
    "directory": "path",
    "dir": "path",
    "folder": "path",
    "target_directory": "path",
    "absolute_path": "path",
    "relative_path": "path",
}
"""Other names for the ``path`` of a folder."""

MAX_DIFF_CHARS: Final = 400_000
"""Longer diffs are cut; they are for people's eyes."""


@runtime_checkable
class StreamingFiles(Protocol):
    """What a `FileAccess` may offer besides; `aar.safety.files.WorkspaceFiles` does."""

    def open_binary(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Open a regular file without remembering it."""
        ...

    def peek_bytes(self, path: str) -> bytes:
        """Return a file's content without remembering it."""
        ...

    def remember(self, path: str, stamp: FileStamp) -> None:
        """Note which content the model knows."""
        ...

    def may_read(self, path: Path) -> bool:
        """Tell whether a resolved path may be read."""
        ...


class _PlainFiles:
    """Gives a plain `FileAccess` the methods of `StreamingFiles`."""

    def __init__(self, files: FileAccess) -> None:
        self._files = files

    @contextmanager
    def open_binary(self, path: str) -> Generator[BinaryIO]:
        yield io.BytesIO(self._files.read_bytes(path))

    def peek_bytes(self, path: str) -> bytes:
        return self._files.read_bytes(path)

    def remember(self, path: str, stamp: FileStamp) -> None:
        """A plain access remembers in ``read_bytes``."""

    def may_read(self, path: Path) -> bool:
        return not is_secret(path)


def streaming(files: FileAccess) -> StreamingFiles:
    """Return the fuller form of ``files``."""
    return files if isinstance(files, StreamingFiles) else _PlainFiles(files)


def label(ctx: ToolContext, path: str) -> str:
    """Return how ``path`` is shown to the model."""
    return ctx.files.display(ctx.files.resolve(path))


def folder(ctx: ToolContext, path: str) -> Path:
    """Return the resolved folder that ``path`` names.

    Raises:
        ToolFailure: ``not_found``, ``blocked``, or ``invalid_arguments`` when it is no folder.
    """
    resolved = ctx.files.resolve(path)
    if not streaming(ctx.files).may_read(resolved):
        raise ToolFailure(ToolCategory.BLOCKED, f"{path} may hold secrets and is not looked into.")
    if resolved.is_dir():
        return resolved
    if ctx.files.exists(path):
        raise ToolFailure(ToolCategory.INVALID_ARGUMENTS, f"{path} is not a folder.")
    raise ToolFailure(ToolCategory.NOT_FOUND, f"There is no folder {path}. Use '.' for the workspace.")


def demand_writable(ctx: ToolContext) -> None:
    """Refuse a change in plan mode.

    Raises:
        ToolFailure: ``blocked``.
    """
    if ctx.read_only:
        raise ToolFailure(
            ToolCategory.BLOCKED,
            "Nothing may be written in plan mode. Describe the change in your plan.",
        )


@dataclass(frozen=True, slots=True)
class Change:
    """A file before and after (``None``: no such file). ``old_path`` is set for a renamed one."""

    path: str
    before: bytes | None
    after: bytes | None
    old_path: str | None = None


def describe_change(ctx: ToolContext, change: Change) -> tuple[FileChange, str]:
    """Return the `FileChange` (blobs kept where a checkpointer is) and the unified diff of ``change``."""
    old, new = _text(change.before), _text(change.after)
    if old is None or new is None:
        added, removed = 0, 0
        diff = f"Binary file {change.path} changed"
    else:
        added, removed = count_changes(old, new)
        diff = unified_diff(
            None if change.before is None else old,
            None if change.after is None else new,
            change.path,
            change.old_path,
        )
    action: Literal["create", "modify", "delete", "rename"] = "modify"
    if change.before is None:
        action = "create"
    elif change.after is None:
        action = "delete"
    elif change.old_path is not None:
        action = "rename"
    file_change = FileChange(
        path=change.path,
        action=action,
        old_path=change.old_path,
        added=added,
        removed=removed,
        before=_blob(ctx, change.before),
        after=_blob(ctx, change.after),
    )
    if len(diff) > MAX_DIFF_CHARS:
        diff = diff[:MAX_DIFF_CHARS] + "\n… the rest of the diff is not shown"
    return file_change, diff


def _text(data: bytes | None) -> str | None:
    if data is None:
        return ""
    return None if is_binary(data[:SNIFF_BYTES]) else decode(data, "").text


def _blob(ctx: ToolContext, data: bytes | None) -> str | None:
    return None if data is None or ctx.checkpointer is None else ctx.checkpointer.blob(data)


def numbered(lines: list[str], first: int) -> str:
    """Return ``lines`` with their numbers, as read_file shows them."""
    return "\n".join(f"{number:6d}\t{line}" for number, line in enumerate(lines, first))


def plural(count: int, noun: str) -> str:
    """Return ``1 line``, ``2 lines``, ``3 matches``."""
    if count == 1:
        return f"1 {noun}"
    ending = "es" if noun.endswith(("ch", "s", "x")) else "s"
    return f"{count:,} {noun}{ending}"
