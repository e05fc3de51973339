"""The line at the top: where, on which branch, which model, what it may do, how full and how dear it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.widgets import Static

from aar.transports.tui.one_line import one_line

if TYPE_CHECKING:
    from aar.transports.tui.status import Status

_GAUGE_CELLS = 8
_FULL, _HIGH = 0.9, 0.7
_MAX_NAME = 28


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the line.

    Attributes:
        text: What stands there.
        style: In variables of the theme.
        weight: The lightest part goes first where the line is too narrow.
        right: Whether it stands at the right end.
    """

    text: str
    style: str
    weight: int
    right: bool = False


def parts_of(status: Status, *, plain: bool = False) -> list[Part]:
    """Return the pieces of the line for ``status``; in words alone when ``plain``."""
    parts = [
        Part(_name(status.project) or "aar", "bold $primary", 70),
        Part(_name(status.branch), "$text-muted", 40),
        Part(short_model(status.model), "$foreground", 80),
        Part(f"thinks {status.reasoning}" if status.reasoning else "", "$text-muted", 20),
        Part(*_mode(status.mode), 100),
        Part(*_wall(status.wall, status.mode), 60),
        Part(_gauge(status, plain=plain), _gauge_style(status), 90, right=True),
        Part(money(status.cost_usd, known=status.cost_known), "$text-muted", 50, right=True),
    ]
    return [part for part in parts if part.text]


def header_line(status: Status, width: int, *, plain: bool = False) -> Content:
    """Return the line for ``width`` columns: the lightest parts go first, none is cut in two."""
    parts = parts_of(status, plain=plain)
    gap = "  "
    while len(parts) > 1 and _cells(parts, gap) > width:
        parts.remove(min(parts, key=lambda part: part.weight))
    left = Content(gap).join(Content.styled(part.text, part.style) for part in parts if not part.right)
    right = Content(gap).join(Content.styled(part.text, part.style) for part in parts if part.right)
    space = max(0, width - left.cell_length - right.cell_length)
    line = Content("").join([left, Content(" " * space), right])
    return line.truncate(width, ellipsis=True)


def _cells(parts: list[Part], gap: str) -> int:
    return sum(cell_len(part.text) for part in parts) + len(gap) * (len(parts) - 1)


def short_model(name: str) -> str:
    """Return a model's name without the path of a file or the maker before the last slash."""
    vendor, _, model = one_line(name).partition("/")
    last = model.rstrip("/").rpartition("/")[2] or model
    shown = last if vendor in {"scripted", "anthropic", "openai", "gemini"} else f"{vendor}/{last}"
    return _cut(shown if model else vendor)


def _name(text: str) -> str:
    return _cut(one_line(text))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_NAME else text[: _MAX_NAME - 1] + "…"


def _mode(mode: str) -> tuple[str, str]:
    styles = {"unsafe": "bold reverse $error", "auto": "$warning", "plan": "$secondary"}
    return (f" {mode} " if mode == "unsafe" else mode), styles.get(mode, "$success")


def _wall(wall: str, mode: str) -> tuple[str, str]:
    if wall == "none":
        return "no wall", "bold $error" if mode == "unsafe" else "$warning"
    return wall, "$text-muted"


def share(status: Status) -> float | None:
    """Return how full the window is, 0 to 1; ``None`` where that is not known."""
    window = status.context_window
    return min(1.0, status.context_tokens / window) if window and status.context_tokens else None


def _gauge(status: Status, *, plain: bool) -> str:
    full = share(status)
    if full is None:
        return ""
    if plain:
        return f"context {full:.0%} full"
    # Rounded up, so that a window that is in use never looks empty.
    marked = min(_GAUGE_CELLS, -int(-full * _GAUGE_CELLS // 1))
    return "━" * marked + "╌" * (_GAUGE_CELLS - marked) + f" {full:.0%}"


def _gauge_style(status: Status) -> str:
    full = share(status) or 0.0
    return "$error" if full >= _FULL else "$warning" if full >= _HIGH else "$success"


def money(usd: float, *, known: bool = True) -> str:
    """Return a cost as people read it; a lower bound is marked as such."""
    if usd <= 0:
        return "" if known else "cost not known"
    shown = f"${usd:.2f}" if usd >= 0.1 else f"${usd:.4f}".rstrip("0")
    return shown if known else f"≥ {shown}"


class HeaderBar(Static):
    """Draws `header_line`, in the width that there is."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._status: Status | None = None
        self._shown: tuple[object, ...] = ()
        self.plain = False

    def on_mount(self) -> None:
        """Tell where aar was started, until the session tells more."""
        from aar.transports.tui.status import Status

        if self._status is None:
            self._status = Status(project=Path.cwd().name)

    def show(self, status: Status) -> None:
        """Show what ``status`` tells."""
        self._status = status
        self._draw()

    def on_resize(self, _event: events.Resize) -> None:
        """Fit the line to the new width."""
        self._draw()

    def _draw(self) -> None:
        if self._status is None or not self.content_size.width:
            return
        width = self.content_size.width
        shown = (width, self.plain, *parts_of(self._status, plain=self.plain))
        if shown != self._shown:
            self._shown = shown
            self.update(header_line(self._status, width, plain=self.plain), layout=False)
