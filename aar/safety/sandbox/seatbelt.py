"""The Seatbelt wall of macOS: a profile for ``sandbox-exec``. NOT TESTED.

``sandbox-exec`` is deprecated but is what other sandboxes on macOS use. In a profile the last rule that
matches decides. As everywhere the preflight must hold before the wall is believed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from aar.safety.paths import SECRET_NAMES
from aar.safety.sandbox.base import Fence, Limits, Plan, Probe, Step
from aar.safety.sandbox.layout import everything

_PROGRAM = "/usr/bin/sandbox-exec"
_BASE = """(version 1)
(deny default)
(allow process-exec process-fork)
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo")
    (global-name "com.apple.system.notification_center") (global-name "com.apple.trustd.agent"))
(allow ipc-posix-sem ipc-posix-shm)
(allow pseudo-tty)
(allow file-ioctl (literal "/dev/tty") (literal "/dev/ptmx"))
(allow file-read*)
(allow file-write* (literal "/dev/null") (literal "/dev/zero") (literal "/dev/tty")
    (regex #"^/dev/ttys[0-9]+$"))
"""


def quote(text: str) -> str:
    """Return ``text`` as a string of the profile language."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def make_profile(plan: Plan, limits: Limits) -> str:
    """Return the profile for one command: what may be written, then what may not, then what is hidden."""
    writable = [plan.temp, *plan.caches, *limits.writable]
    if not limits.read_only:
        writable += [plan.workspace, *plan.writable]
    lines = [_BASE]
    lines += [f"(allow file-write* (subpath {quote(str(path))}))" for path in writable]
    for path in everything(plan, limits):
        lines += [f"(deny file-write* (subpath {quote(str(path))}))"]
        # A parent that is renamed would take the path out of the rule.
        lines += [
            f"(deny file-write-unlink (literal {quote(str(parent))}))"
            for parent in path.parents
            if parent != plan.workspace and parent.is_relative_to(plan.workspace)
        ]
    lines += [f"(deny file-read* file-write* (subpath {quote(str(path))}))" for path in plan.secrets]
    lines += [_hidden_name(plan.workspace, name) for name in SECRET_NAMES]
    for name in (".env.example", ".env.sample", ".env.template"):
        lines.append(
            f'(allow file-read* (regex #"^{_literal(str(plan.workspace))}/(.*/)?{re.escape(name)}$"))'
        )
    if limits.network:
        lines += ["(allow network*)", "(allow system-socket)"]
    return "\n".join(lines) + "\n"


def _literal(text: str) -> str:
    """Return a pattern for ``text``; any character stands for a quote, which would end the pattern."""
    return re.escape(text).replace('"', ".")


def _hidden_name(workspace: Path, name: str) -> str:
    pattern = re.escape(name).replace(r"\*", "[^/]*")
    return f'(deny file-read* (regex #"^{_literal(str(workspace))}/(.*/)?{pattern}$"))'


class SeatbeltWall:
    """See the module."""

    name = "seatbelt"

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    @property
    def covers(self) -> tuple[str, ...]:
        """What it holds."""
        return (
            "files outside the workspace, added folders and the temporary folder are not written",
            f"{len(self._plan.secrets)} secret paths, and secret names in the workspace, are not read",
            "protected paths of the workspace are not written",
            "network off",
        )

    @property
    def gaps(self) -> tuple[str, ...]:
        """What it does not hold."""
        return (
            "this wall has not been tested by aar's authors beyond its preflight",
            "no domain can be allowed: there is no private network",
            "no limit but those of setrlimit; processes that leave their group are not found",
        )

    def missing(self) -> str | None:
        """Return why this machine cannot have it."""
        if sys.platform != "darwin":
            return f"seatbelt needs macOS, this is {sys.platform}."
        return None if Path(_PROGRAM).exists() else f"seatbelt: {_PROGRAM} is missing."

    def fence(self, limits: Limits) -> Fence:
        """Return the profile for ``limits``."""
        return Fence(prefix=(_PROGRAM, "-p", make_profile(self._plan, limits)))

    def mask_step(self, path: Path) -> Step:
        """Nothing: rules name absent paths as well."""
        return ()

    @property
    def slow(self) -> bool:
        """It looks at nothing that could be large."""
        return False

    def refresh(self) -> None:
        """Nothing to look at."""

    def weaken(self, probe: Probe) -> bool:
        """There is nothing to give up."""
        return False

    def close(self) -> None:
        """Nothing is held."""
