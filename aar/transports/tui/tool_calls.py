"""Calls of tools: written, asked about, running, ended."""

from __future__ import annotations

from aar.protocol.events import Approval, ApprovalRequest, ToolCall, ToolProgress, ToolResult
from aar.protocol.messages import ImageBlock
from aar.transports.tui.answer_stream import AnswerStream
from aar.transports.tui.blocks import ToolBlock, ToolStatus
from aar.transports.tui.view_state import ViewState


class ToolCalls:
    """Folds what happens to calls into their blocks.

    Args:
        view: Where the blocks are.
        stream: The answer in which calls come.
    """

    def __init__(self, view: ViewState, stream: AnswerStream) -> None:
        self._view = view
        self._stream = stream
        self._open: dict[str, ToolBlock] = {}

    def clear(self) -> None:
        """Let no call be open any more."""
        self._open.clear()

    def call(self, event: ToolCall) -> None:
        """Take a call."""
        block = self._stream.take(ToolBlock)
        if block is None:
            block = ToolBlock(self._view.key())
            self._view.append(block)
        block.seq, block.call_id, block.name = event.seq, event.call_id, event.tool_name
        block.arguments = event.arguments
        block.settle_draft(event.raw_arguments)
        block.status, block.live = "waiting", True
        self._open[event.call_id] = block
        self._view.touch(block)

    def asked(self, event: ApprovalRequest) -> None:
        """Take a question about a call."""
        self._view.status.pending.append(event)
        block = self._open.get(event.call_id)
        if block is not None:
            block.status = "asking"
            self._view.touch(block)
        self._view.do("Waiting for your answer")

    def answered(self, event: Approval) -> None:
        """Take the answer to it."""
        pending = self._view.status.pending
        pending[:] = [request for request in pending if request.request_id != event.request_id]
        self._view.changes.status = True
        block = self._open.get(event.call_id)
        if not pending:
            self._view.do(f"Running {block.name}" if block and event.decision == "allow" else "Working")
        if block is None:
            return
        if event.edited_arguments is not None:
            block.arguments = event.edited_arguments
        if event.decision == "reject":
            block.status, block.feedback = "denied", event.feedback
        elif block.status == "asking":
            block.status = "waiting"
        self._view.touch(block)

    def progress(self, event: ToolProgress) -> None:
        """Take what a call printed so far."""
        block = self._open.get(event.call_id)
        if block is None or block.status in {"done", "failed", "denied", "cancelled"}:
            return
        if block.status != "running":
            block.status = "running"
            self._view.do(f"Running {block.name}")
        block.add_progress(event.text)
        self._view.changes.changed.add(block.key)

    def result(self, event: ToolResult) -> None:
        """Take how a call ended."""
        block = self._open.pop(event.call_id, None)
        if block is None:
            block = ToolBlock(self._view.key(), call_id=event.call_id, name=event.tool_name)
            self._view.append(block)
        block.output, block.is_error, block.category = event.output, event.is_error, event.category
        block.duration_ms, block.exit_code, block.diff = event.duration_ms, event.exit_code, event.diff
        block.changes, block.wall = event.file_changes, event.sandbox
        block.truncated, block.output_ref = event.truncated, event.output_ref
        block.images = sum(isinstance(part, ImageBlock) for part in event.content)
        block.status, block.live = _outcome(event), False
        block.drop_tail()
        self._view.touch(block)
        for change in event.file_changes:
            self._view.add_change(change.path, change.action, change.added, change.removed)


def _outcome(event: ToolResult) -> ToolStatus:
    if not event.is_error:
        return "done"
    if event.category in {"denied", "blocked"}:
        return "denied"
    return "cancelled" if event.category in {"cancelled", "interrupted"} else "failed"
