"""Whole outputs of tools on disk, for ``read_output`` (implements `aar.protocol.ports.OutputKeeper`)."""

from __future__ import annotations

import os
from pathlib import Path

from aar.protocol.errors import ToolCategory, ToolFailure
from aar.protocol.late import late_pattern

_PREFIX = "out_"
_REFERENCE = late_pattern(r"out_[A-Za-z0-9_-]{1,80}(\.[0-9]{1,6})?")
_UNSAFE = late_pattern(r"[^A-Za-z0-9_-]+")


class OutputStore:
    """One file for each kept output, mode 0600, in a folder of mode 0700 that is made with the first.

    Args:
        folder: Where the files lie.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def new_file(self, call_id: str) -> tuple[str, Path]:
        """Return a reference for ``read_output`` and the path of a file for it, which is not there yet.

        A call may keep several outputs; later ones get a number. Only letters, digits, ``_`` and ``-``
        of ``call_id`` are used, because a model or a server chose it.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        base = _PREFIX + (_UNSAFE.sub("-", call_id)[-80:] or "call")
        for number in range(1, 1_000_000):
            reference = base if number == 1 else f"{base}.{number}"
            path = self._folder / reference
            if not os.path.lexists(path):
                return reference, path
        raise FileExistsError(f"no free name for {base} in {self._folder}")

    def keep(self, call_id: str, text: str) -> str:
        """Store ``text`` and return its reference."""
        reference, path = self.new_file(call_id)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace", newline="") as file:
            file.write(text)
        return reference

    def path(self, reference: str) -> Path:
        """Return the file of ``reference``.

        Raises:
            ToolFailure: ``not_found`` for a reference of which nothing is kept.
        """
        path = self._folder / reference if _REFERENCE.fullmatch(reference) else None
        if path is None or path.is_symlink() or not path.is_file():
            raise ToolFailure(
                ToolCategory.NOT_FOUND,
                f"Nothing is kept under {reference[:100]!r}. Use a reference exactly as a result gave it "
                "(out_…), or run the call again.",
            )
        return path
