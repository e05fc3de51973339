"""Files through the editor: text that is not saved yet is seen, and changes go into open buffers.

Policy and checkpoint come before, in the executor; limits, secrets and links are judged here as for files on
disk. Whatever the editor cannot hold (binary data, other encodings, files outside) goes to the disk directly.
"""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from aar.protocol.errors import ToolCategory, ToolFailure
from aar.protocol.ports import FileStamp
from aar.safety.files import MAX_WHOLE_FILE, WorkspaceFiles
from aar.transports.acp.messages import RpcError

Read = Callable[[str], str]
"""Returns what the editor has of an absolute path; blocks. Raises `RpcError` or `TimeoutError`."""
Write = Callable[[str, str], None]

_LARGEST = 8 * 1024 * 1024
"""Bytes of the largest file that is taken through the editor."""


class EditorFiles(WorkspaceFiles):
    """`WorkspaceFiles` that asks the editor first. Its methods block, so it is used in threads.

    On the thread of the event loop, which the editor's answer must pass, it takes the disk instead.

    Args:
        read: See `Read`; ``None``: the editor gives no text.
        write: Writes through the editor; ``None``: it takes none.
        loop_thread: Identity of the thread that may not be blocked.
        **limits: As for `WorkspaceFiles`.
    """

    def __init__(
        self, root: Path, *, read: Read | None, write: Write | None, loop_thread: int, **limits: Any
    ) -> None:
        super().__init__(root, **limits)
        self._read_text = read
        self._write_text = write
        self._loop_thread = loop_thread

    @property
    def blocks(self) -> bool:
        """Whether using it waits for somebody, so that tools must do so in a thread."""
        return True

    # Reading ----------------------------------------------------------------------------------------

    @contextmanager
    def open_binary(self, path: str) -> Generator[BinaryIO]:
        """Open a file as the editor has it."""
        with super().open_binary(path) as file:
            size = os.fstat(file.fileno()).st_size
            buffer = self._unsaved(path, file.read()) if size <= _LARGEST else None
            file.seek(0)
            if buffer is None:
                yield file
            else:
                yield io.BytesIO(buffer)

    def peek_bytes(self, path: str) -> bytes:
        """Return a file's content as the editor has it, without remembering it."""
        data = super().peek_bytes(path)
        return self._current(path, data)

    def read_bytes(self, path: str) -> bytes:
        """Return a file's content as the editor has it, and remember that the model knows it."""
        data = self.peek_bytes(path)
        self.remember(path, _stamp(data))
        return data

    def _read(self, path: str) -> tuple[bytes, os.stat_result]:
        # `open_binary` of the class above would be this class's own.
        with WorkspaceFiles.open_binary(self, path) as file:
            info = os.fstat(file.fileno())
            data = file.read(MAX_WHOLE_FILE + 1)
        if len(data) > MAX_WHOLE_FILE:
            raise ToolFailure(
                ToolCategory.INVALID_ARGUMENTS,
                f"{path} is larger than {MAX_WHOLE_FILE >> 20} MiB. Work on it with a command.",
            )
        return data, info

    def _current(self, path: str, data: bytes) -> bytes:
        buffer = self._unsaved(path, data) if len(data) <= _LARGEST else None
        return data if buffer is None else buffer

    def _unsaved(self, path: str, disk: bytes) -> bytes | None:
        """Return the editor's text where it is another one than that on the disk."""
        resolved = self.resolve(path)
        if self._read_text is None or not self._through_editor(resolved):
            return None
        saved = _as_text(disk)
        if saved is None:
            return None
        try:
            text = self._read_text(str(resolved))
        except (RpcError, TimeoutError):
            return None  # not open there, or it does not want to: the disk has it
        if _plain(text) == _plain(saved):
            return None
        if "\r\n" in saved and "\r\n" not in text:
            text = text.replace("\n", "\r\n")
        if saved.startswith("\ufeff") and not text.startswith("\ufeff"):
            text = "\ufeff" + text
        return text.encode("utf-8", "surrogatepass")

    def _through_editor(self, resolved: Path) -> bool:
        inside = any(resolved.is_relative_to(root) for root in self.roots)
        return inside and threading.get_ident() != self._loop_thread

    # Writing ----------------------------------------------------------------------------------------

    def write_bytes(self, path: str, data: bytes) -> None:
        """Write through the editor; refuses a file whose text is another one than the model knows."""
        resolved = self._writable_path(path, self.resolve(path))
        text = _as_text(data)
        if self._write_text is None or text is None or len(data) > _LARGEST:
            super().write_bytes(path, data)
            return
        if not self._through_editor(resolved):
            super().write_bytes(path, data)
            return
        try:
            with self._change(resolved), self._parent(resolved, make=True) as folder:
                known = self._known.pop(resolved, None)
                try:
                    # Kind and mode are judged here; how fresh it is depends on the editor's text.
                    there = self._examine(path, resolved, folder) is not None
                finally:
                    if known is not None:
                        self._known[resolved] = known
                if there:
                    self._demand_known(path, known)
                self._hand_over(path, resolved, text)
        except OSError as error:
            self._fail(path, error)
        self._known[resolved] = _stamp(data)

    def _demand_known(self, path: str, known: FileStamp | None) -> None:
        if known is None:
            return
        if hashlib.sha256(self.peek_bytes(path)).hexdigest() != known.sha256:
            raise ToolFailure(
                ToolCategory.STALE_FILE,
                f"{path} changed in the editor or on disk since you last read it. Read it again first.",
            )

    def _hand_over(self, path: str, resolved: Path, text: str) -> None:
        assert self._write_text is not None
        try:
            self._write_text(str(resolved), text)
        except TimeoutError:
            message = f"The editor did not write {path} in time. Look whether it did before you try again."
            raise ToolFailure(ToolCategory.TIMEOUT, message) from None
        except RpcError as error:
            message = f"The editor did not write {path}: {error.message}"
            raise ToolFailure(ToolCategory.EXCEPTION, message) from None


def _stamp(data: bytes) -> FileStamp:
    # No time: whether it is fresh is told by the content alone.
    return FileStamp(len(data), 0, hashlib.sha256(data).hexdigest())


def _as_text(data: bytes) -> str | None:
    """Return UTF-8 text; ``None`` for what an editor's buffer would not keep."""
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _plain(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n")
