"""Turns lines into strips, and lays marks over them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from aar.transports.tui.transcript.palette import Palette
from aar.transports.tui.transcript.text import Line


def strip_of(line: Line, palette: Palette, width: int) -> Strip:
    """Return the strip of a line, ``width`` cells wide."""
    segments = [Segment(text, palette[role]) for text, role in line.runs]
    used = sum(cell_len(text) for text, _ in line.runs)
    if used < width:
        segments.append(Segment(" " * (width - used), palette[line.fill]))
    strip = Strip(segments, max(used, width))
    return strip.crop(0, width) if used > width else strip


def overlay(strip: Strip, spans: Sequence[tuple[int, int]], style: Style) -> Strip:
    """Return ``strip`` with ``style`` laid over some cells.

    Args:
        strip: What is drawn.
        spans: First cell and the cell behind the last; sorted, without overlap.
        style: Added to what is there.
    """
    parts: list[Strip] = []
    place = 0
    for start, end in spans:
        start, end = max(start, place), min(end, strip.cell_length)
        if end <= start:
            continue
        parts.append(strip.crop(place, start))
        marked = strip.crop(start, end)
        parts.append(Strip([Segment(text, (own or Style.null()) + style) for text, own, _ in marked]))
        place = end
    if not parts:
        return strip
    parts.append(strip.crop(place))
    return Strip.join(parts)


def put_right(strip: Strip, text: str, style: Style, width: int, keep: int) -> Strip:
    """Return ``strip`` with ``text`` laid over its right end, ``keep`` cells before the edge."""
    start = max(0, width - cell_len(text) - keep)
    end = start + cell_len(text)
    return Strip.join([strip.crop(0, start), Strip([Segment(text, style)]), strip.crop(end)])
