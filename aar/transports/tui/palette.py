"""The command palette: all commands in one list, found by letters of their names or words of their help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.widgets import Input

from aar.transports.tui.prompt.completion import Suggestion
from aar.transports.tui.screens.picker import Picker, Row

if TYPE_CHECKING:
    from aar.commands.base import Command, Context
    from aar.commands.registry import Registry


class Palette(Picker):
    """Shows all commands; returns the name of the one that was taken."""

    def __init__(self, commands: Sequence[Command]) -> None:
        rows = [
            Row(command.name, f"/{command.name}", command.summary, search=" ".join(command.aliases))
            for command in commands
        ]
        super().__init__("Commands", rows, hint="Enter runs the command, or puts it into the prompt.")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search, the best first."""
        event.stop()
        event.prevent_default()  # else the list's own search comes after this one
        self._found = ranked(self._rows, event.value)
        self._fill()


def ranked(rows: Sequence[Row], query: str) -> list[Row]:
    """Return the rows that fit ``query``, best first: names that begin with it, hold it, hold its letters."""
    wanted = query.strip().removeprefix("/").casefold()
    if not wanted:
        return list(rows)
    scored = [(_score(row, wanted), place, row) for place, row in enumerate(rows)]
    return [row for score, _, row in sorted(scored, key=lambda item: item[:2]) if score < _NO_FIT]


_NO_FIT = 9


def _score(row: Row, wanted: str) -> int:
    names = [row.key, *row.search.split()]
    if any(name.startswith(wanted) for name in names):
        return 0 if row.key.startswith(wanted) else 1
    if any(wanted in name for name in names):
        return 2
    words = wanted.split()
    if all(word in f"{row.title} {row.detail}".casefold() for word in words):
        return 3
    return 4 if any(_holds(wanted, name) for name in names) else _NO_FIT


def _holds(letters: str, name: str) -> bool:
    rest = iter(name)
    return all(letter in rest for letter in letters)


def needs_words(command: Command) -> bool:
    """Tell whether a command does nothing without words behind it."""
    return bool(command.usage) and not command.usage.startswith("[")


def suggestions(context: Context, registry: Registry) -> list[Suggestion]:
    """Return what the prompt offers after a slash."""
    return [
        Suggestion(f"/{item.name}{' ' if item.usage else ''}", item.title, item.summary)
        for item in registry.all(context)
    ]


def argument_suggestions(context: Context, registry: Registry, line: str) -> list[Suggestion]:
    """Return what a line that begins with a command may become."""
    word = line.split(" ", 1)[0]
    return [Suggestion(text, text.removeprefix(f"{word} ")) for text in registry.complete(context, line)]
