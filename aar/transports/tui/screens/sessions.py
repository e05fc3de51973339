"""The list of sessions: go on with one or with a copy of it, give it a title, delete it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from textual import work
from textual.binding import BindingType
from textual.content import Content
from textual.widgets import Input, OptionList

from aar.protocol.errors import AarError
from aar.transports.tui.keys import bindings
from aar.transports.tui.one_line import one_line
from aar.transports.tui.screens.ask_text import AskText
from aar.transports.tui.screens.picker import Picker, Row
from aar.transports.tui.textual_private import app_of

_MOST_NAME = 40


@dataclass(frozen=True, slots=True)
class SessionsDoor:
    """What the list can do.

    Attributes:
        preview: Returns what is shown beside a session.
        searching: Returns more sessions for a query.
        rename: Gives a session another title and returns that.
        delete: Removes a session for good.
    """

    preview: Callable[[str], Awaitable[Content]]
    searching: Callable[[str], Awaitable[Sequence[Row]]]
    rename: Callable[[str, str], Awaitable[str]]
    delete: Callable[[str], Awaitable[None]]


class SessionPicker(Picker):
    """Shows sessions; returns the one that was taken, ``alternative`` for a copy of it."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("sessions")

    def __init__(self, rows: Sequence[Row], door: SessionsDoor) -> None:
        super().__init__(
            "Sessions",
            rows,
            hint="Enter goes on with the marked one, Ctrl+O with a copy of it.",
            preview=door.preview,
            searching=door.searching,
            alternative=True,
        )
        self._door = door
        self._doomed = ""

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Forget the wish to delete another session."""
        row = self.marked
        if row is None or row.key != self._doomed:
            self._forget()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Forget the wish to delete a session."""
        self._forget()

    def _forget(self) -> None:
        if self._doomed:
            self._doomed = ""
            self.tell()

    @work(exclusive=True, group="change")
    async def action_rename(self) -> None:
        """Give the marked session another title."""
        self._forget()
        row = self.marked
        if row is None:
            return
        ask = AskText("Title of this session", "", one_line(row.title))
        title = await app_of(self).push_screen_wait(ask)
        if title is None or title == row.title:
            return
        try:
            told = await self._door.rename(row.key, title)
        except AarError as error:
            self.tell(one_line(str(error)), warning=True)
            return
        self._replace(row.key, told)

    @work(exclusive=True, group="change")
    async def action_delete(self) -> None:
        """Delete the marked session; asks first."""
        row = self.marked
        if row is None:
            return
        if self._doomed != row.key:
            self._doomed = row.key
            name = one_line(row.title)[:_MOST_NAME]
            self.tell(
                f"Delete “{name}” for good? Ctrl+D again does it, any other key keeps it.", warning=True
            )
            return
        self._doomed = ""
        try:
            await self._door.delete(row.key)
        except AarError as error:
            self.tell(one_line(str(error)), warning=True)
            return
        self._replace(row.key, None)

    def _replace(self, key: str, title: str | None) -> None:
        """Show a session with another title, or no more; the list may be another one by now."""
        place = self.query_one(OptionList).highlighted or 0
        for rows in (self._rows, self._found):
            rows[:] = [
                row if row.key != key else replace(row, title=title or row.title)
                for row in rows
                if row.key != key or title is not None
            ]
        self._fill(self._found[min(place, len(self._found) - 1)] if self._found else None)
        self.tell()
