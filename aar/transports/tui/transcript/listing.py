"""What a tool read of a file, as lines: the file's own text in its colours, the numbers beside it."""

from __future__ import annotations

from aar.protocol.late import late_pattern
from aar.transports.tui.transcript.highlight import highlight
from aar.transports.tui.transcript.text import TAB_CELLS, Line, Run, wrap

_NUMBERED = late_pattern(r" *(\d{1,9})\t(.*)")


def listing(text: str, language: str, width: int, limit: int) -> list[Line]:
    """Return the lines of a text that may have numbered rows; a number is decoration, it is not copied.

    Args:
        text: Sanitised, with its tabs.
        language: Of the file; empty: not known.
        width: Cells.
        limit: No more rows are drawn once so many lines are.
    """
    found = [_NUMBERED.fullmatch(row) for row in text.split("\n")]
    rows = [
        (match[1], match[2].expandtabs(TAB_CELLS)) if match else ("", row.expandtabs(TAB_CELLS))
        for match, row in zip(found, text.split("\n"), strict=True)
    ]
    digits = max((len(number) for number, _ in rows), default=0)
    coloured = highlight("\n".join(row for _, row in rows), language, "output")
    lines: list[Line] = []
    for (number, _), runs in zip(rows, coloured, strict=True):
        gutter: list[Run] = [(f"{number:>{digits}}  ", "faint")] if number else []
        hang: list[Run] = [(" " * (digits + 2), "")] if number else []
        lines += wrap(runs, width, prefix=gutter, hang=hang, code=True)
        if len(lines) > limit:
            break
    return lines
