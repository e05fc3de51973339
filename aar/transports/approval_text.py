"""What a question has to show beside its diff, the same at every door."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aar.protocol.events import ApprovalRequest

_TOLD_BY_DIFF = {
    "write_file": frozenset({"content"}),
    "edit_file": frozenset({"old_text", "new_text"}),
    "apply_patch": frozenset({"patch"}),
}


def beside_diff(request: ApprovalRequest) -> Mapping[str, Any]:
    """Return the arguments that the diff of ``request`` does not tell; all of them where it has none."""
    told = _TOLD_BY_DIFF.get(request.tool_name, frozenset()) if request.diff else frozenset[str]()
    return {name: value for name, value in request.arguments.items() if name not in told}


def diff_lines(request: ApprovalRequest) -> list[str]:
    """Return the lines of the diff, without its two names where it is of the one file that is named."""
    lines = (request.diff or "").rstrip("\n").split("\n") if request.diff else []
    one_file = request.tool_name in {"write_file", "edit_file"} and lines[:1] != ["--- /dev/null"]
    return lines[2:] if one_file and lines[0].startswith("--- ") else lines
