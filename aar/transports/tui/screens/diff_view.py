"""All changes of the session, file by file: look, take single changes back, open the file."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from aar.protocol.errors import AarError
from aar.safety.sanitize import sanitize
from aar.transports.tui.footer import FooterBar
from aar.transports.tui.keys import bindings
from aar.transports.tui.one_line import one_line

if TYPE_CHECKING:
    from aar.core.file_diffs import FileDiff, Hunk

_MOST_LINES = 4000
_LIST_FROM = 90
_ACTIONS = {"create": "new", "delete": "deleted", "modify": ""}


@dataclass(frozen=True, slots=True)
class DiffDoor:
    """What the view can do.

    Attributes:
        load: Returns the differences as they are now.
        revert: Takes hunks of a file back (all of them for ``None``).
        open_file: Opens a file at a line in the user's editor.
    """

    load: Callable[[], Awaitable[Sequence[FileDiff]]]
    revert: Callable[[FileDiff, Sequence[int] | None], Awaitable[None]]
    open_file: Callable[[str, int], object]


def file_line(diff: FileDiff, *, marked: bool) -> Content:
    """Return the line of a file in the list."""
    name = Content.styled(one_line(diff.path), "bold $primary" if marked else "$foreground")
    counts = Content.styled(f" +{diff.added}", "$success") + Content.styled(f" −{diff.removed}", "$error")
    if not diff.hunks:
        counts = Content("")
    word = " ".join(part for part in (_ACTIONS.get(diff.action, ""), _kind(diff)) if part)
    sign = Content.styled("▸ " if marked else "  ", "$accent")
    return sign + name + counts + Content.styled(f" {word}" if word else "", "$text-muted")


def _kind(diff: FileDiff) -> str:
    return "binary" if diff.binary else diff.mode


def hunk_lines(diff: FileDiff, marked: int) -> tuple[list[Content], list[int]]:
    """Return the lines of a file's changes, and the line at which each change begins."""
    lines: list[Content] = []
    places: list[int] = []
    if not diff.hunks:
        what = "No text" if diff.binary else "No line is other"
        lines.append(Content.styled(f"{what}: nothing to show. R takes the file back.", "$text-muted"))
    for hunk in diff.hunks:
        places.append(len(lines))
        chosen = hunk.index == marked
        title = f"{'▸' if chosen else ' '} line {hunk.new_start or hunk.old_start}"
        lines.append(Content.styled(title, "bold $accent" if chosen else "$text-muted"))
        lines += _of_hunk(hunk)
        lines.append(Content(""))
        if len(lines) > _MOST_LINES:
            lines.append(Content.styled(f"Cut after {_MOST_LINES:,} lines.", "$warning"))
            break
    return lines, places


def _of_hunk(hunk: Hunk) -> list[Content]:
    parts = [
        (hunk.before, " ", "$text-muted"),
        (hunk.old, "-", "$diff-remove-text on $diff-remove"),
        (hunk.new, "+", "$diff-add-text on $diff-add"),
        (hunk.after, " ", "$text-muted"),
    ]
    return [
        Content.styled(f"{sign} {_shown(line)}", style)
        for lines, sign, style in parts
        for line in lines[:_MOST_LINES]
    ]


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
    return one_line(text.expandtabs(4))


