"""Which block a line of the transcript belongs to: prefix sums over heights that change in O(log n)."""

from __future__ import annotations

from collections.abc import Iterable


class LineMap:
    """Heights of blocks in lines, as a Fenwick tree.

    Appending, changing a height and finding a line cost O(log n); `rebuild` costs O(n).
    """

    def __init__(self, heights: Iterable[int] = ()) -> None:
        self._heights: list[int] = []
        self._tree: list[int] = [0]
        self.rebuild(heights)

    def __len__(self) -> int:
        return len(self._heights)

    def __getitem__(self, place: int) -> int:
        return self._heights[place]

    @property
    def total(self) -> int:
        """Lines of all blocks."""
        return self.start(len(self._heights))

    def rebuild(self, heights: Iterable[int]) -> None:
        """Take other heights for all blocks."""
        self._heights = list(heights)
        tree = [0, *self._heights]
        for place in range(1, len(tree)):
            parent = place + (place & -place)
            if parent < len(tree):
                tree[parent] += tree[place]
        self._tree = tree

    def append(self, height: int) -> None:
        """Add a block at the end."""
        self._heights.append(height)
        place = len(self._heights)
        value, child, stop = height, place - 1, place - (place & -place)
        while child > stop:
            value += self._tree[child]
            child -= child & -child
        self._tree.append(value)

    def truncate(self, length: int) -> None:
        """Drop the blocks from ``length`` on."""
        del self._heights[length:]
        del self._tree[length + 1 :]

    def set(self, place: int, height: int) -> int:
        """Give the block at ``place`` another height; return by how much it grew."""
        delta = height - self._heights[place]
        if delta:
            self._heights[place] = height
            node = place + 1
            while node < len(self._tree):
                self._tree[node] += delta
                node += node & -node
        return delta

    def start(self, place: int) -> int:
        """Return the first line of the block at ``place`` (the total for the place behind the last)."""
        total = 0
        while place > 0:
            total += self._tree[place]
            place -= place & -place
        return total

    def find(self, line: int) -> tuple[int, int]:
        """Return the place of the block that ``line`` lies in, and the line within that block.

        A line behind the last gives the place behind the last block.
        """
        place, rest = 0, max(0, line)
        step = 1 << len(self._heights).bit_length()
        while step:
            further = place + step
            if further < len(self._tree) and self._tree[further] <= rest:
                place = further
                rest -= self._tree[further]
            step >>= 1
        return place, rest
