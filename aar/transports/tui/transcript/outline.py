"""What can be said of a block without drawing it: about how tall it is, its words, what is copied of it."""

from __future__ import annotations

from aar.transports.tui.blocks import (
    AnswerBlock,
    AnyBlock,
    ErrorBlock,
    MarkBlock,
    PlanBlock,
    SubagentBlock,
    ThinkingBlock,
    ToolBlock,
    UserBlock,
)
from aar.transports.tui.transcript.folds import Fold

PEEK_TAIL = 5
PEEK_DIFF = 16
PEEK_THINKING = 8
PEEK_PROMPT = 12
"""Lines of a block that is neither folded nor open."""


def guess_height(block: AnyBlock, width: int, fold: Fold) -> int:
    """Return about how many lines a block has, without drawing it."""
    if isinstance(block, UserBlock) and fold == "peek":
        return PEEK_PROMPT + 1
    if isinstance(block, AnswerBlock | UserBlock) and fold != "folded":
        return _rows(block.text, width)
    if fold == "folded":
        return 1
    if isinstance(block, ThinkingBlock):
        return _rows(block.text, width) if fold == "full" else PEEK_THINKING
    if isinstance(block, ToolBlock):
        if fold == "peek":
            return 1 + (PEEK_DIFF if block.diff else PEEK_TAIL)
        return 1 + _rows(block.diff or block.output, width)
    if isinstance(block, PlanBlock):
        return 1 + len(block.items)
    if isinstance(block, ErrorBlock):
        return 2
    return 1


def _rows(text: str, width: int) -> int:
    return 1 + text.count("\n") + len(text) // (2 * max(10, width))


def searchable(block: AnyBlock) -> str:
    """Return the words of a block that a search looks through."""
    if isinstance(block, AnswerBlock | ThinkingBlock | UserBlock):
        return block.text
    if isinstance(block, ToolBlock):
        arguments = " ".join(str(value) for value in block.arguments.values())
        return f"{block.name} {arguments}\n{block.output}\n{block.diff or ''}"
    if isinstance(block, PlanBlock):
        return "\n".join(item.title for item in block.items)
    if isinstance(block, SubagentBlock):
        return f"{block.profile} {block.task}\n{block.result or ''}"
    if isinstance(block, MarkBlock):
        return f"{block.label}\n{block.detail}"
    return f"{block.message}\n{getattr(block, 'advice', '')}"


def copyable(block: AnyBlock) -> str:
    """Return what is copied for a whole block: its text as it came, without decoration."""
    if isinstance(block, AnswerBlock | ThinkingBlock | UserBlock):
        return block.text
    if isinstance(block, ToolBlock):
        command = str(block.arguments.get("command", "")) if block.name == "bash" else ""
        parts = [f"$ {command}" if command else "", block.diff or "", "" if block.diff else block.output]
        return "\n".join(part for part in parts if part)
    if isinstance(block, PlanBlock):
        return "\n".join(
            f"[{'x' if i.status in {'done', 'completed'} else ' '}] {i.title}" for i in block.items
        )
    if isinstance(block, SubagentBlock):
        return block.result or block.task
    if isinstance(block, MarkBlock):
        return block.detail or block.label
    return block.message
