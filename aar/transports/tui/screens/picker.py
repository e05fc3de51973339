"""A list to choose from: type to search, move, look at the preview, take one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from textual import events, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from aar.transports.tui.footer import FooterBar
from aar.transports.tui.keys import bindings
from aar.transports.tui.one_line import one_line
from aar.transports.tui.transcript.text import wrap

_PREVIEW_DELAY_S = 0.08
_MOST_SHOWN = 500
_PREVIEW_FROM = 100
_PREVIEW_BELOW_FROM = 24
_TITLE_SHARE = 0.4
_LEAST_TITLE, _LEAST_DETAIL = 16, 20
_MARK, _GAP = 2, 2
_BESIDE = 5
"""Cells of a list that hold no text: its padding, and a scrollbar."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a list.

    Attributes:
        key: What is returned when it is taken.
        title: What it is called; plain text, from outside.
        detail: What stands behind it, quieter.
        lead: What stands before the title in a column of its own; such rows take one line each.
        search: More text that is searched.
        enabled: Whether it can be taken.
        mark: Whether it is the present one.
    """

    key: str
    title: str
    detail: str = ""
    lead: str = ""
    search: str = ""
    enabled: bool = True
    mark: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """What the user took. ``alternative``: with the second key."""

    key: str
    alternative: bool = False


def matches(row: Row, query: str) -> bool:
    """Tell whether each word of ``query`` stands somewhere in the row, in any case."""
    text = f"{row.title} {row.detail} {row.search}".casefold()
    return all(word in text for word in query.casefold().split())


def row_contents(rows: Sequence[Row], width: int) -> list[Content]:
    """Return the rows as they are drawn in ``width`` cells, with titles and details in columns.

    Where most titles are too long for a column, details stand below them.
    """
    lead = max((cell_len(one_line(row.lead)) for row in rows), default=0)
    titles = [cell_len(one_line(row.title)) for row in rows]
    most = max(_LEAST_TITLE, int(width * _TITLE_SHARE))
    fitting = [size for size in titles if size <= most]
    column = max(fitting) if 2 * len(fitting) > len(titles) else 0
    return [_row_content(row, lead, column, width) for row in rows]


def _row_content(row: Row, lead: int, column: int, width: int) -> Content:
    before = Content.styled("• " if row.mark else "  ", "$accent")
    title = Content.styled(one_line(row.title), "$foreground" if row.enabled else "$text-muted")
    detail = one_line(row.detail)
    if lead:
        head = one_line(row.lead)
        before += Content.styled(f"{head}{' ' * (lead - cell_len(head))}  ", "$text-muted")
        behind = Content.styled(f"  {detail}" if detail else "", "$text-muted")
        return (before + title + behind).truncate(width, ellipsis=True)
    line = (before + title).truncate(width, ellipsis=True)
    if not detail:
        return line
    place = _MARK + column + _GAP if column else 2 * _MARK
    told = [part.text for part in wrap([(detail, "")], max(_LEAST_DETAIL, width - place))]
    if column and title.cell_length <= column:
        line += Content(" " * (place - line.cell_length)) + Content.styled(told.pop(0), "$text-muted")
    return line + Content.styled("".join(f"\n{' ' * place}{part}" for part in told), "$text-muted")


class Picker(ModalScreen[Taken | None]):
    """Shows rows and returns the one that was taken, or ``None``.

    Args:
        title: Says what is chosen.
        rows: To choose from.
        hint: Stands below the title.
        preview: Returns what is shown beside the marked row.
        moved: Told which row is marked.
        searching: Returns more rows for a query, such as those of an index.
        alternative: Whether a row can be taken in a second way, too.
        query: What is searched first.
        at: Key of the row that is marked first.

    Attributes:
        query_text: What is searched.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings("list")
    DEFAULT_CSS = """
    Picker { background: $background; }
    Picker #title { height: 1; padding: 0 1; text-style: bold; color: $primary; }
    Picker #hint { height: auto; padding: 0 1; color: $text-muted; }
    Picker #hint.-empty { display: none; }
    Picker #hint.-warning { color: $text-warning; }
    Picker Input { border: none; height: 1; margin: 1 1 0 1; padding: 0; background: $surface; }
    Picker Input:focus { border: none; }
    Picker Input > .input--placeholder { color: $text-muted; }
    Picker #lists { layout: vertical; }
    Picker.-wide #lists { layout: horizontal; }
    Picker OptionList { width: 1fr; height: 1fr; border: none; margin: 1 0 0 0; padding: 0 1; }
    Picker OptionList { background: $background; scrollbar-size-vertical: 1; }
    Picker OptionList:focus { border: none; }
    Picker #preview { width: 1fr; height: 1fr; margin: 1 0 0 1; padding: 0 1; display: none; }
    Picker.-wide #preview { display: block; }
    Picker.-below #preview { display: block; max-height: 8; margin: 1 0 0 1; }
    Picker #preview Static { width: 1fr; height: auto; color: $text-muted; }
    """

    def __init__(
        self,
        title: str,
        rows: Sequence[Row],
        *,
        hint: str = "",
        preview: Callable[[str], Awaitable[Content]] | None = None,
        moved: Callable[[str], None] | None = None,
        searching: Callable[[str], Awaitable[Sequence[Row]]] | None = None,
        alternative: bool = False,
        query: str = "",
        at: str = "",
    ) -> None:
        super().__init__()
        self._title, self._hint = title, hint
        self.query_text: str = query
        self._rows = list(rows)
        self._found = [row for row in rows if matches(row, query)]
        self._at = next((row for row in self._found if at and row.key == at), None)
        self._preview, self._moved, self._searching = preview, moved, searching
        self._alternative = alternative

    def compose(self) -> ComposeResult:
        """Put search, list and preview on the screen."""
        with Vertical():
            yield Static(Content(self._title), id="title", markup=False)
            yield Static(Content(self._hint), id="hint", markup=False)
            yield Input(self.query_text, placeholder="Type to search", compact=True)
            with Container(id="lists"):
                yield OptionList(markup=False)
                with VerticalScroll(id="preview", can_focus=False):
                    yield Static(markup=False)
        yield FooterBar()

    def on_mount(self) -> None:
        """Fill the list."""
        if not self.query(OptionList):
            # Closed before it was built.
            return
        self.tell()
        self._fill(self._at)
        self.query_one(Input).focus()

    def on_resize(self, event: events.Resize) -> None:
        """Show the preview where there is room, and fit the rows to the width."""
        wide = event.size.width >= _PREVIEW_FROM
        self.set_class(self._preview is not None and wide, "-wide")
        below = self._preview is not None and not wide and event.size.height >= _PREVIEW_BELOW_FROM
        self.set_class(below, "-below")
        if self.query(OptionList):
            self._fill(self.marked)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer a second way to take a row only where there is one."""
        return self._alternative if action == "alternative" else super().check_action(action, parameters)

    @property
    def marked(self) -> Row | None:
        """The row under the cursor."""
        place = self.query_one(OptionList).highlighted
        return self._found[place] if place is not None and place < len(self._found) else None

    def _fill(self, marked: Row | None = None) -> None:
        listed = self.query_one(OptionList)
        listed.clear_options()
        whole = self.size.width
        width = whole // (2 if self._preview is not None and whole >= _PREVIEW_FROM else 1) - _BESIDE
        shown = self._found[:_MOST_SHOWN]
        listed.add_options(
            [
                Option(content, disabled=not row.enabled)
                for row, content in zip(shown, row_contents(shown, width), strict=True)
            ]
        )
        if not self._found:
            self.query_one("#preview Static", Static).update(Content("Nothing was found."))
        elif marked is not None and marked in shown:
            listed.highlighted = shown.index(marked)
        else:
            present = next((place for place, row in enumerate(shown) if row.mark), None)
            first = next((place for place, row in enumerate(shown) if row.enabled), None)
            query = self.query_one(Input).value
            listed.highlighted = first if present is None or query else present

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search."""
        event.stop()
        if event.value == self.query_text:
            return
        self.query_text = event.value
        self._found = [row for row in self._rows if matches(row, event.value)]
        self._fill()
        if self._searching is not None:
            self._search_more(event.value)

    @work(exclusive=True, group="search")
    async def _search_more(self, query: str) -> None:
        if self._searching is None:
            return
        known = {row.key for row in self._found}
        more = [row for row in await self._searching(query) if row.key not in known]
        if not self.query(OptionList) or not self.query(Input) or self.query_one(Input).value != query:
            # Closed, or asked for something else meanwhile.
            return
        marked = self.marked
        if more:
            self._found += more
            self._fill(marked)
        if marked is not None and self._preview is not None:
            # What the search found may change what stands beside it.
            self._show_preview(marked.key)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the marked row."""
        event.stop()
        self.action_choose()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the preview of the row."""
        event.stop()
        row = self.marked
        if row is None:
            return
        if self._moved is not None:
            self._moved(row.key)
        if self._preview is not None:
            self._show_preview(row.key)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Take the row that was clicked."""
        event.stop()
        self.action_choose()

    @work(exclusive=True, group="preview")
    async def _show_preview(self, key: str) -> None:
        import asyncio

        await asyncio.sleep(_PREVIEW_DELAY_S)
        if self._preview is not None:
            shown = await self._preview(key)
            if self.query("#preview Static") and (self.marked is None or self.marked.key == key):
                self.query_one("#preview Static", Static).update(shown)
                self.query_one("#preview", VerticalScroll).scroll_home(animate=False)

    def tell(self, text: str = "", *, warning: bool = False) -> None:
        """Show ``text`` in place of the hint; nothing: the hint again."""
        line = self.query_one("#hint", Static)
        line.update(Content(text or self._hint))
        line.set_class(not text and not self._hint, "-empty")
        line.set_class(warning, "-warning")

    # --- keys --------------------------------------------------------------------------------------------

    def action_cursor_up(self) -> None:
        """Go up."""
        self.query_one(OptionList).action_cursor_up()

    def action_cursor_down(self) -> None:
        """Go down."""
        self.query_one(OptionList).action_cursor_down()

    def action_page_up(self) -> None:
        """Go up a page."""
        self.query_one(OptionList).action_page_up()

    def action_page_down(self) -> None:
        """Go down a page."""
        self.query_one(OptionList).action_page_down()

    def action_choose(self) -> None:
        """Take the marked row."""
        self._take(alternative=False)

    def action_alternative(self) -> None:
        """Take the marked row in the other way."""
        self._take(alternative=True)

    def _take(self, *, alternative: bool) -> None:
        row = self.marked
        if row is not None and row.enabled:
            self.dismiss(Taken(row.key, alternative))

    def action_close(self) -> None:
        """Change nothing."""
        self.dismiss(None)
