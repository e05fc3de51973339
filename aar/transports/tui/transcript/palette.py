"""How each role of text looks, said in variables of the theme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.style import Style as RichStyle
from textual.color import Color
from textual.content import Content
from textual.style import Style

from aar.transports.tui.theme_loader import least_contrast, readable
from aar.transports.tui.transcript.text import Line

ROLES: Mapping[str, str] = {
    "": "$foreground",
    "muted": "$text-muted",
    "faint": "$text-disabled",
    "strong": "bold",
    "em": "italic",
    "strike": "strike",
    "link": "$text-accent underline",
    "target": "$text-muted",
    "heading": "$text-primary bold",
    "inline": "$text-warning on $surface",
    "code": "$foreground on $surface",
    "quote": "$text-muted italic",
    "rule": "$text-disabled",
    "bullet": "$text-primary",
    "user": "$foreground bold",
    "bar.user": "$primary",
    "bar.thinking": "$text-disabled",
    "bar.error": "$error",
    "bar.warning": "$warning",
    "bar.agent": "$secondary",
    "bar.cursor": "$accent bold",
    "thinking": "$text-muted italic",
    "verb": "$foreground bold",
    "aim": "$foreground",
    "ok": "$text-success",
    "bad": "$text-error",
    "warn": "$text-warning",
    "busy": "$text-accent",
    "output": "$text-muted",
    "add": "$text-success",
    "del": "$text-error",
    "diff.add": "on $diff-add",
    "diff.del": "on $diff-remove",
    "diff.add.word": "on $diff-add-word",
    "diff.del.word": "on $diff-remove-word",
    "found": "$background on $warning",
    "found.here": "$background on $accent bold underline",
    "selected": "$foreground on $primary 40%",
    "new": "$background on $accent bold",
    "search": "$foreground on $surface",
    "search.keys": "$text-muted on $surface",
    "thumb": "$primary",
    "syn.comment": "$text-muted italic",
    "syn.keyword": "$text-accent",
    "syn.string": "$text-success",
    "syn.number": "$text-warning",
    "syn.name": "$text-primary",
    "syn.builtin": "$text-secondary",
    "syn.operator": "$foreground bold",
    "syn.error": "$text-error",
}
"""Styles by role, in Textual's style language."""

_WITHOUT_GROUNDS: Mapping[str, str] = {
    "diff.add": "$success",
    "diff.del": "$error",
    "diff.add.word": "$success bold underline",
    "diff.del.word": "$error bold underline",
    "found": "reverse",
    "found.here": "reverse bold underline",
    "selected": "reverse",
    "new": "reverse bold",
}
"""Roles where only the sixteen colours of the terminal may be used, or none: none is safe behind text."""


class Palette:
    """Styles of the roles for one theme.

    Args:
        variables: Of the theme, without the dollar sign.
        background: Colour behind the transcript.

    Attributes:
        ground: Style of cells that nothing stands in.
    """

    def __init__(self, variables: Mapping[str, str], background: Color) -> None:
        self._variables = dict(variables)
        self._grounds = {} if "diff-add" in variables else _diff_grounds(variables)
        self._background = background
        # The sixteen colours are the terminal's: nobody knows them here.
        self._own = background.ansi is None
        self._least = least_contrast(variables["foreground"], background.hex) if self._own else 0.0
        self._styles: dict[str, RichStyle] = {}
        self.ground = RichStyle(bgcolor=background.rich_color)

    def __getitem__(self, role: str) -> RichStyle:
        style = self._styles.get(role)
        if style is None:
            style = self._styles[role] = self._resolve(role)
        return style

    def _resolve(self, role: str) -> RichStyle:
        background, foreground = self._background, self._background.get_contrast_text(1)
        made = RichStyle()
        for name in ["", *role.split()]:
            meant = ROLES[name] if self._own else _WITHOUT_GROUNDS.get(name, ROLES[name])
            style = Style.parse(self._grounds.get(name, meant) if self._own else meant, self._variables)
            if style.background is not None:
                background += style.background
            if style.foreground is not None:
                foreground = style.foreground
            made += _attributes(style)
        if foreground.auto:
            foreground = background.get_contrast_text(foreground.a)
        text = background + foreground
        if self._own:
            text = readable(text, background, Color.parse(self._variables["foreground"]), self._least)
        return made + RichStyle(color=text.rich_color, bgcolor=background.rich_color)


def _diff_grounds(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the roles of a diff for themes that do not say its grounds, such as Textual's."""
    add, remove = variables["success"], variables["error"]
    return {
        "diff.add": f"on {add} 16%",
        "diff.add.word": f"on {add} 34%",
        "diff.del": f"on {remove} 16%",
        "diff.del.word": f"on {remove} 34%",
    }


def _attributes(style: Style) -> RichStyle:
    return RichStyle(
        bold=style.bold,
        dim=style.dim,
        italic=style.italic,
        underline=style.underline,
        strike=style.strike,
        reverse=style.reverse,
    )


def content_of(lines: Sequence[Line]) -> Content:
    """Return lines as what a `Static` draws; all text in them is clean already."""
    parts: list[Content] = []
    for place, line in enumerate(lines):
        if place:
            parts.append(Content("\n"))
        for text, role in line.runs:
            style = " ".join(ROLES[name] for name in role.split()) if role else ""
            parts.append(Content.styled(text, style) if style else Content(text))
    return Content("").join(parts)
