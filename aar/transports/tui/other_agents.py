"""Other agents in the view: that they began, what they do, what they report."""

from __future__ import annotations

from aar.protocol.events import ErrorEvent, Event, ProviderMeta, Subagent, ToolCall, ToolResult
from aar.transports.tui.blocks import SubagentBlock
from aar.transports.tui.view_state import ViewState


class OtherAgents:
    """Folds what other agents do into their blocks, what it costs and changes into the status.

    Args:
        view: Where the blocks are.
    """

    def __init__(self, view: ViewState) -> None:
        self._view = view
        self._open: dict[str, SubagentBlock] = {}

    def at_work(self) -> list[SubagentBlock]:
        """Return those that are at work or wait for a place."""
        return list(self._open.values())

    def told(self, event: Subagent) -> None:
        """Take that an agent began or ended."""
        block = self._open.get(event.agent_id)
        if event.action == "start":
            block = SubagentBlock(
                self._view.key(), event.seq, event.agent_id, live=True, profile=event.profile, task=event.task
            )
            block.waits = event.queued
            self._open[event.agent_id] = block
            self._view.append(block)
            return
        if block is None:
            block = SubagentBlock(self._view.key(), event.seq, event.agent_id, profile=event.profile)
            self._view.append(block)
        block.result, block.stop_reason, block.live = event.result, event.stop_reason, False
        self._leaves_queue(block)
        block.activity = ""
        self._open.pop(event.agent_id, None)
        self._view.touch(block)

    def _leaves_queue(self, block: SubagentBlock) -> None:
        """An agent waits no longer, if it did: those behind it move up."""
        place, block.waits = block.waits, None
        if place is None:
            return
        self._view.touch(block)
        for other in self._open.values():
            if other.waits is not None and other.waits > place:
                other.waits -= 1
                self._view.touch(other)

    def take(self, event: Event) -> None:
        """Take what an agent did."""
        block = self._open.get(event.agent_id)
        if block is not None:
            self._leaves_queue(block)
        if isinstance(event, ProviderMeta):
            self._view.add_cost(event.usage.total, event.cost_usd)
            if block is not None:
                block.steps += 1
        elif isinstance(event, ToolResult):
            for change in event.file_changes:
                self._view.add_change(change.path, change.action, change.added, change.removed)
        elif isinstance(event, ToolCall) and block is not None:
            block.activity = event.tool_name
        elif isinstance(event, ErrorEvent) and block is not None:
            block.activity = event.message
        else:
            return
        if block is not None:
            self._view.touch(block)
