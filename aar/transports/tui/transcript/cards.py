"""Tool calls as cards: a line with verb, target, outcome and time, and what is below it when unfolded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len

from aar.safety.sanitize import sanitize
from aar.transports.tui.transcript.diff import count_changes, render_diff
from aar.transports.tui.transcript.folds import Fold
from aar.transports.tui.transcript.highlight import language_of
from aar.transports.tui.transcript.listing import listing
from aar.transports.tui.transcript.outline import PEEK_DIFF, PEEK_TAIL
from aar.transports.tui.transcript.text import (
    TAB_CELLS,
    Code,
    Line,
    Run,
    clean,
    clean_line,
    indent,
    plain_lines,
    shorten,
    wrap,
)
from aar.transports.tui.transcript.titles import title_of

if TYPE_CHECKING:
    from aar.transports.tui.blocks import ToolBlock, ToolStatus

MAX_ROWS = 3_000
"""Lines of one output that are drawn; the whole is in the session."""

SIGNS: dict[ToolStatus, tuple[str, str]] = {
    "writing": ("◌", "muted"),
    "waiting": ("◌", "muted"),
    "asking": ("?", "warn"),
    "running": ("●", "busy"),
    "done": ("✓", "ok"),
    "failed": ("✗", "bad"),
    "denied": ("⊘", "warn"),
    "cancelled": ("◦", "muted"),
}
_COUNTED = frozenset({"read_file", "grep", "list_directory", "find_files"})
_INNER = [("  ", "")]


def render_tool(block: ToolBlock, width: int, fold: Fold) -> list[Line]:
    """Return the lines of a card."""
    lines = [_head(block, width)] if fold != "full" else _whole_head(block, width)
    if fold == "folded":
        return lines
    body = _running(block, width - 2, fold) if block.live else _ended(block, width - 2, fold)
    return lines + indent(body, _INNER, _INNER)


def _sign(block: ToolBlock) -> tuple[str, str]:
    return SIGNS["failed" if block.status == "done" and block.exit_code else block.status]


def _head(block: ToolBlock, width: int) -> Line:
    """Return the card in one line; the target gives way first."""
    title = title_of(block)
    sign, tone = _sign(block)
    facts = _facts(block)
    taken = 2 + cell_len(title.verb) + 1 + sum(cell_len(text) for text, _ in facts)
    aim = shorten(title.aim, max(6, width - taken))
    runs: list[Run] = [(f"{sign} ", tone), (title.verb, "verb"), (f" {aim}" if aim else "", "aim"), *facts]
    return _cut(runs, width)


def _cut(runs: list[Run], width: int) -> Line:
    kept: list[Run] = []
    room = width
    for text, role in runs:
        text = shorten(text, room)
        if text:
            kept.append((text, role))
        room -= cell_len(text)
        if room <= 0:
            break
    return Line(tuple(kept), len(runs[0][0]))


def _whole_head(block: ToolBlock, width: int) -> list[Line]:
    title = title_of(block)
    sign, tone = _sign(block)
    aim = title.aim
    if block.name == "bash":
        aim = clean(str(block.arguments.get("command", title.aim)))
    first, *more = aim.split("\n")
    runs: list[Run] = [(title.verb, "verb"), (f" {first}" if first else "", "aim")]
    runs += [] if more else _facts(block)
    lines = wrap([run for run in runs if run[0]], width, prefix=[(f"{sign} ", tone)], hang=_INNER)
    for row in more:
        lines += wrap([(row, "aim")] if row else [], width, prefix=_INNER, code=True)
    return lines + (wrap(_facts(block), width, prefix=_INNER) if more else [])


def _facts(block: ToolBlock) -> list[Run]:
    """Return outcome and time."""
    facts: list[Run] = []
    added, removed = sum(c.added for c in block.changes), sum(c.removed for c in block.changes)
    if block.diff and not block.changes:
        added, removed = count_changes(block.diff)
    if added or removed:
        facts += [(f" +{added}", "add"), (f" −{removed}", "del")]
    for word in (*_outcome(block), *_amounts(block)):
        facts += [(" · ", "muted"), word]
    return facts


_STATES: dict[ToolStatus, Run] = {
    "denied": ("not allowed", "warn"),
    "asking": ("waits for your answer", "warn"),
    "cancelled": ("interrupted", "muted"),
}


def _outcome(block: ToolBlock) -> list[Run]:
    words: list[Run] = []
    if block.exit_code:
        words.append((f"exit {block.exit_code}", "bad"))
    elif block.status == "failed":
        words.append((clean_line(block.category or "failed").replace("_", " "), "bad"))
    if block.status in _STATES:
        words.append(_STATES[block.status])
    return words


def _amounts(block: ToolBlock) -> list[Run]:
    words: list[Run] = []
    if block.status == "writing" and block.draft:
        words.append((f"{len(block.draft):,} characters", "muted"))
    if block.name in _COUNTED and block.status == "done":
        count = block.output.count("\n") + 1 if block.output else 0
        words.append((f"{count:,} line{'s' if count != 1 else ''}", "muted"))
    if block.images:
        words.append((f"{block.images} image{'s' if block.images > 1 else ''}", "muted"))
    if block.duration_ms is not None and block.duration_ms >= 100:
        words.append((duration(block.duration_ms / 1000), "muted"))
    return words


def duration(seconds: float) -> str:
    """Return a duration as people say it: ``0.4 s``, ``12 s``, ``3 min 05 s``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _running(block: ToolBlock, width: int, fold: Fold) -> list[Line]:
    text = clean(block.tail).rstrip("\n")
    if not text:
        return plain_lines(clean(block.draft), width, "output") if fold == "full" and block.draft else []
    lines = plain_lines(text if fold == "full" else _end_of(text, width), width, "output")
    return lines if fold == "full" else lines[-PEEK_TAIL:]


