"""What a model thinks, as lines: dim, with the few marks of Markdown that thoughts have drawn."""

from __future__ import annotations

from collections.abc import Sequence

from aar.protocol.late import late_pattern
from aar.transports.tui.transcript.text import Line, Run, wrap

ROLE = "thinking"
_ITEM = late_pattern(r"(\s*)[-*+] (?=\S)")
_HEADING = late_pattern(r"#{1,6} +(?=\S)")
_MARKED = late_pattern(r"\*\*(?=\S)(?P<strong>[^*]*[^*\s])\*\*|`(?P<code>[^`]+)`")


def thought_lines(text: str, width: int, prefix: Sequence[Run] = ()) -> list[Line]:
    """Return the lines of thoughts that were cleaned before; each row of the text begins a line."""
    lines: list[Line] = []
    for row in text.split("\n"):
        bullet: list[Run] = []
        heading = _HEADING.match(row)
        item = _ITEM.match(row)
        if heading:
            row = row[heading.end() :].rstrip("# ")
        elif item:
            bullet = [(f"{item[1]}• ", ROLE)]
            row = row[item.end() :]
        hang = [(" " * sum(len(piece) for piece, _ in bullet), ROLE)] if bullet else []
        runs = _runs(row, f"strong {ROLE}" if heading else ROLE)
        lines += wrap(runs, width, prefix=[*prefix, *bullet], hang=[*prefix, *hang])
    return lines


def _runs(row: str, role: str) -> list[Run]:
    runs: list[Run] = []
    place = 0
    for match in _MARKED.finditer(row):
        runs.append((row[place : match.start()], role))
        runs.append((match["strong"], f"strong {ROLE}") if match["strong"] else (match["code"], "muted"))
        place = match.end()
    runs.append((row[place:], role))
    return [run for run in runs if run[0]]
