"""What a terminal sends as pasted is text: no byte of it is a key. Pure, no terminal.

Textual looks for keys inside of a paste too: after an Esc in it the next characters act as if they were
typed, so that a paste could send a prompt or say yes. It also takes a paste letter by letter, seconds for
each megabyte.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

BEGIN, END = "\x1b[200~", "\x1b[201~"
"""What terminals with bracketed paste (xterm's mode 2004) write around it."""


@dataclass(frozen=True, slots=True)
class Pasted:
    """A whole paste."""

    text: str


class PasteReader:
    """Takes pastes out of what a terminal sends; its marks may come in pieces."""

    def __init__(self) -> None:
        self._parts: list[str] | None = None
        self._tail = ""

    def feed(self, text: str) -> Iterator[str | Pasted]:
        """Yield what was typed, with the mark before a paste, and each paste once it is whole."""
        while text:
            if self._parts is None:
                typed, text = self._typed(text)
                yield typed
            else:
                paste, text = self._pasted(text)
                if paste is not None:
                    yield Pasted(paste)

    def _typed(self, text: str) -> tuple[str, str]:
        """Return what comes before a paste with its mark, never nothing, and what is behind it."""
        joined = self._tail + text
        place = joined.find(BEGIN)
        if place < 0:
            self._tail = joined[1 - len(BEGIN) :]
            return text, ""
        end = place + len(BEGIN) - len(self._tail)
        self._parts, self._tail = [], ""
        return text[:end], text[end:]

    def _pasted(self, text: str) -> tuple[str | None, str]:
        """Keep what belongs to the paste; return it when it is whole, and what is behind it."""
        parts = self._parts if self._parts is not None else []
        joined = self._tail + text
        place = joined.find(END)
        if place < 0:
            self._tail = joined[1 - len(END) :]
            parts.append(joined[: 1 - len(END)])
            return None, ""
        self._parts, self._tail = None, ""
        return "".join([*parts, joined[:place]]), joined[place + len(END) :]
