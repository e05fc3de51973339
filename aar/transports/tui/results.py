"""What a command answers, on the screen: texts and tables to look through, choices to take one from."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from aar.transports.tui.footer import FooterBar
from aar.transports.tui.screens.picker import Row
from aar.transports.tui.transcript.markdown import render_markdown
from aar.transports.tui.transcript.palette import content_of
from aar.transports.tui.transcript.table import render_table
from aar.transports.tui.transcript.text import Line, clean, wrap

if TYPE_CHECKING:
    from aar.commands.base import Choice, Table, Text

_MOST_PASSING = 160
_MOST_NAME = 36
_MOST_WORD = 24
_GAP = 2
_LEAST_WIDTH = 20


def passes_by(markdown: str) -> bool:
    """Tell whether a text is so short that a passing line is enough for it."""
    return len(markdown) <= _MOST_PASSING and "\n" not in markdown


def passing_text(markdown: str) -> str:
    """Return a short text without its marks."""
    return clean(markdown.replace("**", "").replace("`", ""))


def lines_of(result: Text | Table, width: int) -> list[Line]:
    """Return the lines of a text or table in ``width`` cells."""
    from aar.commands.base import Text

    width = max(width, _LEAST_WIDTH)
    if isinstance(result, Text):
        return render_markdown(result.markdown, width)
    lines = _columns(result, width) if result.columns else _facts(result, width)
    if result.note:
        lines += [Line(), *wrap([(clean(result.note), "muted")], width)]
    return lines


def _columns(table: Table, width: int) -> list[Line]:
    words = [
        max((min(cell_len(word), _MOST_WORD) for row in (table.columns, *table.rows)
             for word in (row[place].split() if place not in table.right else [row[place]])), default=1)
        for place in range(len(table.columns))
    ]  # fmt: skip
    if sum(words) + _GAP * (len(words) - 1) > width:
        return _records(table, width)
    head = [[(clean(name), "muted")] for name in table.columns]
    rows = [[[(clean(cell), "")] for cell in row] for row in table.rows]
    aligns = ["right" if place in table.right else "left" for place in range(len(table.columns))]
    return render_table([head, *rows], aligns, width)


def _records(table: Table, width: int) -> list[Line]:
    """Draw each row below the other, as a list of facts: columns would break words and numbers."""
    lines: list[Line] = []
    for row in table.rows:
        first, *cells = row
        facts = tuple(zip(table.columns[1:], cells, strict=True))
        told = tuple((name, cell) for name, cell in facts if cell)
        lines += [Line()] if lines else []
        lines += _facts(replace(table, columns=(), rows=((first, ""), *told)), width)
    return lines


def _facts(table: Table, width: int) -> list[Line]:
    """Draw names with their values; a name that is long, or has no value, stands on a line of its own."""
    names = [clean(row[0]) for row in table.rows]
    sizes = [cell_len(name) for name, row in zip(names, table.rows, strict=True) if any(row[1:])]
    size = min(max(sizes, default=0), _MOST_NAME, max(8, width // 2))
    lines: list[Line] = []
    for name, row in zip(names, table.rows, strict=True):
        if not any(row[1:]):
            lines += [*([Line()] if lines else []), *wrap([(name, "heading")], width)]
            continue
        value = wrap([(clean(row[1] if len(row) > 1 else ""), "")], max(width - size - 2, 8))
        fits = cell_len(name) <= size
        first = ((name + " " * (size - cell_len(name) + 2), "strong"), *(value[0].runs if value else ()))
        lines.append(Line(first) if fits else Line(((name, "strong"),)))
        rest = value[1:] if fits else value
        lines += [Line(((" " * (size + 2), ""), *line.runs)) for line in rest]
    return lines


def title_of(result: Text | Table, line: str) -> str:
    """Return what stands above a result of the command ``line``."""
    from aar.commands.base import Table

    return clean(result.title if isinstance(result, Table) else line.split("\n")[0])


def rows_of(choice: Choice) -> list[Row]:
    """Return the rows of a choice; the key of each is the command that it runs."""
    return [
        Row(item.command, item.label, item.detail, search=item.command, mark=item.current)
        for item in choice.items
    ]


class ResultView(ModalScreen[None]):
    """Shows a text or a table, fitted to the width.

    Args:
        title: Of what.
        result: What a command answered.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "close", "close", id="viewer.close")]
    DEFAULT_CSS = """
    ResultView { background: $background; }
    ResultView #title { height: 1; padding: 0 1; text-style: bold; color: $primary; }
    ResultView VerticalScroll { height: 1fr; margin: 1 0 0 0; padding: 0 1; scrollbar-size-vertical: 1; }
    ResultView VerticalScroll Static { width: 1fr; height: auto; }
    """

    def __init__(self, title: str, result: Text | Table) -> None:
        super().__init__()
        self._title, self._result = title, result

    def compose(self) -> ComposeResult:
        """Show title and result."""
        yield Static(Content(self._title), id="title", markup=False)
        with VerticalScroll():
            yield Static(markup=False, id="result")
        yield FooterBar()

    def on_mount(self) -> None:
        """Let keys scroll."""
        self.query_one(VerticalScroll).focus()

    def on_resize(self) -> None:
        """Draw the result anew in the present width."""
        lines = lines_of(self._result, self.size.width - 4)
        self.query_one("#result", Static).update(content_of(lines))

    def action_close(self) -> None:
        """Go back."""
        self.dismiss(None)
