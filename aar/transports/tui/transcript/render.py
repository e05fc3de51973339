"""Draws each kind of block as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len

from aar.transports.tui.blocks import (
    AnswerBlock,
    AnyBlock,
    ErrorBlock,
    MarkBlock,
    NoticeBlock,
    PlanBlock,
    SubagentBlock,
    ThinkingBlock,
    ToolBlock,
    UserBlock,
)
from aar.transports.tui.transcript.cards import duration, render_tool
from aar.transports.tui.transcript.folds import Fold
from aar.transports.tui.transcript.markdown import render_markdown
from aar.transports.tui.transcript.outline import PEEK_PROMPT, PEEK_THINKING
from aar.transports.tui.transcript.steps import DONE, step_look
from aar.transports.tui.transcript.text import (
    Line,
    Run,
    clean,
    clean_line,
    clean_prose,
    indent,
    plain_lines,
    shorten,
    wrap,
)
from aar.transports.tui.transcript.thoughts import thought_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

_TAIL_CHARS = 2_000

MARGIN: Sequence[Run] = [("  ", "")]
"""Before answers: as wide as the signs of cards, so that all text stands in one column."""

_LEVELS = {"info": ("·", "muted"), "warning": ("!", "warn"), "error": ("✗", "bad")}


def render_block(block: AnyBlock, width: int, fold: Fold) -> list[Line]:
    """Return the lines of ``block``; at least one."""
    if isinstance(block, ToolBlock):
        lines = render_tool(block, width, fold)
    elif isinstance(block, AnswerBlock):
        lines = _answer(block, width, fold)
    elif isinstance(block, ThinkingBlock):
        lines = _thinking(block, width, fold)
    elif isinstance(block, UserBlock):
        lines = _user(block, width, fold)
    elif isinstance(block, PlanBlock):
        lines = _plan(block, width, fold)
    elif isinstance(block, SubagentBlock):
        lines = _subagent(block, width, fold)
    elif isinstance(block, NoticeBlock):
        lines = _notice(block, width)
    elif isinstance(block, ErrorBlock):
        lines = _error(block, width)
    else:
        lines = _mark(block, width, fold)
    return lines or [Line()]


def _one_line(text: str, width: int, role: str, prefix: Sequence[Run]) -> Line:
    room = width - sum(cell_len(piece) for piece, _ in prefix)
    margin = sum(len(piece) for piece, _ in prefix)
    return Line((*prefix, (shorten(clean_line(text[: 4 * width]), room), role)), margin)


def _user(block: UserBlock, width: int, fold: Fold) -> list[Line]:
    bar: list[Run] = [("▌ ", "bar.user")]
    if fold == "folded":
        return [_one_line(block.text, width, "user", bar)]
    text = block.text[: PEEK_PROMPT * 4 * width] if fold == "peek" else block.text
    lines = plain_lines(clean_prose(text), width, "user", prefix=bar, code=False) if text else []
    if fold == "peek" and len(lines) > PEEK_PROMPT:
        more = f"… {len(block.text):,} characters (Enter shows all)"
        lines = [*lines[:PEEK_PROMPT], *wrap([(more, "muted")], width, prefix=bar)]
    for name in block.attachments:
        lines += wrap([(f"[{clean_line(name)}]", "muted")], width, prefix=bar)
    if block.source == "steer":
        lines += wrap([("said while it worked", "muted")], width, prefix=bar)
    return lines


def _answer(block: AnswerBlock, width: int, fold: Fold) -> list[Line]:
    if fold == "folded":
        return [_one_line(block.text, width, "", MARGIN)]
    lines = render_markdown(block.text, width - 2)
    return indent(lines, MARGIN, MARGIN) + answer_end(block, width)


def answer_end(block: AnswerBlock, width: int) -> list[Line]:
    """Return what is said below an answer that is no whole one."""
    if block.live or not (block.partial or block.refusal):
        return []
    text = "(the model declined)" if block.refusal else "(broken off here)"
    return wrap([(text, "warn")], width, prefix=MARGIN)


def _thinking(block: ThinkingBlock, width: int, fold: Fold) -> list[Line]:
    bar: list[Run] = [("┊ ", "bar.thinking")]
    # While it comes, only its end is drawn: what that costs must not grow.
    whole = fold == "full" and not block.live
    text = clean_prose(block.text if whole else _end_of(block.text)).strip("\n")
    if fold == "folded":
        took = f" for {duration(block.seconds)}" if block.seconds is not None and block.seconds >= 0.1 else ""
        word = "Thinking" if block.live and block.seconds is None else f"Thought{took}"
        if block.redacted and not text:
            word += " (not shown by the provider)"
        return [Line((("┊ ", "bar.thinking"), (shorten(word, width - 2), "thinking")), 2)]
    lines = thought_lines(text, width, bar) if text else []
    if fold == "peek":
        lines = lines[-PEEK_THINKING:]
    return lines or [Line((("┊ ", "bar.thinking"), ("Thinking", "thinking")), 2)]


def _end_of(text: str) -> str:
    """Return the end of a text that grows, cut where it was cut a moment ago: lines must not jump."""
    start = (len(text) - 1) // _TAIL_CHARS * _TAIL_CHARS - _TAIL_CHARS
    return text[text.find(" ", start) + 1 :] if start > 0 else text


def _plan(block: PlanBlock, width: int, fold: Fold) -> list[Line]:
    done = sum(item.status in DONE for item in block.items)
    head = Line((("◆ ", "busy"), ("Plan", "verb"), (f" {done}/{len(block.items)}", "muted")), 2)
    if fold == "folded":
        return [head]
    lines = [head]
    for item in block.items:
        sign, tone, role = step_look(str(item.status))
        title = [(clean_line(item.title), role)]
        lines += wrap(title, width, prefix=[("  ", ""), (f"{sign} ", tone)], hang=[("    ", "")])
    return lines


def _subagent(block: SubagentBlock, width: int, fold: Fold) -> list[Line]:
    tone = "busy" if block.live else "ok" if block.stop_reason in {None, "end_turn", "verified"} else "bad"
    facts = f" · {block.steps} steps" if block.steps else ""
    if block.waits is not None:
        tone, facts = "muted", f" · waits, {block.waits} before it" if block.waits else " · waits, the next"
    if not block.live and tone == "bad":
        facts += f" · {clean_line(str(block.stop_reason)).replace('_', ' ')}"
    name = clean_line(block.profile) or "agent"
    room = max(6, width - 4 - cell_len(name) - cell_len(facts))
    task = shorten(clean_line(block.task[: 4 * width]), room)
    lines = [Line((("◆ ", tone), (name, "verb"), (f" {task}", "aim"), (facts, "muted")), 2)]
    if fold == "folded":
        return lines
    bar: list[Run] = [("│ ", "bar.agent")]
    if fold == "full":
        lines += plain_lines(clean(block.task), width, "muted", prefix=bar, code=False)
    if block.activity:
        lines.append(_one_line(block.activity, width, "muted", bar))
    if block.result and fold == "full":
        lines += indent(render_markdown(block.result, width - 2), bar, bar)
    return lines


def _notice(block: NoticeBlock, width: int) -> list[Line]:
    sign, tone = _LEVELS.get(block.level, _LEVELS["info"])
    text = clean(block.message) + (f" (×{block.count})" if block.count > 1 else "")
    role = "muted" if block.level == "info" else tone
    first, *more = text.split("\n")
    lines = wrap([(first, role)], width, prefix=[(f"{sign} ", tone)], hang=MARGIN)
    return lines + (plain_lines("\n".join(more), width, role, prefix=MARGIN, code=False) if more else [])


def _error(block: ErrorBlock, width: int) -> list[Line]:
    bar: list[Run] = [("▌ ", "bar.error")]
    lines = plain_lines(clean(block.message), width, "bad", prefix=bar, code=False)
    if block.advice:
        lines += wrap([("→ ", "muted"), (clean_line(block.advice), "")], width, prefix=bar)
    return lines


def _mark(block: MarkBlock, width: int, fold: Fold) -> list[Line]:
    label = shorten(clean_line(block.label), width - 4)
    rest = min(24, max(0, width - 4 - cell_len(label)))
    runs: list[Run] = [("─ ", "rule"), (label, "muted"), (" " + "─" * rest if rest else "", "rule")]
    lines = [Line(tuple(run for run in runs if run[0]), 2)]
    if fold == "full" and block.detail:
        lines += plain_lines(clean(block.detail), width, "muted", prefix=MARGIN, code=False)
    return lines
