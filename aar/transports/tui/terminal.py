r"""What aar knows of the terminal, and sequences that it writes beside Textual: title, notices, questions.

Sources: xterm's "Control Sequences" (OSC 2, 9, 11; CSI 22 t, CSI 23 t; DA1), COLORFGBG as rxvt sets it.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import termios
import time
from collections.abc import Mapping
from typing import Any

from aar.transports.tui.one_line import one_line

ANSWER_S = 0.1
"""Seconds that a terminal has to tell its background, counted from the question."""

SAVE_TITLE, RESTORE_TITLE = "\x1b[22;2t", "\x1b[23;2t"
RESET = (
    "\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l"  # mouse
    "\x1b[?2004l\x1b[?1004l\x1b[?2048l\x1b[<u"  # paste, focus, sizes, keys
    "\x1b[?7h\x1b[?1049l\x1b[?25h\x1b[0m"  # wrap, screen, cursor, colours
)
"""Gives a terminal back as the shell knows it; harmless where nothing was changed."""

_MAX_TITLE = 80
_QUESTION = b"\x1b]11;?\x1b\\\x1b[c"
_COLOUR = re.compile(rb"\x1b\]11;rgba?:([0-9a-fA-F/]+)(?:\x07|\x1b\\)")
_DEVICE = re.compile(rb"\x1b\[\?[0-9;]*c")
_NO_QUESTIONS = frozenset({"", "dumb", "linux", "unknown"})
_ANSI_LIGHT = frozenset({7, 9, 10, 11, 12, 13, 14, 15})


def colour_depth(environ: Mapping[str, str]) -> int:
    """Return how many colours the terminal shows: 16, 256 or 16,777,216."""
    if environ.get("COLORTERM", "").lower() in {"truecolor", "24bit"}:
        return 1 << 24
    term = environ.get("TERM", "")
    if "direct" in term or "truecolor" in term:
        return 1 << 24
    return 256 if "256" in term or "kitty" in term or "alacritty" in term or "ghostty" in term else 16


def screen_fd() -> int:
    """Return where the screen is drawn: standard error, or standard output where errors go into a file."""
    return 2 if os.isatty(2) else 1


def slants_are_lost(environ: Mapping[str, str]) -> bool:
    """Tell whether GNU screen is the innermost terminal: it draws italics as black on white."""
    return bool(environ.get("STY")) and not environ.get("TMUX")


def from_environment(environ: Mapping[str, str]) -> tuple[int, int, int] | None:
    """Return the background that ``COLORFGBG`` tells, as black or white."""
    last = environ.get("COLORFGBG", "").rpartition(";")[2]
    if not last.isdigit():
        return None
    return (255, 255, 255) if int(last) in _ANSI_LIGHT else (0, 0, 0)


class BackgroundQuestion:
    """Asks the terminal for its background (OSC 11) while other work goes on.

    The question for the device (DA1) goes behind it: every terminal answers that one, so the wait ends early
    where the first is not known. Keys that the user typed meanwhile are kept in ``typed``.

    Args:
        source: File descriptor of the terminal, for reading.
        target: And for writing.

    Attributes:
        typed: What came in besides the answers.
    """

    def __init__(self, source: int, target: int) -> None:
        self.typed = b""
        self._source, self._target = source, target
        self._before: list[Any] | None = None
        self._asked = 0.0

    def ask(self, environ: Mapping[str, str]) -> bool:
        """Write the question; false where it cannot be asked."""
        if environ.get("TERM", "") in _NO_QUESTIONS or not (
            os.isatty(self._source) and os.isatty(self._target)
        ):
            return False
        try:
            # A job in the background would be stopped for touching the terminal.
            if os.tcgetpgrp(self._source) != os.getpgrp():
                return False
            before = termios.tcgetattr(self._source)
            quiet = [*before]
            quiet[3] = before[3] & ~(termios.ECHO | termios.ICANON)
            quiet[6] = [*before[6]]
            termios.tcsetattr(self._source, termios.TCSANOW, quiet)
            self._before = before
            os.write(self._target, _QUESTION)
        except (OSError, termios.error):
            return False
        self._asked = time.monotonic()
        return True

    def answer(self) -> tuple[int, int, int] | None:
        """Return red, green and blue, 0 to 255; ``None`` where the terminal did not tell in time."""
        if self._before is None:
            return None
        data = b""
        try:
            while not _DEVICE.search(data):
                left = self._asked + ANSWER_S - time.monotonic()
                if not select.select([self._source], [], [], max(0.0, left))[0]:
                    break
                piece = os.read(self._source, 4096)
                if not piece:
                    break
                data += piece
        except OSError:
            pass
        finally:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._source, termios.TCSANOW, self._before)
        self.typed = _DEVICE.sub(b"", _COLOUR.sub(b"", data))
        found = _COLOUR.search(data)
        return parse_colour(found[1].decode()) if found else None


def parse_colour(text: str) -> tuple[int, int, int] | None:
    """Return the colour of ``rrrr/gggg/bbbb`` (one to four digits each), 0 to 255; ``None``: it is none."""
    parts = text.split("/")[:3]
    if len(parts) != 3 or not all(re.fullmatch(r"[0-9a-fA-F]{1,4}", part) for part in parts):
        return None
    red, green, blue = (round(int(part, 16) * 255 / (16 ** len(part) - 1)) for part in parts)
    return red, green, blue


def title_sequence(title: str) -> str:
    """Return what sets the window's title; the text is made harmless."""
    return f"\x1b]2;{_one_line(title)}\x07"


def call_sequence(how: str, message: str, environ: Mapping[str, str]) -> str:
    """Return what calls the user: a notice of the desktop (OSC 9) or a bell.

    Args:
        how: ``[tui] notify``.
        message: What to say.
        environ: Tells which terminal it is.
    """
    if how == "off":
        return ""
    if how == "osc9" or (how == "auto" and _knows_osc9(environ)):
        return f"\x1b]9;{_one_line(message)}\x07"
    return "\x07"


def _knows_osc9(environ: Mapping[str, str]) -> bool:
    if environ.get("TMUX") or environ.get("STY"):
        # A multiplexer keeps the notice to itself; a bell it hands on.
        return False
    program = environ.get("TERM_PROGRAM", "").lower()
    term = environ.get("TERM", "")
    return (
        program in {"iterm.app", "wezterm", "ghostty", "warpterminal"} or "kitty" in term or "ghostty" in term
    )


def _one_line(text: str) -> str:
    return one_line(text)[:_MAX_TITLE]