class DiffView(ModalScreen[None]):
    """Shows the files at the left and the changes of one at the right.

    Args:
        door: Loads and changes.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings("viewer")
    DEFAULT_CSS = """
    DiffView { background: $background; }
    DiffView #title { height: 1; padding: 0 1; text-style: bold; color: $primary; }
    DiffView #files { width: 34; height: 1fr; margin: 1 0 0 0; padding: 0 1; display: none; }
    DiffView.-wide #files { display: block; }
    DiffView #changes { width: 1fr; height: 1fr; margin: 1 0 0 0; padding: 0 1; }
    DiffView VerticalScroll { scrollbar-size-vertical: 1; }
    DiffView VerticalScroll Static { width: 1fr; height: auto; }
    """

    def __init__(self, door: DiffDoor) -> None:
        super().__init__()
        self._door = door
        self._diffs: list[FileDiff] = []
        self._file = self._hunk = 0
        self._places: list[int] = []

    def compose(self) -> ComposeResult:
        """Show list and changes."""
        yield Static(Content("Changes of this session"), id="title", markup=False)
        with Horizontal():
            with VerticalScroll(id="files", can_focus=False):
                yield Static(markup=False)
            with VerticalScroll(id="changes"):
                yield Static(Content.styled("Looking…", "$text-muted"), markup=False)
        yield FooterBar()

    def on_mount(self) -> None:
        """Load."""
        self.query_one("#changes").focus()
        self._load()

    def on_resize(self) -> None:
        """Show the list where there is room."""
        self.set_class(self.size.width >= _LIST_FROM, "-wide")

    @work(exclusive=True)
    async def _load(self) -> None:
        try:
            self._diffs = list(await self._door.load())
        except AarError as error:
            self._tell(str(error))
            return
        self._file = min(self._file, max(0, len(self._diffs) - 1))
        count = len(self._diff.hunks) if self._diff is not None else 0
        self._hunk = min(self._hunk, max(0, count - 1))
        self._draw()

    @property
    def _diff(self) -> FileDiff | None:
        return self._diffs[self._file] if self._diffs else None

    def _tell(self, text: str) -> None:
        self.query_one("#changes Static", Static).update(Content.styled(sanitize(text), "$warning"))

    def _draw(self) -> None:
        diff = self._diff
        if diff is None:
            self.query_one("#title", Static).update(Content("Changes of this session"))
            self.query_one("#files Static", Static).update(Content(""))
            self._tell("No file is other than at the start of this session.")
            return
        added, removed = sum(d.added for d in self._diffs), sum(d.removed for d in self._diffs)
        title = Content(f"Changes of this session: {self._file + 1} of {len(self._diffs)} files ")
        title += Content.styled(f"+{added}", "$success") + Content.styled(f" −{removed}", "$error")
        self.query_one("#title", Static).update(title)
        names = [file_line(item, marked=place == self._file) for place, item in enumerate(self._diffs)]
        self.query_one("#files Static", Static).update(Content("\n").join(names))
        lines, self._places = hunk_lines(diff, self._hunk)
        lines.insert(0, file_line(diff, marked=False))
        self.query_one("#changes Static", Static).update(Content("\n").join(lines))
        self.query_one("#files", VerticalScroll).scroll_to(y=max(0, self._file - 3), animate=False)
        self.call_after_refresh(self._to_hunk)

    def _to_hunk(self) -> None:
        if self._hunk < len(self._places):
            place = self._places[self._hunk]
            self.query_one("#changes", VerticalScroll).scroll_to(y=place if place else 0, animate=False)

    # --- keys --------------------------------------------------------------------------------------------

    def _go(self, file: int, hunk: int) -> None:
        if self._diffs:
            self._file = file % len(self._diffs)
            count = max(1, len(self._diffs[self._file].hunks))
            self._hunk = max(0, min(hunk if hunk >= 0 else count - 1, count - 1))
            self._draw()

    def action_next_file(self) -> None:
        """Go to the next file."""
        self._go(self._file + 1, 0)

    def action_previous_file(self) -> None:
        """Go to the file before."""
        self._go(self._file - 1, 0)

    def action_next_hunk(self) -> None:
        """Go to the next change, in the next file after the last."""
        diff = self._diff
        if diff is not None and self._hunk + 1 < len(diff.hunks):
            self._go(self._file, self._hunk + 1)
        else:
            self._go(self._file + 1, 0)

    def action_previous_hunk(self) -> None:
        """Go to the change before."""
        if self._hunk:
            self._go(self._file, self._hunk - 1)
        else:
            self._go(self._file - 1, -1)

    def action_revert_hunk(self) -> None:
        """Take the marked change back."""
        diff = self._diff
        if diff is not None:
            self._revert(diff, [self._hunk] if diff.hunks else None)

    def action_revert_file(self) -> None:
        """Give the file its text of the start."""
        if self._diff is not None:
            self._revert(self._diff, None)

    @work(exclusive=True)
    async def _revert(self, diff: FileDiff, hunks: Sequence[int] | None) -> None:
        try:
            await self._door.revert(diff, hunks)
        except AarError as error:
            self.notify(str(error), severity="error", markup=False)
        self._load()

    def action_open_file(self) -> None:
        """Open the file at the marked change."""
        diff = self._diff
        if diff is not None and diff.action != "delete":
            line = diff.hunks[self._hunk].new_start if diff.hunks else 1
            self._door.open_file(diff.path, line)

    def action_close(self) -> None:
        """Go back."""
        self.dismiss(None)
