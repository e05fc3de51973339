"""Opens a page in the user's browser, for signing in."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shutil import which

from aar.protocol.errors import AarError
from aar.protocol.ports import Spawner, SpawnRequest

_WAIT_S = 5.0
_PASSED = ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS")


async def open_page(url: str, spawner: Spawner, cwd: Path) -> bool:
    """Open ``url``, an http(s) address, in the browser; tell whether one was found that took it."""
    environ = os.environ
    program = which("open") if sys.platform == "darwin" else which("xdg-open")
    has_screen = sys.platform == "darwin" or environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")
    if program is None or not has_screen or not url.startswith(("https://", "http://")):
        return False
    env = {name: environ[name] for name in _PASSED if name in environ}
    request = SpawnRequest((program, url), cwd, env, "helper", timeout_s=_WAIT_S)
    try:
        return (await spawner.run(request)).exit_code == 0
    except (AarError, OSError):
        return False
