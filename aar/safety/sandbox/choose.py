"""Choose the wall: the strongest that really works here, with the reason for every step down.

Walls are tried by a preflight: a process inside the wall attempts what must fail. ``auto`` steps down the
ladder and tells why; a wall that the user named is taken or refused, never replaced.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from aar.config.schema import SandboxConfig
from aar.protocol.errors import SandboxError
from aar.safety.sandbox.base import Fence, Limits, Plan, Probe, Wall, WallStatus
from aar.safety.sandbox.bubblewrap import BubblewrapWall
from aar.safety.sandbox.landlock import LandlockWall
from aar.safety.sandbox.namespaces import NamespaceWall
from aar.safety.sandbox.seatbelt import SeatbeltWall

Prober = Callable[[Fence], Probe]
"""Runs the preflight inside a fence; blocks, for some milliseconds."""

LADDER: dict[str, Callable[[Plan], Wall]] = {
    "bubblewrap": BubblewrapWall,
    "namespaces": NamespaceWall,
    "landlock": LandlockWall,
    "seatbelt": SeatbeltWall,
}
"""Walls by name, the strongest first."""

_OPEN_GAPS = ("commands run with all your rights: files, network and processes are not protected",)


def choose_wall(config: SandboxConfig, plan: Plan, prober: Prober) -> tuple[Wall | None, WallStatus]:
    """Return the wall for a session and how it stands.

    Raises:
        SandboxError: The wall that the config names does not work here.
    """
    if config.mode == "none":
        return None, WallStatus("none", False, ("Turned off by [sandbox] mode = none.",), (), _OPEN_GAPS)
    names = list(LADDER) if config.mode == "auto" else [config.mode]
    reasons: list[str] = []
    for name in names:
        wall = LADDER[name](plan)
        refusal = _try(wall, prober, reasons)
        if refusal is None:
            return wall, WallStatus(wall.name, True, tuple(reasons), wall.covers, wall.gaps)
        wall.close()
        reasons.append(refusal)
    if config.mode != "auto":
        raise SandboxError(
            f"The {config.mode} wall does not work here: {' '.join(reasons)} "
            "Choose another [sandbox] mode, or none to run without."
        )
    if sys.platform == "win32":
        reasons.append(
            "Windows: job objects and low integrity do not hide files, so aar claims no wall there."
        )
    return None, WallStatus("none", False, tuple(reasons), (), _OPEN_GAPS)


def _try(wall: Wall, prober: Prober, reasons: list[str]) -> str | None:
    """Return why ``wall`` does not hold, or ``None``; what it had to give up goes to ``reasons``."""
    missing = wall.missing()
    if missing is not None:
        return missing
    while True:
        try:
            probe = prober(wall.fence(Limits()))
        except SandboxError as error:
            probe = Probe(error=str(error))
        if probe.error is not None and wall.weaken(probe):
            reasons.append(f"{wall.name}: {probe.error}; used without it.")
            continue
        break
    if probe.error is not None:
        return f"{wall.name}: {probe.error}."
    if probe.write:
        return f"{wall.name}: a file outside the workspace could be written in the preflight."
    if probe.network:
        return f"{wall.name}: another host could be addressed in the preflight."
    return None
