"""What a call would change, before it is allowed: the tool runs over files that only seem to change."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from aar.protocol.errors import AarError, ToolCategory, ToolFailure
from aar.protocol.ports import FileAccess, FileStamp, ToolContext
from aar.protocol.tool import ToolOutcome, ToolSpec
from aar.tools.builtin.common import streaming
from aar.tools.pending_call import failure

_MOST_S = 2.0
"""Seconds that a look ahead may take; a question without its diff is better than one that does not come."""

_DO_NOT_FIT = frozenset({ToolCategory.NOT_FOUND, ToolCategory.AMBIGUOUS})


class DryFiles:
    """Files of which every change stays in memory; what is read is not remembered as known to the model.

    Args:
        files: The real ones.
    """

    def __init__(self, files: FileAccess) -> None:
        self._files = files
        self.blocks: bool = getattr(files, "blocks", False)
        """Whether reading waits for an editor, so that it must not be done on the event loop."""
        self._changed: dict[Path, bytes | None] = {}

    def resolve(self, path: str) -> Path:
        """See `FileAccess`."""
        return self._files.resolve(path)

    def display(self, path: Path) -> str:
        """See `FileAccess`."""
        return self._files.display(path)

    def exists(self, path: str) -> bool:
        """See `FileAccess`."""
        place = self.resolve(path)
        return self._changed[place] is not None if place in self._changed else self._files.exists(path)

    def peek_bytes(self, path: str) -> bytes:
        """Return the content as it would be now."""
        content = self._changed.get(self.resolve(path))
        if content is not None:
            return content
        return streaming(self._files).peek_bytes(path)

    def read_bytes(self, path: str) -> bytes:
        """See `FileAccess`."""
        return self.peek_bytes(path)

    @contextmanager
    def open_binary(self, path: str) -> Generator[BinaryIO]:
        """Open the content as it would be now."""
        yield io.BytesIO(self.peek_bytes(path))

    def remember(self, path: str, stamp: FileStamp) -> None:
        """Remember nothing: the model has seen nothing."""

    def may_read(self, path: Path) -> bool:
        """Tell whether a resolved path may be read."""
        return streaming(self._files).may_read(path)

    def write_bytes(self, path: str, data: bytes) -> None:
        """Let the file seem to be written."""
        self._changed[self.resolve(path)] = data

    def delete(self, path: str) -> None:
        """Let the file seem to be gone."""
        self._changed[self.resolve(path)] = None


@dataclass(frozen=True, slots=True)
class Foresight:
    """What a call would come to.

    Attributes:
        diff: The unified diff that it would make; ``None``: it cannot be told.
        failure: How it would fail, as its change does not fit the files; ``None``: nothing is known of that.
    """

    diff: str | None = None
    failure: ToolOutcome | None = None


async def foresee(spec: ToolSpec, arguments: Any, context: ToolContext) -> Foresight:
    """Return what a call would come to.

    Only for tools that touch nothing but ``context.files`` (`ToolSpec.dry_run`).
    """
    if spec.handler is None or not spec.dry_run:
        return Foresight()
    dry = replace(context, files=DryFiles(context.files), checkpointer=None)
    try:
        async with asyncio.timeout(_MOST_S):
            return Foresight((await spec.handler(arguments, dry)).diff)
    except ToolFailure as error:
        told = failure(error.category, error.message) if error.category in _DO_NOT_FIT else None
        return Foresight(failure=told)
    except (AarError, OSError, TimeoutError):
        return Foresight()
