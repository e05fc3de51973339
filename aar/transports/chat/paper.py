"""Where the chat writes: text goes out as it comes, made harmless, with colour only where it is wanted."""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Mapping
from typing import Literal, TextIO

from aar.safety.sanitize import sanitize
from aar.transports.cli import streams

Style = Literal["", "bold", "dim", "red", "green", "yellow", "cyan"]

_CODES: dict[str, str] = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_RESET = "\x1b[0m"
_LINE_END = re.compile(r"\r+\n")


class Paper:
    """Writes lines and pieces of lines.

    Nothing that was written is written over: no cursor is moved, so that a screen reader and a dumb terminal
    get the same words as everybody.

    Args:
        out: Where to; by default standard output.
        colour: Whether styles are used; by default as the terminal and ``NO_COLOR`` say.

    Attributes:
        lost: Whether the reader has gone away.
    """

    def __init__(self, out: TextIO | None = None, *, colour: bool | None = None) -> None:
        self._out = sys.stdout if out is None else out
        self._colour = wants_colour(os.environ, self._out) if colour is None else colour
        self._at_start = True
        self.lost = False

    def line(self, text: str = "", style: Style = "") -> None:
        """Write whole lines; an open line is ended first."""
        self.end_line()
        for part in sanitize(text).split("\n"):
            self._write(self.styled(part, style) + "\n")

    def piece(self, text: str, style: Style = "") -> None:
        """Write a piece of a line; line ends in it are kept."""
        if not text:
            return
        parts = text.split("\n")
        for place, part in enumerate(parts):
            if place:
                self._write("\n")
                self._at_start = True
            if part:
                self._write(self.styled(sanitize(part), style))
                self._at_start = False

    def end_line(self) -> None:
        """End an open line."""
        if not self._at_start:
            self._write("\n")
            self._at_start = True

    def styled(self, text: str, style: Style) -> str:
        """Return ``text``, which is harmless already, in a style."""
        return f"\x1b[{_CODES[style]}m{text}{_RESET}" if style and text and self._colour else text

    def _write(self, text: str) -> None:
        if not self.lost:
            self.lost = streams.write(self._out, text) is not None


def wants_colour(environ: Mapping[str, str], out: TextIO) -> bool:
    """Tell whether styles are wanted there."""
    if environ.get("NO_COLOR") or environ.get("TERM", "dumb") == "dumb":
        return False
    try:
        return out.isatty()
    except ValueError:
        return False


def cells(text: str) -> int:
    """Return how many columns ``text`` takes."""
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) > 0 for char in text)


class MarkdownPaper:
    """Streams Markdown: the words as they come, headings and code set off where there is colour.

    Args:
        paper: Where it goes.
    """

    def __init__(self, paper: Paper) -> None:
        self._paper = paper
        self._held = ""
        self._returns = ""
        self._style: Style = ""
        self._begun = False
        self._fenced = False

    def feed(self, text: str) -> None:
        """Write the next piece."""
        text = self._returns + text
        # What a carriage return is shows in what comes behind it.
        kept = text.rstrip("\r")
        self._returns = text[len(kept) :]
        for char_run in _by_line(_LINE_END.sub("\n", kept)):
            if char_run == "\n":
                self._flush()
                self._paper.piece("\n")
                self._begun, self._style = False, ""
            elif self._begun:
                self._paper.piece(char_run, self._style)
            else:
                self._held += char_run
                # What a line is shows in its first characters.
                if len(self._held.lstrip()) >= 3:
                    self._flush()

    def end(self) -> None:
        """Write what was held back and end the line."""
        rest, self._returns = self._returns, ""
        if self._begun:
            self._paper.piece(rest, self._style)
        else:
            self._held += rest
        self._flush()
        self._paper.end_line()
        self._begun, self._style, self._fenced = False, "", False

    def _flush(self) -> None:
        if self._begun or not self._held:
            return
        start = self._held.lstrip()
        if start.startswith(("```", "~~~")):
            self._fenced = not self._fenced
            self._style = "dim"
        elif self._fenced:
            self._style = "cyan"
        elif start.startswith("#"):
            self._style = "bold"
        elif start.startswith(">"):
            self._style = "dim"
        self._paper.piece(self._held, self._style)
        self._held, self._begun = "", True


def _by_line(text: str) -> list[str]:
    parts: list[str] = []
    for place, part in enumerate(text.split("\n")):
        if place:
            parts.append("\n")
        if part:
            parts.append(part)
    return parts
