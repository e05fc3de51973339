"""What the side panel shows, as lines: thinking, plan, changed files, other agents, context, last notices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len

from aar.safety.sanitize import sanitize_prose
from aar.transports.tui.activity import tokens
from aar.transports.tui.header import money, share
from aar.transports.tui.layout import SECTIONS
from aar.transports.tui.one_line import one_line
from aar.transports.tui.transcript.steps import step_look
from aar.transports.tui.transcript.text import Line, Run, shorten, shorten_start, wrap
from aar.transports.tui.transcript.thoughts import thought_lines

if TYPE_CHECKING:
    from aar.protocol.panel import Panel, PanelLine
    from aar.transports.tui.blocks import SubagentBlock
    from aar.transports.tui.presenter import Presenter
    from aar.transports.tui.status import ChangedFile, Status

_THINKING_CHARS = 600
_MOST_FILES = 30
_MOST_TROUBLES = 6
_TITLES = {
    "thinking": "Thinking",
    "plan": "Plan",
    "files": "Changed files",
    "agents": "Agents",
    "context": "Context",
    "log": "Notices",
}
_GAUGE_CELLS = 12
_TONES = {"plain": "", "muted": "muted", "good": "ok", "warning": "warn", "bad": "bad", "accent": "busy"}
_LEVELS = {"info": ("·", "muted"), "warning": ("!", "warn"), "error": ("✗", "bad")}
_BELOW: Sequence[Run] = (("  ", ""),)


@dataclass(frozen=True, slots=True)
class PanelFacts:
    """What the panel shows besides the `Status`.

    Attributes:
        thinking: What the model thought last.
        agents: Name and present act of each agent at work.
        troubles: Level and text of the last notices and errors.
    """

    thinking: str = ""
    agents: Sequence[tuple[str, str]] = ()
    troubles: Sequence[tuple[str, str]] = ()


def facts_of(presenter: Presenter) -> PanelFacts:
    """Return what the panel shows of ``presenter``."""
    return PanelFacts(
        presenter.thinking()[-4 * _THINKING_CHARS :],
        [(agent.profile or agent.agent_id, _act(agent)) for agent in presenter.agents],
        [(getattr(block, "level", "error"), block.message) for block in presenter.troubles(_MOST_TROUBLES)],
    )


def _act(agent: SubagentBlock) -> str:
    if agent.waits is not None:
        return f"waits: {agent.task}"
    return agent.activity or agent.task


def panel_lines(
    status: Status,
    facts: PanelFacts,
    width: int,
    sections: Sequence[str] = SECTIONS,
    *,
    plain: bool = False,
) -> list[Line]:
    """Return the lines of the panel: sections that have something to say, in the given order."""
    makers = {
        "thinking": lambda: _thinking(facts.thinking, width),
        "plan": lambda: _plan(status, width, plain=plain),
        "files": lambda: [_file(file, width) for file in _last_files(status)],
        "agents": lambda: _agents(facts.agents, width),
        "context": lambda: _context(status, width),
        "log": lambda: _troubles(facts.troubles, width),
    }
    parts = [(_TITLES[name], makers[name]()) for name in sections if name in makers]
    parts += [(one_line(panel.title), _extension(panel, width, plain=plain)) for panel in status.panels]
    lines: list[Line] = []
    for title, body in parts:
        if body:
            lines += [Line()] if lines else []
            lines += [Line(((shorten(title, width), "heading"),)), *body]
    return lines or wrap([("Plan, changed files and thinking will stand here.", "muted")], width)


def _thinking(text: str, width: int) -> list[Line]:
    shown = text.strip()
    if len(shown) > _THINKING_CHARS:
        shown = shown[-_THINKING_CHARS:]
        _, line_end, whole = shown[: _THINKING_CHARS // 2].partition("\n")
        shown = whole + shown[_THINKING_CHARS // 2 :] if line_end else "…" + shown.partition(" ")[2]
    return thought_lines(sanitize_prose(shown.strip("\n")).expandtabs(4), width) if shown else []


def _plan(status: Status, width: int, *, plain: bool) -> list[Line]:
    lines: list[Line] = []
    for item in status.plan:
        sign, tone, role = step_look(str(item.status), plain=plain)
        lines += wrap([(one_line(item.title), role)], width, prefix=[(f"{sign} ", tone)], hang=_BELOW)
    return lines


def _last_files(status: Status) -> list[ChangedFile | int]:
    """Return the files to show, before them how many are left out."""
    changed = list(status.files.values())
    more = len(changed) - _MOST_FILES
    return [more, *changed[-_MOST_FILES:]] if more > 0 else [*changed]


def _file(file: ChangedFile | int, width: int) -> Line:
    if isinstance(file, int):
        return Line(((f"{file} more", "muted"),))
    facts: list[Run] = []
    if file.action == "delete":
        facts.append((" deleted", "del"))
    else:
        facts += [(f" +{file.added}", "add")] if file.added else []
        facts += [(f" −{file.removed}", "del")] if file.removed else []
    path = one_line(file.path)
    shown = shorten_start(path, max(8, width - sum(cell_len(text) for text, _ in facts)))
    if shown != path and "/" in shown:
        shown = "…" + shown[shown.index("/") :]
    return Line(((shown, ""), *facts))


def _agents(agents: Sequence[tuple[str, str]], width: int) -> list[Line]:
    lines: list[Line] = []
    for name, act in agents:
        runs = [(one_line(name), "verb"), (f" {one_line(act)[:200]}", "muted")]
        lines += wrap(runs, width, hang=_BELOW)
    return lines


def _context(status: Status, width: int) -> list[Line]:
    rows: list[str] = []
    full = share(status)
    if full is not None and status.context_window:
        rows.append(f"{tokens(status.context_tokens)} of {tokens(status.context_window)} tokens, {full:.0%}")
    if status.tokens:
        cost = money(status.cost_usd, known=status.cost_known)
        rows.append(f"{tokens(status.tokens)} tokens in all{', ' + cost if cost else ''}")
    return [line for row in rows for line in wrap([(row, "")], width, hang=_BELOW)]


def _troubles(troubles: Sequence[tuple[str, str]], width: int) -> list[Line]:
    lines: list[Line] = []
    for level, text in troubles:
        sign, tone = _LEVELS.get(level, _LEVELS["info"])
        lines += wrap([(one_line(text)[:300], tone)], width, prefix=[(f"{sign} ", tone)], hang=_BELOW)
    return lines


def _extension(panel: Panel, width: int, *, plain: bool) -> list[Line]:
    return [made for line in panel.lines for made in wrap(_panel_runs(line, plain=plain), width, hang=_BELOW)]


def _panel_runs(line: PanelLine, *, plain: bool) -> list[Run]:
    role, text = _TONES[line.tone], one_line(line.text)
    if line.kind == "field":
        return [(f"{text} ", "muted"), (one_line(line.value), role)]
    if line.kind == "action":
        return [(f"{text} ", role), (one_line(line.value), "muted")]
    if line.kind == "gauge":
        amount = line.amount or 0.0
        full = round(amount * _GAUGE_CELLS)
        bar = "" if plain else "█" * full + "░" * (_GAUGE_CELLS - full) + " "
        return [(f"{text} ", "muted"), (f"{bar}{amount:.0%}", role)]
    return [(text, role)]
