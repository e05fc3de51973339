"""The bubblewrap wall: a program of many distributions makes the view and the namespaces.

bubblewrap (https://github.com/containers/bubblewrap) takes the steps of the view as its arguments.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from aar.safety.sandbox.base import Plan
from aar.safety.sandbox.view import ViewWall

_USUAL = Path("/usr/bin/bwrap")
"""Taken first: some distributions let only this path make user namespaces."""


class BubblewrapWall(ViewWall):
    """See the module."""

    name = "bubblewrap"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._program = str(_USUAL) if _USUAL.exists() else shutil.which("bwrap")

    def missing(self) -> str | None:
        """Return why this machine cannot have it."""
        reason = super().missing()
        if reason is None and self._program is None:
            return "bubblewrap is not installed (package bubblewrap, program bwrap)."
        return reason

    def _maker(self, *, own_network: bool) -> dict[str, object]:
        words = [str(self._program), "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
        words += ["--unshare-cgroup-try", *(["--unshare-net"] if own_network else [])]
        # Without the last, bubblewrap leaves root its capabilities.
        return {"bubblewrap": [*words, "--die-with-parent", "--new-session", "--cap-drop", "ALL"]}
