"""The side panel: thinking, plan, changed files, other agents, the context window and the last notices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

from aar.safety.sanitize import sanitize
from aar.transports.tui.activity import tokens
from aar.transports.tui.header import money, share
from aar.transports.tui.layout import SECTIONS
from aar.transports.tui.one_line import one_line

if TYPE_CHECKING:
    from aar.protocol.panel import Panel, PanelLine
    from aar.transports.tui.blocks import SubagentBlock
    from aar.transports.tui.presenter import Presenter
    from aar.transports.tui.status import Status

_DRAW_S = 0.25
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
_ITEM_SIGNS = {
    "completed": ("✓", "$success"),
    "in_progress": ("▸", "$accent"),
    "executing": ("▸", "$accent"),
    "failed": ("✗", "$error"),
    "blocked": ("⊘", "$warning"),
    "skipped": ("–", "$text-muted"),
    "cancelled": ("–", "$text-muted"),
}
_ITEM_WORDS = {
    "completed": "done:",
    "in_progress": "now:",
    "executing": "now:",
    "failed": "failed:",
    "blocked": "blocked:",
    "skipped": "left out:",
    "cancelled": "stopped:",
}
_GAUGE_CELLS = 12
_TONES = {
    "plain": "$foreground",
    "muted": "$text-muted",
    "good": "$success",
    "warning": "$warning",
    "bad": "$error",
    "accent": "$accent",
}
_LEVELS = {"info": "$text-muted", "warning": "$warning", "error": "$error"}


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


def panel_text(
    status: Status, facts: PanelFacts, sections: Sequence[str] = SECTIONS, *, plain: bool = False
) -> Content:
    """Return the text of the panel: sections that have something to say, in the given order."""
    makers = {
        "thinking": lambda: _thinking(facts.thinking),
        "plan": lambda: _plan(status, plain=plain),
        "files": lambda: _files(status),
        "agents": lambda: _agents(facts.agents),
        "context": lambda: _context(status),
        "log": lambda: _troubles(facts.troubles),
    }
    made = [(name, makers[name]()) for name in sections if name in makers]
    parts = [
        Content("\n").join([Content.styled(_TITLES[name], "bold $primary"), *lines])
        for name, lines in made
        if lines
    ]
    parts += [_extension(panel, plain=plain) for panel in status.panels]
    if not parts:
        return Content.styled("Plan, changed files and thinking will stand here.", "$text-muted")
    return Content("\n\n").join(parts)


def _thinking(text: str) -> list[Content]:
    shown = sanitize(text.strip())[-_THINKING_CHARS:]
    if len(shown) == _THINKING_CHARS:
        shown = "…" + shown.partition(" ")[2]
    return [Content.styled(shown, "italic $text-muted")] if shown else []


def _plan(status: Status, *, plain: bool) -> list[Content]:
    lines: list[Content] = []
    for item in status.plan:
        sign, style = _ITEM_SIGNS.get(str(item.status), ("○", "$text-muted"))
        if plain:
            sign = _ITEM_WORDS.get(str(item.status), "to do:")
        text_style = "$text-muted" if item.status == "completed" else "$foreground"
        title = one_line(item.title)
        lines.append(Content.styled(f"{sign} ", style) + Content.styled(title, text_style))
    return lines


def _files(status: Status) -> list[Content]:
    changed = list(status.files.values())
    lines: list[Content] = []
    for file in changed[-_MOST_FILES:]:
        line = Content.styled(one_line(file.path), "$foreground")
        if file.action == "delete":
            line += Content.styled(" deleted", "$error")
        else:
            line += Content.styled(f" +{file.added}", "$success") + Content.styled(
                f" −{file.removed}", "$error"
            )
        lines.append(line)
    if len(changed) > _MOST_FILES:
        lines.insert(0, Content.styled(f"{len(changed) - _MOST_FILES} more", "$text-muted"))
    return lines


def _agents(agents: Sequence[tuple[str, str]]) -> list[Content]:
    return [
        Content.styled(one_line(name), "$secondary")
        + Content.styled(f" {one_line(act)[:200]}", "$text-muted")
        for name, act in agents
    ]


def _context(status: Status) -> list[Content]:
    lines: list[str] = []
    full = share(status)
    if full is not None and status.context_window:
        lines.append(f"{tokens(status.context_tokens)} of {tokens(status.context_window)} tokens, {full:.0%}")
    if status.tokens:
        cost = money(status.cost_usd, known=status.cost_known)
        lines.append(f"{tokens(status.tokens)} tokens in all{', ' + cost if cost else ''}")
    return [Content.styled(line, "$foreground") for line in lines]


def _troubles(troubles: Sequence[tuple[str, str]]) -> list[Content]:
    return [
        Content.styled(one_line(text)[:300], _LEVELS.get(level, "$text-muted")) for level, text in troubles
    ]


def _extension(panel: Panel, *, plain: bool) -> Content:
    title = Content.styled(one_line(panel.title), "bold $primary")
    return Content("\n").join([title, *(_panel_line(line, plain=plain) for line in panel.lines)])


def _panel_line(line: PanelLine, *, plain: bool) -> Content:
    style, text = _TONES[line.tone], one_line(line.text)
    if line.kind == "field":
        return Content.styled(f"{text} ", "$text-muted") + Content.styled(one_line(line.value), style)
    if line.kind == "action":
        return Content.styled(f"{text} ", style) + Content.styled(one_line(line.value), "$text-muted")
    if line.kind == "gauge":
        amount = line.amount or 0.0
        full = round(amount * _GAUGE_CELLS)
        bar = "" if plain else "█" * full + "░" * (_GAUGE_CELLS - full) + " "
        return Content.styled(f"{text} ", "$text-muted") + Content.styled(f"{bar}{amount:.0%}", style)
    return Content.styled(text, style)


@dataclass(slots=True)
class _Wanted:
    status: Status | None = None
    presenter: Presenter | None = None
    sections: Sequence[str] = field(default=SECTIONS)


class SidePanel(VerticalScroll, can_focus=False):
    """Draws `panel_text` at most four times a second, and nothing while it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = False
        self._wanted = _Wanted()
        self._timer: Timer | None = None
        self._shown: Content | None = None

    def compose(self) -> ComposeResult:
        """Hold one text."""
        yield Static(markup=False)

    def set_sections(self, sections: Sequence[str]) -> None:
        """Show these sections, in this order."""
        self._wanted.sections = tuple(sections)
        self._soon()

    def show(self, presenter: Presenter) -> None:
        """Show what ``presenter`` tells."""
        self._wanted.status, self._wanted.presenter = presenter.status, presenter
        self._soon()

    def _soon(self) -> None:
        if self.display and self._timer is None and self._wanted.presenter is not None:
            self._timer = self.set_timer(_DRAW_S, self.draw)

    def draw(self) -> None:
        """Draw now."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        wanted = self._wanted
        if wanted.status is None or wanted.presenter is None or not self.display:
            return
        text = panel_text(wanted.status, facts_of(wanted.presenter), wanted.sections, plain=self.plain)
        if self._shown is None or not text.is_same(self._shown):
            self._shown = text
            self.query_one(Static).update(text)
