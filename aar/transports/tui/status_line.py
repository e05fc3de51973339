"""The user's own status line: a command whose first line of output stands in the footer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aar.protocol.errors import AarError
from aar.protocol.ports import SpawnRequest

if TYPE_CHECKING:
    from aar.protocol.ports import Spawner
    from aar.transports.tui.status import Status

_TIMEOUT_S = 5.0
_MAX_OUTPUT = 4096


def told(status: Status, session_id: str, folder: Path) -> dict[str, Any]:
    """Return what the command reads as JSON."""
    return {
        "session_id": session_id,
        "cwd": str(folder),
        "title": status.title,
        "project": status.project,
        "branch": status.branch,
        "model": status.model,
        "mode": status.mode,
        "wall": status.wall,
        "working": status.working,
        "context_tokens": status.context_tokens,
        "context_window": status.context_window,
        "tokens": status.tokens,
        "cost_usd": status.cost_usd,
        "cost_known": status.cost_known,
        "files": [asdict(file) for file in status.files.values()],
    }


class StatusCommand:
    """Runs the command, one call at a time.

    Args:
        command: For a shell; the user's own, from the user's config.
        spawner: Starts it, as a helper.
        folder: Working folder.
        show: Gets the first line.
    """

    def __init__(self, command: str, spawner: Spawner, folder: Path, show: Callable[[str], None]) -> None:
        self._command, self._spawner, self._folder, self._show = command, spawner, folder, show
        self._task: asyncio.Task[None] | None = None

    def run(self, facts: dict[str, Any]) -> None:
        """Call the command, unless it still runs."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(facts))

    async def _run(self, facts: dict[str, Any]) -> None:
        request = SpawnRequest(
            ("/bin/sh", "-c", self._command),
            self._folder,
            kind="helper",
            timeout_s=_TIMEOUT_S,
            stdin=json.dumps(facts).encode(),
            max_output=_MAX_OUTPUT,
            merge_stderr=False,
        )
        try:
            result = await self._spawner.run(request)
        except (AarError, OSError) as error:
            self._show(f"status_command failed: {error}")
            return
        if result.timed_out:
            self._show(f"status_command took more than {_TIMEOUT_S:.0f} s")
        elif result.exit_code:
            self._show(f"status_command ended with exit {result.exit_code}")
        else:
            self._show(result.output.decode("utf-8", "replace").strip().partition("\n")[0])

    async def stop(self) -> None:
        """End a call that still runs."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
