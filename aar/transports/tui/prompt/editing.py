"""Keys that move the caret and change the text, as in other line editors."""

from __future__ import annotations

from textual.binding import Binding

_KEYS = (
    ("left", "cursor_left"),
    ("right", "cursor_right"),
    ("ctrl+left,alt+left,alt+b", "cursor_word_left"),
    ("ctrl+right,alt+right,alt+f", "cursor_word_right"),
    ("home,ctrl+a", "cursor_line_start"),
    ("end,ctrl+e", "cursor_line_end"),
    ("shift+left", "cursor_left(True)"),
    ("shift+right", "cursor_right(True)"),
    ("shift+up", "cursor_up(True)"),
    ("shift+down", "cursor_down(True)"),
    ("shift+home", "cursor_line_start(True)"),
    ("shift+end", "cursor_line_end(True)"),
    ("ctrl+shift+left", "cursor_word_left(True)"),
    ("ctrl+shift+right", "cursor_word_right(True)"),
    ("ctrl+shift+a", "select_all"),
    ("backspace,shift+backspace,ctrl+h", "delete_left"),
    ("delete", "delete_right"),
    ("ctrl+w,ctrl+backspace,alt+backspace", "delete_word_left"),
    ("alt+d,alt+delete,ctrl+delete", "delete_word_right"),
    ("ctrl+u,super+backspace", "delete_to_start_of_line"),
    ("ctrl+k", "delete_to_end_of_line_or_delete_line"),
    ("ctrl+underscore,alt+z,super+z", "undo"),
    ("ctrl+y,super+y,alt+y", "redo"),
)


def _binding(keys: str, action: str) -> Binding:
    name = action.replace("(True)", "_select")
    return Binding(keys, action, name.replace("_", " "), id=f"prompt.{name}", show=False)


EDITING = tuple(_binding(keys, action) for keys, action in _KEYS)
"""Bindings with ids ``prompt.NAME``; every text box has them."""
