"""A text box in which chips stand as labels: each is one thing for the caret and for deleting."""

from __future__ import annotations

from typing import Any

from textual.widgets import TextArea
from textual.widgets.text_area import Selection

from aar.transports.tui.prompt import messages
from aar.transports.tui.prompt.chips import Chip, Chips, PastedText, normal_lines, wants_chip

_MOST_EXPANDED = 200_000
"""Characters of a chip that are shown in the box; the editor takes more."""


class ChipArea(TextArea, inherit_bindings=False):
    """The text with its chips.

    Attributes:
        chips: What the labels in the text stand for.
    """

    def __init__(self, **options: Any) -> None:
        # Before all else: making a text box moves its caret.
        self.chips = Chips()
        super().__init__(**options)

    def set_text(self, text: str, chips: Chips | None = None) -> None:
        """Put ``text`` into the box, as one step that undo takes back; the caret stands at its end.

        Text that could not be shown as it is stands there as a chip.
        """
        if chips is not None:
            self.chips.by_label.update(chips.by_label)
        text = normal_lines(text)
        if len(text) > _MOST_EXPANDED or _is_strange(text):
            text = self.chips.add(PastedText(text))
        self.history.checkpoint()
        self.replace(text, (0, 0), self.document.end, maintain_selection_offset=False)
        self.move_cursor(self.document.end)
        self.history.checkpoint()

    def put_back(self, text: str, chips: Chips | None = None) -> None:
        """Put ``text`` before what is being typed, so that neither is lost."""
        draft = self.text
        self.set_text(f"{text}\n\n{draft}" if draft.strip() else text, chips)

    def add_chip(self, chip: Chip) -> None:
        """Put the label of ``chip`` at the caret."""
        self.insert_at_caret(self.chips.add(chip) + " ")

    def insert_at_caret(self, text: str) -> None:
        """Put ``text`` in place of the selection."""
        self.replace(text, *self.selection, maintain_selection_offset=False)

    def paste(self, text: str) -> None:
        """Put ``text`` at the caret, as a chip if it is long."""
        self.history.checkpoint()
        self.insert_at_caret(self.chips.add(PastedText(text)) if wants_chip(text) else text)
        self.history.checkpoint()

    def watch_selection(self, before: Selection, now: Selection) -> None:
        """Keep the caret out of chips: they are one thing."""
        row, column = now.end
        if not self.chips.by_label or row >= self.document.line_count:
            return
        for start, end, _ in self.chips.spans(self.document.get_line(row)):
            if start < column < end:
                came_from_right = before.end > now.end
                caret = (row, start if came_from_right else end)
                self.selection = Selection(now.start if now.start != now.end else caret, caret)
                return

    def _chip_beside(self, *, left: bool) -> tuple[int, int, Chip] | None:
        """Return the chip that ends (or begins) at the caret: its columns and itself."""
        row, column = self.cursor_location
        for start, end, chip in self.chips.spans(self.document.get_line(row)):
            if (end if left else start) == column:
                return start, end, chip
        return None

    def _delete_chip(self, *, left: bool) -> bool:
        found = self._chip_beside(left=left) if self.selection.is_empty else None
        if found is None:
            return False
        row = self.cursor_location[0]
        self.history.checkpoint()
        self.delete((row, found[0]), (row, found[1]), maintain_selection_offset=False)
        return True

    def action_delete_left(self) -> None:
        """Delete the character, or the whole chip, before the caret."""
        if not self._delete_chip(left=True):
            super().action_delete_left()

    def action_delete_right(self) -> None:
        """Delete the character, or the whole chip, after the caret."""
        if not self._delete_chip(left=False):
            super().action_delete_right()

    def action_delete_word_left(self) -> None:
        """Delete the word, or the whole chip, before the caret."""
        if not self._delete_chip(left=True):
            super().action_delete_word_left()

    def action_delete_word_right(self) -> None:
        """Delete the word, or the whole chip, after the caret."""
        if not self._delete_chip(left=False):
            super().action_delete_word_right()

    def action_editor(self) -> None:
        """Edit the prompt, with all pasted text, in the user's editor."""
        text, _ = self.chips.expand(self.text) if self._has_text_chips else (self.text, ())
        self.post_message(messages.EditorWanted(text))

    @property
    def _has_text_chips(self) -> bool:
        return any(isinstance(chip, PastedText) for _, _, chip in self.chips.spans(self.text))

    def action_expand(self) -> None:
        """Show the pasted text of the chip beside the caret, or of the only one."""
        row, _ = self.cursor_location
        spans = list(self.chips.spans(self.document.get_line(row)))
        found = self._chip_beside(left=True) or self._chip_beside(left=False)
        found = found or (spans[0] if len(spans) == 1 else None)
        if found is None or not isinstance(found[2], PastedText):
            self.post_message(messages.HintWanted("Put the caret beside a [pasted …] label to open it."))
        elif len(found[2].text) > _MOST_EXPANDED or _is_strange(found[2].text):
            self.action_editor()
        else:
            self.history.checkpoint()
            self.replace(found[2].text, (row, found[0]), (row, found[1]), maintain_selection_offset=False)


def _is_strange(text: str) -> bool:
    from aar.safety.sanitize import sanitize

    return sanitize(text) != text
