"""Where links of the transcript lead: the user's editor or browser. For after the first frame."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from shutil import which

from aar.protocol.errors import UsageError
from aar.protocol.ports import Spawner, SpawnRequest
from aar.transports.tui.prompt.outside import editor_command
from aar.transports.tui.transcript.spans import Link

_WAIT_S = 5.0
_PASSED = ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS")
_AT_LINE = frozenset({"vi", "vim", "nvim", "nano", "emacs", "emacsclient", "micro", "joe", "kak", "mg"})


async def open_link(
    link: Link, spawner: Spawner, cwd: Path, suspend: Callable[[], AbstractContextManager[None]]
) -> str:
    """Open a file in the user's editor, or an address in the browser.

    Args:
        link: Where to.
        spawner: Starts the program.
        cwd: Folder that relative paths begin at.
        suspend: Gives the terminal away and takes it back.

    Returns:
        A sentence for the user; empty when nothing is to be said.

    Raises:
        UsageError: There is no such file, editor or browser.
    """
    if link.url is not None:
        return await _browse(link.url, spawner, cwd, os.environ)
    argv = editor_argv(editor_command(os.environ), _file(cwd, link.path or ""), link.line)
    with suspend():
        ended = await (await spawner.start(SpawnRequest(argv, cwd, kind="interactive"))).wait()
    return "" if ended.exit_code == 0 else f"{argv[0]} ended with {ended.exit_code}."


def _file(cwd: Path, name: str) -> Path:
    path = cwd / Path(name).expanduser()
    if not path.is_file():
        raise UsageError(f"There is no file {name} here.")
    return path


def editor_argv(command: tuple[str, ...], path: Path, line: int | None) -> tuple[str, ...]:
    """Return the command that opens ``path`` at ``line``, as this editor wants it said."""
    name = Path(command[0]).name
    if line is None:
        return (*command, str(path))
    if name in {"code", "codium", "cursor", "zed", "subl", "hx", "helix"}:
        flag = ("--goto",) if name in {"code", "codium", "cursor"} else ()
        return (*command, *flag, f"{path}:{line}")
    return (*command, f"+{line}", str(path)) if name in _AT_LINE else (*command, str(path))


async def _browse(url: str, spawner: Spawner, cwd: Path, environ: Mapping[str, str]) -> str:
    program = which("open") if sys.platform == "darwin" else which("xdg-open")
    has_screen = sys.platform == "darwin" or environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")
    if program is None or not has_screen:
        raise UsageError(f"No browser can be opened from here: {url}")
    env = {name: environ[name] for name in _PASSED if name in environ}
    request = SpawnRequest((program, url), cwd, env, "helper", timeout_s=_WAIT_S)
    ended = await spawner.run(request)
    return "" if ended.exit_code == 0 else f"The browser did not open: {url}"
