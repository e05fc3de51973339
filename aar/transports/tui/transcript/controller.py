"""What becomes of what the transcript wants: text to the clipboard, links to their programs, older events."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from aar.transports.tui.textual_private import write_sequence
from aar.transports.tui.transcript.view import Transcript

if TYPE_CHECKING:
    from aar.transports.tui.app import AarApp
    from aar.transports.tui.clipboard import Clipboard


class TranscriptController:
    """The app's side of the transcript.

    Args:
        app: The app.
        tell: Shows the user one sentence.
    """

    def __init__(self, app: AarApp, tell: Callable[[str], None]) -> None:
        self._app = app
        self._tell = tell
        self._clipboard: Clipboard | None = None

    async def copy(self, text: str) -> None:
        """Put ``text`` on the clipboard and say what came of it."""
        self._tell((await self._reach().copy(text)).message)

    def _reach(self) -> Clipboard:
        from aar.transports.tui.clipboard import Clipboard

        connection = self._app.connection
        if self._clipboard is None or not self._clipboard.has_tools:
            spawner = connection.conversation.runtime.spawner if connection is not None else None
            self._clipboard = Clipboard(lambda data: write_sequence(self._app, data), os.environ, spawner)
        return self._clipboard

    async def open_link(self, message: Transcript.LinkOpened) -> None:
        """Open a file in the user's editor, or an address in the browser."""
        connection = self._app.connection
        if connection is None:
            return
        from aar.protocol.errors import AarError
        from aar.transports.tui.transcript.outside import open_link

        runtime = connection.conversation.runtime
        try:
            told = await open_link(message.link, runtime.spawner, runtime.workspace, self._app.suspend)
        except (AarError, OSError) as error:
            told = str(error)
        if told:
            self._tell(told)

    async def load_older(self, show: Callable[[], None]) -> None:
        """Fold older events; ``show`` draws them."""
        connection = self._app.connection
        if connection is not None and await connection.older():
            show()

    def close(self) -> None:
        """End what serves the clipboard."""
        if self._clipboard is not None:
            self._clipboard.close()
