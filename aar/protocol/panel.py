"""Panels of extensions, as data: the screen, editors and every other door draw them in their own way."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Tone = Literal["plain", "muted", "good", "warning", "bad", "accent"]
"""How a line is meant; doors choose the colour."""
MAX_LINES = 40
MAX_CHARS = 300


@dataclass(frozen=True, slots=True)
class PanelLine:
    """One line of a panel.

    Attributes:
        text: What stands there.
        kind: ``text``; ``field``: a name with its value; ``gauge``: how full something is; ``action``: a
            slash command that the user may give.
        value: Of a field; of an action: the command line, such as ``/companion rest``.
        amount: Of a gauge, 0 to 1.
        tone: See `Tone`.
    """

    text: str
    kind: Literal["text", "field", "gauge", "action"] = "text"
    value: str = ""
    amount: float | None = None
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Panel:
    """What a panel shows now.

    Attributes:
        name: Unique in the session: extension and panel, joined by a dot.
        title: Heading.
        lines: From top to bottom; none: there is nothing to show.
    """

    name: str
    title: str
    lines: tuple[PanelLine, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return asdict(self)
