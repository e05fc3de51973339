"""Puts text on the clipboard and says truthfully what came of it.

A native tool tells whether it worked; tmux tells whether its own buffer has it; the terminal's escape
sequence (OSC 52) tells nothing, so nothing is claimed for it. Over ssh only tmux and the terminal reach the
user's machine.
"""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aar.protocol.ports import Spawner

MAX_OSC52 = 74_000
"""Characters of base64 that common terminals still take."""

_WAIT_S = 3.0
_SETTLE_S = 0.25
_PASSED = ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "XAUTHORITY", "TMUX", "TMPDIR", "TMUX_TMPDIR")


@dataclass(frozen=True, slots=True)
class Copied:
    """What came of copying.

    Attributes:
        sure: Whether something confirmed that it has the text.
        message: One sentence for the user.
    """

    sure: bool
    message: str


class Clipboard:
    """The clipboard as this terminal reaches it.

    Args:
        write: Writes an escape sequence to the terminal.
        environ: Of the user's shell.
        spawner: Starts the tools; ``None``: none is tried.
        find: Finds a program.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        environ: Mapping[str, str],
        spawner: Spawner | None = None,
        find: Callable[[str], str | None] = which,
    ) -> None:
        self._write = write
        self._environ = environ
        self._spawner = spawner
        self._find = find
        self._holder: asyncio.Task[object] | None = None

    @property
    def has_tools(self) -> bool:
        """Whether programs can be started."""
        return self._spawner is not None

    async def copy(self, text: str) -> Copied:
        """Copy ``text``. Never raises: what went wrong is in the answer."""
        if not text:
            return Copied(False, "There is nothing to copy.")
        amount = _amount(text)
        native = "" if self._remote else await self._native(text)
        if native:
            return Copied(True, f"Copied {amount} ({native}).")
        sent = self._osc52(text)
        in_tmux = await self._tmux(text)
        if in_tmux:
            return Copied(True, f"Copied {amount} to tmux's buffer (prefix ] pastes){_also(sent)}.")
        if sent:
            return Copied(
                False, f"Sent {amount} to the terminal (OSC 52), which does not tell whether it took it."
            )
        return Copied(False, f"Not copied: {amount} is more than a terminal takes.")

    @property
    def _remote(self) -> bool:
        return bool(self._environ.get("SSH_CONNECTION") or self._environ.get("SSH_TTY"))

    def _osc52(self, text: str) -> bool:
        data = base64.b64encode(text.encode("utf-8", "replace")).decode()
        if len(data) > MAX_OSC52:
            return False
        # Screen passes a sequence on only inside a device control string. tmux takes it as it is, if it may.
        body = f"\x1b]52;c;{data}\x07"
        if self._environ.get("STY") and not self._environ.get("TMUX"):
            body = f"\x1bP{body}\x1b\\"
        self._write(body)
        return True

    async def _tmux(self, text: str) -> bool:
        program = self._find("tmux") if self._environ.get("TMUX") else None
        return program is not None and await self._run((program, "load-buffer", "-"), text)

    async def _native(self, text: str) -> str:
        """Give the text to a tool of the desktop; return its name when it took it."""
        for name, arguments, stays in self._tools():
            program = self._find(name)
            if program is None:
                continue
            argv = (program, *arguments)
            if await (self._hold(argv, text) if stays else self._run(argv, text)):
                return name
        return ""

    def _tools(self) -> list[tuple[str, tuple[str, ...], bool]]:
        """Return tools: name, arguments, and whether it stays to serve the text."""
        if sys.platform == "darwin":
            return [("pbcopy", (), False)]
        tools: list[tuple[str, tuple[str, ...], bool]] = []
        if self._environ.get("WAYLAND_DISPLAY"):
            tools.append(("wl-copy", ("--foreground", "--type", "text/plain;charset=utf-8"), True))
        if self._environ.get("DISPLAY"):
            tools.append(("xclip", ("-selection", "clipboard", "-quiet"), True))
            tools.append(("xsel", ("--clipboard", "--input", "--nodetach"), True))
        if "WSL_DISTRO_NAME" in self._environ:
            tools.append(("clip.exe", (), False))
        return tools

    async def _run(self, argv: tuple[str, ...], text: str) -> bool:
        try:
            return await self._start(argv, text, _WAIT_S) == 0
        except Exception:
            # Whatever a tool does, copying goes on with the next way.
            return False

    async def _start(self, argv: tuple[str, ...], text: str, timeout_s: float | None) -> int | None:
        from aar.protocol.ports import SpawnRequest

        if self._spawner is None:
            return None
        env = {name: self._environ[name] for name in _PASSED if name in self._environ}
        data = text.encode("utf-8", "replace")
        request = SpawnRequest(
            argv, Path("/"), env, "helper", timeout_s=timeout_s, stdin=data, max_output=4_000
        )
        result = await self._spawner.run(request)
        return result.exit_code

    async def _hold(self, argv: tuple[str, ...], text: str) -> bool:
        """Start a tool that serves the text until something else is copied; one that ends at once failed."""
        self.close()
        task: asyncio.Task[object] = asyncio.create_task(self._held(argv, text))
        done, _ = await asyncio.wait({task}, timeout=_SETTLE_S)
        if done:
            return task.result() == 0
        self._holder = task
        return True

    async def _held(self, argv: tuple[str, ...], text: str) -> int | None:
        try:
            return await self._start(argv, text, None)
        except Exception:
            # As in `_run`.
            return None

    def close(self) -> None:
        """End the tool that serves the last copy."""
        if self._holder is not None:
            self._holder.cancel()
            self._holder = None


def _amount(text: str) -> str:
    rows = text.count("\n") + 1
    return f"{rows:,} lines" if rows > 1 else f"{len(text):,} character{'s' if len(text) != 1 else ''}"


def _also(sent: bool) -> str:
    return " and sent it to the terminal" if sent else ""
