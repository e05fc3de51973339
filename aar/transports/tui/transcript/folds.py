"""How much of each block is shown."""

from __future__ import annotations

from typing import Literal

from aar.transports.tui.blocks import (
    AnyBlock,
    Block,
    MarkBlock,
    NoticeBlock,
    SubagentBlock,
    ThinkingBlock,
    ToolBlock,
    UserBlock,
)

Fold = Literal["folded", "peek", "full"]
"""``folded``: one line; ``peek``: that and the most important lines; ``full``: everything."""

LONG_PROMPT = 4_000
"""Characters of a prompt beyond which only its beginning is shown."""

_QUIET = (ToolBlock, ThinkingBlock, MarkBlock, SubagentBlock, NoticeBlock)
_RUNNING = frozenset({"writing", "waiting", "asking", "running"})
_EDITS = frozenset({"edit_file", "write_file", "apply_patch"})


def usual_fold(block: AnyBlock) -> Fold:
    """Return how much is shown of a block that nobody folded."""
    if isinstance(block, ThinkingBlock):
        return "peek" if block.live and block.seconds is None else "folded"
    if isinstance(block, ToolBlock):
        return _usual_of_tool(block)
    if isinstance(block, MarkBlock):
        return "folded"
    if isinstance(block, UserBlock) and len(block.text) > LONG_PROMPT:
        return "peek"
    if isinstance(block, SubagentBlock):
        return "peek" if block.live else "folded"
    return "full"


def _usual_of_tool(block: ToolBlock) -> Fold:
    if block.status in _RUNNING:
        return "peek" if block.status == "running" else "folded"
    if block.typed:
        return "full"
    if block.status == "failed" or block.exit_code or (block.diff and block.name in _EDITS):
        return "peek"
    return "folded"


class Folds:
    """What the user folded and unfolded: one block, a kind, or all."""

    def __init__(self) -> None:
        self._of_block: dict[int, Fold] = {}
        self._of_kind: dict[type[Block], Fold] = {}

    def of(self, block: AnyBlock) -> Fold:
        """Return how much of ``block`` is shown."""
        chosen = self._of_block.get(block.key)
        return chosen or self._of_kind.get(type(block)) or usual_fold(block)

    def toggle(self, block: AnyBlock) -> Fold:
        """Fold an open block, open a folded one."""
        return self.set(block, "folded" if self.of(block) == "full" else "full")

    def set(self, block: AnyBlock, fold: Fold) -> Fold:
        """Show so much of one block."""
        self._of_block[block.key] = fold
        return fold

    def set_kind(self, block: AnyBlock, fold: Fold) -> None:
        """Show so much of every block of the kind of ``block``."""
        self._of_kind[type(block)] = fold
        self._of_block.clear()

    def set_all(self, fold: Fold | None) -> None:
        """Show so much of every block that is no talk; ``None``: as usual."""
        self._of_block.clear()
        self._of_kind = {} if fold is None else dict.fromkeys(_QUIET, fold)

    @property
    def all_open(self) -> bool:
        """Whether everything was unfolded at once."""
        return bool(self._of_kind) and all(fold == "full" for fold in self._of_kind.values())


def is_line(block: AnyBlock, fold: Fold) -> bool:
    """Whether a block is one quiet line, so that another can stand below it without a gap."""
    if isinstance(block, NoticeBlock):
        return "\n" not in block.message
    return fold == "folded" and isinstance(block, _QUIET)


def is_quiet(block: AnyBlock) -> bool:
    """Whether a block may stand below a line without a gap."""
    return isinstance(block, _QUIET)
