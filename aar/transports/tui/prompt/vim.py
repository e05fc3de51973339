"""Vim keys for the prompt: normal and insert mode, motions, counts, operators ``d``, ``c`` and ``y``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from textual.widgets import TextArea

from aar.protocol.late import late_pattern

Place = tuple[int, int]
_WORD = late_pattern(r"\w+|[^\w\s]+")
_INCLUSIVE = frozenset({"e", "$"})
_LINEWISE = frozenset({"j", "k", "G"})
_PASS_ON = frozenset({"enter", "tab", "escape"})


class VimKeys:
    """Reads keys as vim does and edits a text box.

    Args:
        area: The box.

    Attributes:
        mode: ``INSERT`` or ``NORMAL``.
    """

    def __init__(self, area: TextArea) -> None:
        self.mode: Literal["INSERT", "NORMAL"] = "INSERT"
        self._area = area
        self._count = ""
        self._operator = ""
        self._await_g = False
        self._kept = ""
        self._kept_lines = False
        self._commands: dict[str, Callable[[], None]] = {
            "i": lambda: self._insert(self._caret),
            "a": lambda: self._insert(self._step(1)),
            "I": lambda: self._insert(self._first_word()),
            "A": lambda: self._insert((self._row, len(self._line))),
            "o": lambda: self._open(self._row + 1),
            "O": lambda: self._open(self._row),
            "x": lambda: self._cut(self._caret, self._right()),
            "X": lambda: self._cut(self._left(), self._caret),
            "D": lambda: self._cut(self._caret, (self._row, len(self._line))),
            "C": self._change_rest,
            "s": self._substitute,
            "S": lambda: self._operate_lines("c", self._row, self._row),
            "J": self._join,
            "p": lambda: self._put(after=True),
            "P": lambda: self._put(after=False),
            "u": area.action_undo,
        }
        self._motions: dict[str, Callable[[], Place]] = {
            "h": self._left,
            "l": self._right,
            "j": lambda: self._vertical(self._times),
            "k": lambda: self._vertical(-self._times),
            "w": lambda: self._word(lambda match: match.start()),
            "e": lambda: self._word(lambda match: match.end() - 1),
            "b": self._back,
            "0": lambda: (self._row, 0),
            "^": self._first_word,
            "$": lambda: (self._row, len(self._line)),
            "G": lambda: (area.document.line_count - 1, 0),
        }

    def begin(self) -> None:
        """Start anew, as for the next prompt: what is typed is inserted."""
        self.mode = "INSERT"
        self._reset()

    def take(self, key: str, character: str | None) -> bool:
        """Do what a key means; return whether it was a key of vim's."""
        if self.mode == "INSERT":
            # Typed quickly, Esc and a letter are what a terminal sends for the letter with Alt.
            letter = key.removeprefix("alt+") if key.startswith("alt+") else ""
            letter = letter.removeprefix("shift+").upper() if letter.startswith("shift+") else letter
            if key != "escape" and len(letter) != 1:
                return False
            self.mode = "NORMAL"
            self._reset()
            self._area.move_cursor(self._left_of(self._caret))
            if letter:
                self._normal(letter)
            return True
        if key == "escape" and (self._operator or self._count or self._await_g):
            self._reset()
            return True
        if key == "ctrl+r":
            self._area.action_redo()
            return True
        if key in _PASS_ON or character is None or not character.isprintable():
            return False
        self._normal(character)
        return True

    # --- normal mode ---------------------------------------------------------------------------------------

    def _normal(self, char: str) -> None:
        if self._await_g:
            self._await_g = False
            if char == "g":
                self._move_or_operate("gg", (0, 0))
            else:
                self._reset()
        elif char.isdecimal() and char.isascii() and (char != "0" or self._count):
            self._count = (self._count + char)[:4]
        elif char == "g":
            self._await_g = True
        elif char in "dcy":
            self._operator_key(char)
        elif char in self._motions:
            self._motion_key(char)
        else:
            command = self._commands.get(char) if not self._operator else None
            if command is not None:
                self._area.history.checkpoint()
                command()
            self._reset()

    def _operator_key(self, char: str) -> None:
        if self._operator == char:
            last = min(self._row + self._times - 1, self._area.document.line_count - 1)
            self._operate_lines(char, self._row, last)
            self._reset()
        elif self._operator:
            self._reset()
        else:
            self._operator = char

    def _motion_key(self, char: str) -> None:
        if self._operator == "c" and char == "w" and self._line[self._column : self._column + 1].strip():
            char = "e"
        before = self._caret
        if char in {"w", "e", "b"}:
            for _ in range(self._times):
                self._area.move_cursor(self._motions[char]())
            there = self._caret
            if self._operator:
                self._area.move_cursor(before)
        else:
            there = self._motions[char]()
        self._move_or_operate(char, there)

    def _move_or_operate(self, motion: str, there: Place) -> None:
        operator, here = self._operator, self._caret
        if not operator:
            self._area.move_cursor(there)
        elif motion in _LINEWISE or motion == "gg":
            self._operate_lines(operator, *sorted((here[0], there[0])))
        else:
            start, end = sorted((here, there))
            if motion in _INCLUSIVE and motion != "$":
                end = (end[0], min(end[1] + 1, len(self._area.document.get_line(end[0]))))
            self._operate(operator, start, end)
        self._reset()

    def _reset(self) -> None:
        self._count = self._operator = ""
        self._await_g = False

    @property
    def _times(self) -> int:
        return max(1, int(self._count or 1))

    # --- where ---------------------------------------------------------------------------------------------

    @property
    def _caret(self) -> Place:
        return self._area.cursor_location

    @property
    def _row(self) -> int:
        return self._caret[0]

    @property
    def _column(self) -> int:
        return self._caret[1]

    @property
    def _line(self) -> str:
        return self._area.document.get_line(self._row)

    def _left(self) -> Place:
        return self._row, max(0, self._column - self._times)

    def _left_of(self, place: Place) -> Place:
        return place[0], max(0, place[1] - 1)

    def _right(self) -> Place:
        return self._step(self._times)

    def _step(self, count: int) -> Place:
        return self._row, min(len(self._line), self._column + count)

    def _vertical(self, rows: int) -> Place:
        row = min(max(self._row + rows, 0), self._area.document.line_count - 1)
        return row, min(self._column, len(self._area.document.get_line(row)))

    def _first_word(self) -> Place:
        return self._row, len(self._line) - len(self._line.lstrip())

    def _word(self, place: Callable[[re.Match[str]], int]) -> Place:
        for row in range(self._row, self._area.document.line_count):
            for match in _WORD.finditer(self._area.document.get_line(row)):
                if (row, place(match)) > self._caret:
                    return row, place(match)
        return self._area.document.end

    def _back(self) -> Place:
        for row in range(self._row, -1, -1):
            starts = [match.start() for match in _WORD.finditer(self._area.document.get_line(row))]
            before = [start for start in starts if (row, start) < self._caret]
            if before:
                return row, before[-1]
        return 0, 0

    # --- what ----------------------------------------------------------------------------------------------

    def _insert(self, place: Place) -> None:
        self._area.move_cursor(place)
        self.mode = "INSERT"

    def _open(self, row: int) -> None:
        if row > self._row:
            self._area.insert("\n", (self._row, len(self._line)), maintain_selection_offset=False)
        else:
            self._area.insert("\n", (row, 0), maintain_selection_offset=False)
            self._area.move_cursor((row, 0))
        self.mode = "INSERT"

    def _cut(self, start: Place, end: Place) -> None:
        self._operate("d", start, end)

    def _change_rest(self) -> None:
        self._operate("c", self._caret, (self._row, len(self._line)))

    def _substitute(self) -> None:
        self._operate("c", self._caret, self._right())

    def _join(self) -> None:
        if self._row + 1 < self._area.document.line_count:
            following = self._area.document.get_line(self._row + 1)
            indent = len(following) - len(following.lstrip())
            end = (self._row + 1, indent)
            self._area.replace(" ", (self._row, len(self._line)), end, maintain_selection_offset=False)

    def _operate(self, operator: str, start: Place, end: Place) -> None:
        self._kept, self._kept_lines = self._area.get_text_range(start, end), False
        if operator != "y":
            self._area.history.checkpoint()
            self._area.delete(start, end, maintain_selection_offset=False)
        self._area.move_cursor(start)
        if operator == "c":
            self.mode = "INSERT"

    def _operate_lines(self, operator: str, first: int, last: int) -> None:
        document = self._area.document
        end = (last, len(document.get_line(last)))
        self._kept, self._kept_lines = self._area.get_text_range((first, 0), end), True
        if operator == "y":
            return
        self._area.history.checkpoint()
        if operator == "c":
            self._area.delete((first, 0), end, maintain_selection_offset=False)
            self.mode = "INSERT"
        elif last + 1 < document.line_count:
            self._area.delete((first, 0), (last + 1, 0), maintain_selection_offset=False)
        else:
            start = (first - 1, len(document.get_line(first - 1))) if first else (0, 0)
            self._area.delete(start, end, maintain_selection_offset=False)
            self._area.move_cursor((max(first - 1, 0), 0))

    def _put(self, *, after: bool) -> None:
        if self._kept_lines and after:
            place, text = (self._row, len(self._line)), "\n" + self._kept
        elif self._kept_lines:
            place, text = (self._row, 0), self._kept + "\n"
        else:
            place, text = (self._step(1) if after else self._caret), self._kept
        self._area.insert(text, place, maintain_selection_offset=False)
