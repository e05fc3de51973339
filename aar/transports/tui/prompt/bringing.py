"""What comes into the prompt from elsewhere: files that are dragged in, the user's editor, the clipboard."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from aar.transports.tui.prompt.area import PromptArea
from aar.transports.tui.prompt.chips import PastedImage
from aar.transports.tui.prompt.completion import mention
from aar.transports.tui.prompt.images import read_image
from aar.transports.tui.prompt.messages import FilesDropped

if TYPE_CHECKING:
    from textual.app import App

    from aar.runtime.conversation import Conversation

STARTING = "One moment, aar is still starting."


class Bringing:
    """Puts it at the caret, or in place of the text.

    Args:
        app: The screen.
        area: The box.
        tell: Shows a sentence below it.
        conversation: Returns the open session; ``None`` until it was opened.
    """

    def __init__(
        self,
        app: App[int],
        area: PromptArea,
        tell: Callable[[str], None],
        conversation: Callable[[], Conversation | None],
    ) -> None:
        self._app, self._area, self._tell, self._conversation = app, area, tell, conversation

    def drop(self, message: FilesDropped) -> None:
        """Take images that were dragged in as chips, files of the project as mentions."""
        self._app.run_worker(self._drop(message), exit_on_error=False)

    async def _drop(self, message: FilesDropped) -> None:
        taken = await asyncio.gather(*(asyncio.to_thread(read_image, path) for path in message.paths))
        images = [one for one in taken if isinstance(one, PastedImage)]
        problem = next((one for one in taken if isinstance(one, str)), None)
        if problem:
            self._tell(problem)
        if len(images) < len(message.paths):
            self._area.paste(self._mentions(message) or message.text)
        else:
            for image in images:
                self._area.add_chip(image)

    def _mentions(self, message: FilesDropped) -> str:
        """Return ``@path`` for every file, where all are files of the project; else nothing."""
        conversation = self._conversation()
        if conversation is None:
            return ""
        root = conversation.runtime.workspace
        paths = [path.resolve() for path in message.paths]
        if not all(path.is_relative_to(root) for path in paths):
            return ""
        return " ".join(f"@{mention(path.relative_to(root).as_posix())}" for path in paths) + " "

    def open_editor(self, text: str) -> None:
        """Edit the prompt in the user's editor."""
        if (conversation := self._conversation()) is None:
            self._tell(STARTING)
        else:
            self._app.run_worker(self._edit(conversation, text), exit_on_error=False)

    async def _edit(self, conversation: Conversation, text: str) -> None:
        from textual.app import SuspendNotSupported

        from aar.protocol.errors import AarError
        from aar.transports.tui.prompt.outside import edit_text, editor_command

        runtime = conversation.runtime
        try:
            command = editor_command(os.environ)
            with self._app.batch_update(), self._app.suspend():
                after = await edit_text(runtime.spawner, command, text, runtime.workspace)
        except SuspendNotSupported:
            self._tell("This terminal cannot be given to an editor.")
        except (AarError, OSError) as error:
            self._tell(str(error))
        else:
            if after != text:
                self._area.set_text(after)
        self._area.focus()

    def paste_clipboard(self) -> None:
        """Paste what is in the clipboard of the desktop, also an image."""
        if (conversation := self._conversation()) is not None:
            self._app.run_worker(self._paste_clipboard(conversation), exit_on_error=False)

    async def _paste_clipboard(self, conversation: Conversation) -> None:
        from aar.transports.tui.prompt.outside import read_clipboard

        runtime = conversation.runtime
        found = await read_clipboard(runtime.spawner, runtime.workspace) or self._app.clipboard
        if isinstance(found, PastedImage):
            self._area.add_chip(found)
        elif found:
            self._area.paste(found)
        else:
            self._tell("The clipboard cannot be read here; paste with the terminal's own key.")
