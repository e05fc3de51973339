"""Commands that the user runs with ``!``, as cards in the view."""

from __future__ import annotations

from typing import Any

from aar.protocol.events import ContextEvent
from aar.transports.tui.blocks import ToolBlock, ToolStatus
from aar.transports.tui.view_state import ViewState


class OwnCommands:
    """Shows them while they run, and as they are stored.

    Args:
        view: Where the blocks are.
    """

    def __init__(self, view: ViewState) -> None:
        self._view = view

    def begin(self, command: str) -> ToolBlock:
        """Show that a command runs; `ToolBlock.add_progress` and `end` go on with it."""
        block = ToolBlock(self._view.key(), live=True, name="bash", arguments={"command": command})
        block.status, block.typed = "running", True
        self._view.append(block)
        return block

    def touch(self, block: ToolBlock) -> None:
        """Tell that a command wrote something."""
        self._view.changes.changed.add(block.key)

    def end(self, block: ToolBlock, status: ToolStatus, output: str, **facts: Any) -> None:
        """Show how a command ended; ``facts`` are attributes of the block."""
        block.status, block.output, block.live = status, output, False
        for name, value in facts.items():
            setattr(block, name, value)
        block.drop_tail()
        self._view.touch(block)

    def stored(self, event: ContextEvent, text: str) -> None:
        """Take the stored end of a command; one that was watched stands there already."""
        for block in reversed(self._view.blocks[-50:]):
            if not isinstance(block, ToolBlock) or block.call_id or block.seq is not None:
                continue
            if block.live and block.arguments.get("command") == event.label:
                block.seq = event.seq
                return
        block = self.begin(event.label)
        block.seq = event.seq
        self.end(block, "done", text.partition("\n")[2])
