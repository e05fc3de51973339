"""A list to choose from: type to search, move, look at the preview, take one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import ClassVar

from rich.cells import cell_len
from textual import events, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from aar.transports.tui.footer import FooterBar
from aar.transports.tui.keys import bindings
from aar.transports.tui.one_line import one_line

_PREVIEW_DELAY_S = 0.08
_MOST_SHOWN = 500
_PREVIEW_FROM = 100


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a list.

    Attributes:
        key: What is returned when it is taken.
        title: What stands first; plain text, from outside.
        detail: What stands behind it, quieter.
        search: More text that is searched.
        enabled: Whether it can be taken.
        mark: Whether it is the present one.
    """

    key: str
    title: str
    detail: str = ""
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


def row_content(row: Row, width: int = 0) -> Content:
    """Return the row as it is drawn; details that do not fit in ``width`` cells stand below the title."""
    title = one_line(row.title)
    style = "$foreground" if row.enabled else "$text-muted"
    line = Content.styled("• " if row.mark else "  ", "$accent") + Content.styled(title, style)
    detail = one_line(row.detail)
    if not detail:
        return line
    if not width or line.cell_length + cell_len(detail) + 2 <= width:
        return line + Content.styled(f"  {detail}", "$text-muted")
    below = wrap(detail, max(20, width - 4))
    return line + Content.styled("".join(f"\n    {part}" for part in below), "$text-muted")


class Picker(ModalScreen[Taken | None]):
    """Shows rows and returns the one that was taken, or ``None``.

    Args:
        title: Says what is chosen.
        rows: To choose from.
        hint: Stands below the title.
        preview: Returns what is shown beside the marked row.
        moved: Told which row is marked.
        searching: Returns more rows for a query, such as those of an index.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings("list")
    DEFAULT_CSS = """
    Picker { background: $background; }
    Picker #title { height: 1; padding: 0 1; text-style: bold; color: $primary; }
    Picker #hint { height: auto; padding: 0 1; color: $text-muted; }
    Picker Input { border: none; height: 1; margin: 1 1 0 1; padding: 0; background: $surface; }
    Picker Input:focus { border: none; }
    Picker Input > .input--placeholder { color: $text-muted; }
    Picker OptionList { width: 1fr; height: 1fr; border: none; margin: 1 0 0 0; padding: 0 1; }
    Picker OptionList { background: $background; }
    Picker OptionList:focus { border: none; }
    Picker #preview { width: 1fr; height: 1fr; margin: 1 0 0 1; padding: 0 1; display: none; }
    Picker.-wide #preview { display: block; }
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
    ) -> None:
        super().__init__()
        self._title, self._hint = title, hint
        self._rows, self._found = list(rows), list(rows)
        self._preview, self._moved, self._searching = preview, moved, searching

    def compose(self) -> ComposeResult:
        """Put search, list and preview on the screen."""
        with Vertical():
            yield Static(Content(self._title), id="title", markup=False)
            if self._hint:
                yield Static(Content(self._hint), id="hint", markup=False)
            yield Input(placeholder="Type to search", compact=True)
            with Horizontal():
                yield OptionList(markup=False)
                with VerticalScroll(id="preview", can_focus=False):
                    yield Static(markup=False)
        yield FooterBar()

    def on_mount(self) -> None:
        """Fill the list."""
        if not self.query(OptionList):
            # Closed before it was built.
            return
        self._fill()
        self.query_one(Input).focus()

    def on_resize(self, event: events.Resize) -> None:
        """Show the preview where there is room."""
        self.set_class(self._preview is not None and event.size.width >= _PREVIEW_FROM, "-wide")

    @property
    def marked(self) -> Row | None:
        """The row under the cursor."""
        place = self.query_one(OptionList).highlighted
        return self._found[place] if place is not None and place < len(self._found) else None

    def _fill(self) -> None:
        listed = self.query_one(OptionList)
        listed.clear_options()
        whole = self.size.width
        width = whole // (2 if self._preview is not None and whole >= _PREVIEW_FROM else 1) - 4
        listed.add_options(
            [Option(row_content(row, width), disabled=not row.enabled) for row in self._found[:_MOST_SHOWN]]
        )
        if self._found:
            present = next((place for place, row in enumerate(self._found) if row.mark), None)
            first = next((place for place, row in enumerate(self._found) if row.enabled), None)
            query = self.query_one(Input).value
            listed.highlighted = first if present is None or query else present
        else:
            self.query_one("#preview Static", Static).update(Content("Nothing was found."))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search."""
        event.stop()
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
            self._fill()
        if marked is not None:
            # What the search found may change what stands beside it.
            self.query_one(OptionList).highlighted = self._found.index(marked)
            if self._preview is not None:
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
            if self.query("#preview Static"):
                self.query_one("#preview Static", Static).update(shown)
                self.query_one("#preview", VerticalScroll).scroll_home(animate=False)

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
