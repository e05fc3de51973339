"""The view state of a screen: blocks, a `Status`, and what of them has to be drawn again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aar.transports.tui.blocks import AnyBlock, MarkBlock, MarkKind
from aar.transports.tui.status import ChangedFile, Status

if TYPE_CHECKING:
    from aar.protocol.events import Event


@dataclass(slots=True)
class Changes:
    """What has to be drawn again.

    Attributes:
        appended: Blocks that were added at the end, in order.
        changed: Keys of blocks that changed.
        removed: Keys of blocks that are gone.
        reset: Whether all blocks are others than before.
        status: Whether the `Status` changed.
    """

    appended: list[AnyBlock] = field(default_factory=list[AnyBlock])
    changed: set[int] = field(default_factory=set[int])
    removed: set[int] = field(default_factory=set[int])
    reset: bool = False
    status: bool = False

    def __bool__(self) -> bool:
        return bool(self.appended or self.changed or self.removed or self.reset or self.status)


class ViewState:
    """What a presenter folds events into.

    Args:
        clock: Monotonic seconds.

    Attributes:
        blocks: The transcript, oldest first; always the same list.
        status: What is around it.
        changes: What has to be drawn again.
        clock: As given.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.blocks: list[AnyBlock] = []
        self.status = Status()
        self.changes = Changes()
        self.clock = clock
        self._last_key = 0

    def key(self) -> int:
        """Return the key of the next block."""
        self._last_key += 1
        return self._last_key

    def append(self, block: AnyBlock) -> None:
        """Add a block at the end."""
        self.blocks.append(block)
        self.changes.appended.append(block)

    def touch(self, block: AnyBlock) -> None:
        """Let a block be drawn anew."""
        block.revision += 1
        self.changes.changed.add(block.key)

    def remove(self, gone: Iterable[AnyBlock]) -> None:
        """Take blocks near the end away."""
        keys = {block.key for block in gone}
        if not keys:
            return
        oldest = min(keys)
        # What goes stands near the end; the list before it is left alone.
        first = len(self.blocks)
        while first > 0 and self.blocks[first - 1].key >= oldest:
            first -= 1
        self.blocks[first:] = [block for block in self.blocks[first:] if block.key not in keys]
        self.changes.removed |= keys

    def mark(self, event: Event, kind: MarkKind, label: str, detail: str = "") -> None:
        """Add a line about what happened."""
        self.append(MarkBlock(self.key(), event.seq, kind=kind, label=label, detail=detail))

    def do(self, activity: str) -> None:
        """Say what happens now."""
        if self.status.activity != activity:
            self.status.activity, self.status.since = activity, self.clock()
        self.changes.status = True

    def add_cost(self, tokens: int, usd: float | None) -> None:
        """Count what a request took; ``None``: what it cost is not known."""
        self.status.tokens += tokens
        if usd is None:
            self.status.cost_known = False
        else:
            self.status.cost_usd += usd
        self.changes.status = True

    def add_change(self, path: str, action: str, added: int, removed: int) -> None:
        """Count a change of a file."""
        known = self.status.files.get(path)
        if known is None:
            self.status.files[path] = ChangedFile(path, action, added, removed)
        else:
            self.status.files[path] = replace(
                known, action=action, added=known.added + added, removed=known.removed + removed
            )
        self.changes.status = True

    def drain(self) -> Changes:
        """Return what changed since the last call."""
        changes, self.changes = self.changes, Changes()
        new = {block.key for block in changes.appended}
        changes.changed -= new | changes.removed
        changes.appended = [block for block in changes.appended if block.key not in changes.removed]
        return changes
