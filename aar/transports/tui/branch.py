"""The branch of a work tree, read from its files: git is not started, so nothing of the project runs."""

from __future__ import annotations

import re
from pathlib import Path

_MAX_BYTES = 4096
_SHORT = 8


def branch_of(root: Path) -> str:
    """Return the branch that is checked out in ``root``, a short commit when none is, or nothing."""
    git = root / ".git"
    if git.is_file():
        pointer = _first_line(git)
        if not pointer.startswith("gitdir:"):
            return ""
        git = root / pointer.removeprefix("gitdir:").strip()
    head = _first_line(git / "HEAD")
    if head.startswith("ref:"):
        return head.removeprefix("ref:").strip().removeprefix("refs/heads/")
    return head[:_SHORT] if re.fullmatch(r"[0-9a-f]{40,64}", head) else ""


def _first_line(path: Path) -> str:
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return file.read(_MAX_BYTES).decode("utf-8", "replace").partition("\n")[0].strip()
    except OSError:
        return ""