def _end_of(text: str, width: int) -> str:
    """Return enough of the end of a text for a peek, so that the rest is not wrapped for nothing."""
    return text[-(PEEK_TAIL + 1) * max(20, width) :]


def _ended(block: ToolBlock, width: int, fold: Fold) -> list[Line]:
    lines: list[Line] = []
    if block.feedback:
        lines += wrap([(f"You said: {clean_line(block.feedback)}", "warn")], width)
    if block.diff:
        diff = render_diff(block.diff, width, PEEK_DIFF if fold == "peek" else MAX_ROWS)
        lines += _limited(diff, PEEK_DIFF if fold == "peek" else MAX_ROWS)
    if block.images:
        lines += [Line(((f"[{block.images} image{'s' if block.images > 1 else ''}]", "muted"),))]
    if block.diff and not block.is_error:
        return lines
    if fold == "peek":
        return lines + _peek(block, width)
    lines += _output(block, width)
    if block.truncated and block.output_ref:
        where = f"(the middle was left out; the model can read all of it as {clean_line(block.output_ref)})"
        lines += wrap([(where, "muted")], width)
    return lines or [Line((("(no output)", "muted"),))]


def _peek(block: ToolBlock, width: int) -> list[Line]:
    """Return the end of what a command printed; of an error the beginning, which says what is wrong."""
    text = _output_text(block).expandtabs(TAB_CELLS).rstrip("\n")
    if not text:
        return []
    if block.exit_code or not block.category:
        end = _end_of(text, width)
        rows = plain_lines(end, width, "output", code=block.name == "bash")
        whole = len(end) == len(text) and len(rows) <= PEEK_TAIL + 1
        return rows if whole else [_more(), *rows[-PEEK_TAIL:]]
    rows = plain_lines(text[: (PEEK_TAIL + 1) * max(20, width)], width, "output", code=False)
    return rows if len(rows) <= PEEK_TAIL + 1 else [*rows[:PEEK_TAIL], _more()]


def _output(block: ToolBlock, width: int) -> list[Line]:
    text = _output_text(block)
    if text.endswith("\n"):
        text = text[:-1]
    if not text:
        return []
    code = Code(block.output)
    lines: list[Line] = []
    if block.name == "read_file" and not block.is_error:
        lines = listing(text, language_of(str(block.arguments.get("path", ""))), width, MAX_ROWS)
    else:
        for row in text.expandtabs(TAB_CELLS).split("\n"):
            lines += wrap([(row, "output")] if row else [], width, code=True)
            if len(lines) > MAX_ROWS:
                break
    for line in lines:
        line.code = code
    return _limited(lines, MAX_ROWS)


def _output_text(block: ToolBlock) -> str:
    """Return what a tool gave, safe to show, without what stands in the head already."""
    text = sanitize(block.output)
    if block.exit_code:
        body, _, last = text.rpartition("\n")
        return body if last == f"exit code: {block.exit_code}" else text
    return text.removeprefix(f"Error [{block.category}]: ") if block.is_error else text


def _limited(lines: list[Line], limit: int) -> list[Line]:
    if len(lines) <= limit + 1:
        return lines
    return [*lines[:limit], _more(whole=limit >= MAX_ROWS)]


def _more(*, whole: bool = False) -> Line:
    return Line((("… more" if whole else "… more (Enter shows all)", "muted"),))
