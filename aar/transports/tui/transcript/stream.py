"""Draws Markdown while it comes: closed pieces once, only the open one again.

What it costs to take more text depends on that text and on the open piece, not on all that came before.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from aar.transports.tui.transcript.chunks import Chunk, Splitter
from aar.transports.tui.transcript.highlight import highlight
from aar.transports.tui.transcript.markdown import code_row, reference_links, render_chunk
from aar.transports.tui.transcript.text import Code, Line, Run, clean, indent

_BUDGET_S = 0.012
"""Seconds of one look: keys are answered between two."""

_LONG_ROW = 4_000
"""Characters of a line without end, after which its beginning is not drawn again."""


class MarkdownStream:
    """The lines of a text that grows.

    Args:
        width: Cells, margin included.
        margin: Decoration before each line.

    Attributes:
        lines: All lines so far. The list is changed in place.
        done: Whether everything that was given is drawn.
    """

    def __init__(self, width: int, margin: Sequence[Run] = ()) -> None:
        self.width = width
        self.margin = margin
        self.lines: list[Line] = []
        self.done = True
        self._inner = width - sum(len(text) for text, _ in margin)
        self._begin()

    def _begin(self) -> None:
        self.lines.clear()
        self._splitter = Splitter()
        self._taken = 0
        self._frozen = 0
        self._env: dict[str, Any] = {}
        self._forced = False
        self._fence = _OpenFence(self._inner, self.margin)
        self._tail_at = 0.0

    def update(self, text: str, *, final: bool = False, budget_s: float = _BUDGET_S) -> bool:
        """Draw what came since the last call.

        Args:
            text: All text so far.
            final: Whether this is all.
            budget_s: Seconds after which the rest waits for the next call.

        Returns:
            Whether everything is drawn; else it wants to be called again.
        """
        until = time.perf_counter() + budget_s
        self.done = False
        if final and self._needs_all(text):
            self._restart(text)
        while (end := text.find("\n", self._taken)) >= 0:
            if time.perf_counter() > until:
                self._drop_tail()
                return False
            chunk = self._splitter.feed(text[self._taken : end])
            self._taken = end + 1
            if chunk is not None:
                self._freeze(chunk)
        self._draw_tail(text[self._taken :], final)
        return self.done

    def _needs_all(self, text: str) -> bool:
        """Whether the end of the text changes how its beginning looks."""
        if self._forced:
            return True
        found = reference_links(text)
        changed = found.get("references", {}) != self._env.get("references", {})
        self._env = found
        return changed

    def _restart(self, text: str) -> None:
        self._begin()
        self._env = reference_links(text)

    def _freeze(self, chunk: Chunk) -> None:
        self._drop_tail()
        if self.lines and not chunk.tight:
            self.lines.append(Line())
        self._add(render_chunk(chunk, self._inner, self._env))
        self._frozen = len(self.lines)
        self._fence = _OpenFence(self._inner, self.margin)

    def _drop_tail(self) -> None:
        del self.lines[self._frozen :]

    def _draw_tail(self, partial: str, final: bool) -> None:
        started = time.perf_counter()
        if not final and started < self._tail_at:
            return
        if final:
            self._finish(partial)
        elif self._splitter.in_fence:
            self._drop_tail()
            self._gap(self._splitter.tight)
            self.lines.extend(self._fence.lines(self._splitter.rows, partial))
        else:
            self._open_chunk(partial)
        self.done = True
        cost = time.perf_counter() - started
        # An open piece that is dear to draw is drawn less often, so that keys are answered.
        self._tail_at = started + 5 * cost if cost > _BUDGET_S / 2 else 0.0

    def _finish(self, partial: str) -> None:
        chunk = self._splitter.feed(partial) if partial else None
        self._taken += len(partial)
        if chunk is not None:
            self._freeze(chunk)
        last = self._splitter.finish()
        if last is not None:
            self._freeze(last)
        self._drop_tail()

    def _open_chunk(self, partial: str) -> None:
        if len(partial) > _LONG_ROW:
            partial = self._force(partial)
        self._drop_tail()
        rows = [*self._splitter.rows, partial]
        text = "\n".join(rows)
        if text.strip():
            self._gap(self._splitter.tight)
            self._add(render_chunk(Chunk(text), self._inner, self._env))

    def _force(self, partial: str) -> str:
        cut = partial.rfind(" ", _LONG_ROW // 2, _LONG_ROW) + 1 or _LONG_ROW
        self._forced = True
        rows = [*self._splitter.rows, partial[:cut]]
        tight = self._splitter.tight
        self._splitter.rows = []
        self._splitter.tight = True
        self._taken += cut
        self._freeze(Chunk("\n".join(rows), tight))
        return partial[cut:]

    def _add(self, lines: Iterable[Line]) -> None:
        self.lines.extend(indent(lines, self.margin, self.margin) if self.margin else lines)

    def _gap(self, tight: bool) -> None:
        if self.lines and not tight:
            self.lines.append(Line())


class _OpenFence:
    """Lines of a block of code that is not closed: each complete line is coloured once, by itself."""

    def __init__(self, width: int, margin: Sequence[Run]) -> None:
        self._width = width
        self._margin = margin
        self._lines: list[Line] = []
        self._taken = 1
        self._code = Code("")

    def lines(self, rows: list[str], partial: str) -> list[Line]:
        info = rows[0].strip().lstrip("`~").strip()
        for row in rows[self._taken :]:
            self._lines += self._row(row, info)
        self._taken = max(self._taken, len(rows))
        self._code.text = "\n".join([*rows[1:], partial])
        return [*self._lines, *self._row(partial, info)]

    def _row(self, row: str, info: str) -> list[Line]:
        rows = code_row(highlight(clean(row), info, "code")[0], self._width, self._code)
        return indent(rows, self._margin, self._margin)
