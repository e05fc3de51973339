"""Commands that run in the background: which there are, and a word to the user when one has ended."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from aar.protocol.errors import StorageError
from aar.protocol.events import Notice
from aar.protocol.ports import Process
from aar.safety.spawn_process import ServedProcess

if TYPE_CHECKING:
    from aar.core.session import Session
    from aar.safety.spawn import ProcessSpawner


class Background(dict[str, Process]):
    """Background commands of a runtime by shell id."""

    def __init__(self) -> None:
        super().__init__()
        self._session: Session | None = None
        self.kept: dict[str, Path] = {}
        """Those that go on when aar ends, and where their output goes then."""
        self._tasks: set[asyncio.Task[None]] = set()

    def tell_to(self, session: Session) -> None:
        """Let ``session`` hear of each command that ends from now on."""
        self._session = session

    async def end(self, spawner: ProcessSpawner) -> None:
        """End all, but for those that are kept on purpose."""
        for name, process in self.items():
            if not process.running:
                continue
            if name in self.kept and isinstance(process, ServedProcess):
                with suppress(OSError):
                    spawner.let_go(process, self.kept[name])
                    continue
            await process.kill()

    def __setitem__(self, name: str, process: Process) -> None:
        super().__setitem__(name, process)
        if isinstance(process, ServedProcess):
            process.on_end(lambda: self._ended(name, process))

    def _ended(self, name: str, process: Process) -> None:
        task = asyncio.get_running_loop().create_task(self._report(name, process))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _report(self, name: str, process: Process) -> None:
        code = (await process.wait()).exit_code
        if self.get(name) is not process or self._session is None:
            return
        how = "was killed" if code is None or code < 0 else f"has ended with exit code {code}"
        message = f"The background command {name} {how}; /shells {name} shows what it wrote."
        with suppress(StorageError):  # nobody hears it any more once the session is closed
            self._session.append(Notice(level="info", code="background", message=message))
