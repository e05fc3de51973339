"""Where the user types: a text box that grows, with chips, recall, completion and, if wanted, vim keys."""

# ruff: noqa: E501 (one key a line: they are read as a table)

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.message import Message

from aar.transports.tui.prompt import messages
from aar.transports.tui.prompt.chip_area import ChipArea
from aar.transports.tui.prompt.chips import Chips, normal_lines
from aar.transports.tui.prompt.completion import (
    CompleteCommand,
    FileList,
    Request,
    Suggestion,
    find_request,
    rank_commands,
)
from aar.transports.tui.prompt.editing import EDITING
from aar.transports.tui.prompt.images import dropped_paths
from aar.transports.tui.prompt.popup import CompletionPopup
from aar.transports.tui.prompt.recall import Recall
from aar.transports.tui.prompt.vim import VimKeys
from aar.transports.tui.textual_private import app_of, run_own_key

_MODIFIED_ENTER = frozenset({"shift+\r", "ctrl+\r"})
"""Enter with a modifier, as terminals with xterm's ``modifyOtherKeys`` send it."""
_FILES_AGE_S = 10.0
"""Seconds after which the list of files is asked for again."""


class PromptArea(ChipArea, inherit_bindings=False):
    """The prompt.

    What keys do are actions with ids ``prompt.NAME``, by which they can be bound to others.

    Attributes:
        recall: Earlier prompts of this project.
        last_key: Monotonic seconds when a key was last typed here.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send", "send", id="prompt.send", tooltip="Send the prompt; while aar works it is heard at the next step."),
        Binding("alt+enter,ctrl+s", "queue", "queue", id="prompt.queue", show=False, tooltip="Let the prompt wait until the present run is over."),
        Binding("ctrl+j,shift+enter", "newline", "new line", id="prompt.newline", show=False, tooltip="Begin a new line; a backslash before Enter does it too."),
        Binding("up", "up", "back", id="prompt.up", show=False, tooltip="Go up; at the top to the prompt before, in an empty prompt to the last queued one."),
        Binding("down", "down", "forth", id="prompt.down", show=False, tooltip="Go down; at the end to the next prompt."),
        Binding("ctrl+r", "search_history", "search prompts", id="prompt.search", show=False, tooltip="Search the prompts of all sessions."),
        Binding("ctrl+g", "editor", "editor", id="prompt.editor", show=False, tooltip="Edit the prompt in $EDITOR."),
        Binding("ctrl+o", "expand", "unfold paste", id="prompt.expand", show=False, tooltip="Show the text of a [pasted] label."),
        Binding("ctrl+v", "clipboard", "paste", id="prompt.paste", show=False, tooltip="Paste an image or text from the clipboard."),
        Binding("alt+q,ctrl+up", "focus_queue", "queue", id="prompt.edit_queue", show=False, tooltip="Go to the queue, to edit, move or remove prompts."),
        Binding("ctrl+c,super+c", "copy_or_clear", "clear", id="prompt.clear", show=False, tooltip="Copy what is selected, else clear the prompt, else end the run; twice leaves aar."),
        Binding("ctrl+d", "delete_or_quit", "quit", id="prompt.quit", show=False, tooltip="Delete to the right; in an empty prompt leave aar."),
        Binding("ctrl+x", "cancel_all", "cancel all", id="prompt.cancel", show=False, tooltip="End the run and clear the queue, after asking."),
        Binding("tab", "complete", "complete", id="prompt.complete", show=False, tooltip="Take the suggestion that is marked."),
        Binding("escape", "close", "close", id="prompt.close", show=False, tooltip="Close the suggestions."),
        *EDITING,
    ]  # fmt: skip

    Submitted = messages.Submitted

    def __init__(self) -> None:
        self.selected_elsewhere: Callable[[], str] = str
        super().__init__(
            soft_wrap=True,
            placeholder="Type a task",
            compact=True,
            highlight_cursor_line=False,
            max_checkpoints=500,
        )
        self.cursor_blink = False
        self.match_cursor_bracket = False
        self.recall = Recall()
        self.last_key = 0.0
        self._files = FileList()
        self._files_at = float("-inf")
        self._commands: Sequence[Suggestion] = ()
        self._complete_command: CompleteCommand | None = None
        self._request: Request | None = None
        self._popup: CompletionPopup | None = None
        self._vim: VimKeys | None = None
        self._shown_mode = ""
        self._settled = False

    # --- for the app -----------------------------------------------------------------------------------

    def attach(self, popup: CompletionPopup) -> None:
        """Show suggestions in ``popup``."""
        self._popup = popup

    def use_vim(self, on: bool) -> None:
        """Turn vim keys on or off."""
        self._vim = VimKeys(self) if on else None
        self.set_class(on, "-vim")
        self._show_mode()

    def _show_mode(self) -> None:
        self.set_class(self.vim_mode == "NORMAL", "-normal")
        if self.vim_mode != self._shown_mode:
            self._shown_mode = self.vim_mode
            self.post_message(messages.ModeChanged(self.vim_mode))

    @property
    def vim_mode(self) -> str:
        """``INSERT``, ``NORMAL``, or nothing without vim keys."""
        return self._vim.mode if self._vim is not None else ""

    def set_files(self, files: Sequence[str], resources: Sequence[str] = ()) -> None:
        """Take the project's files, and resources of servers, for completion after ``@``."""
        self._files.set(files, resources)
        self._files_at = time.monotonic()
        self._suggest()

    def set_commands(self, commands: Sequence[Suggestion], complete: CompleteCommand | None = None) -> None:
        """Take the commands for completion after ``/``; ``complete`` completes what follows a name."""
        self._commands, self._complete_command = commands, complete

    @property
    def is_empty(self) -> bool:
        """Whether nothing but space stands in the box."""
        return not self.text.strip()

    def insert_words(self, text: str) -> None:
        """Put words at the caret, apart from those before it."""
        before = self.document.get_text_range((0, 0), min(self.selection))
        self.insert_at_caret(text if not before or before[-1].isspace() else f" {text}")

    def place_cursor(self) -> None:
        """Move the terminal's own cursor to the caret, for input methods."""
        if self.has_focus:
            app_of(self).cursor_position = self.cursor_screen_offset

    # --- keys ------------------------------------------------------------------------------------------

    async def _on_key(self, event: events.Key) -> None:
        self.last_key = time.monotonic()
        if self._vim is not None and self._vim.take(event.key, event.character):
            self._show_mode()
            event.stop()
            event.prevent_default()
        elif await run_own_key(self, event):
            return
        elif event.key in {"enter", "tab"}:
            event.prevent_default()
        elif event.key in _MODIFIED_ENTER:
            event.stop()
            event.prevent_default()
            self.action_newline()

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.take_paste(event.text)

    def take_paste(self, text: str) -> None:
        """Take what a terminal pasted: text, or files that were dragged in."""
        self.last_key = time.monotonic()
        text = normal_lines(text)
        paths = dropped_paths(text)
        if paths:
            self.post_message(messages.FilesDropped(text, tuple(paths)))
        else:
            self.paste(text)

    # --- sending ---------------------------------------------------------------------------------------

    def action_send(self) -> None:
        """Send the prompt; begin a new line after a backslash; take a command that is being completed."""
        row, column = self.cursor_location
        if column and self.document.get_line(row)[:column].endswith("\\"):
            self.replace("\n", (row, column - 1), (row, column), maintain_selection_offset=False)
            return
        if self._choosing and self._popup is not None and self._popup.wants_enter(self.text):
            self.action_complete()
            return
        self._submit("send")

    def action_queue(self) -> None:
        """Let the prompt wait until the present run is over."""
        self._submit("queue")

    def _submit(self, how: str) -> None:
        typed = self.text.strip()
        if not typed:
            self.post_message(messages.GoOnWanted())
            return
        text, images = self.chips.expand(typed)
        message: Message
        if typed.startswith("!") and typed.strip("!").strip():
            private = typed.startswith("!!")
            message = messages.ShellWanted(text.lstrip("!").strip(), private)
        else:
            message = messages.Submitted(text, "queue" if how == "queue" else "send", images, typed)
        self.recall.add(typed)
        self.reset()
        if self._vim is not None:
            self._vim.begin()
            self._show_mode()
        self.post_message(message)

    def reset(self) -> None:
        """Empty the box for the next prompt."""
        self.chips = Chips(dict(self.chips.by_label))
        self.clear()
        self.history.checkpoint()
        self._close_popup()

    def action_newline(self) -> None:
        """Begin a new line."""
        self.insert_at_caret("\n")

    # --- recall ----------------------------------------------------------------------------------------

    def action_up(self) -> None:
        """Go to the suggestion above, the line above, or the prompt before."""
        if self._choosing and self._popup is not None:
            self._popup.move(-1)
            return
        if self.text == "":
            self.post_message(messages.TakeBackWanted())
            return
        if self._walking or self._at_edge(-1):
            self.recall_older()
        else:
            self.action_cursor_up()

    def recall_older(self) -> None:
        """Show the prompt before, of those that begin with what stands before the caret."""
        before = self.document.get_text_range((0, 0), self.cursor_location)
        entry = self.recall.older(self.text, before.lstrip() if not self._walking else "")
        if entry is not None:
            self.set_text(entry)
        elif not self._walking:
            self.action_cursor_line_start()

    def action_down(self) -> None:
        """Go to the suggestion below, the line below, or the prompt after."""
        if self._choosing and self._popup is not None:
            self._popup.move(1)
        elif self._walking or self._at_edge(1):
            entry = self.recall.newer(self.text)
            if entry is not None:
                self.set_text(entry)
            else:
                self.action_cursor_line_end()
        else:
            self.action_cursor_down()

    @property
    def _walking(self) -> bool:
        return self.recall.shown is not None and self.recall.shown == self.text

    def _at_edge(self, step: int) -> bool:
        """Tell whether there is no line above (-1) or below (1) the caret, as the screen wraps it."""
        here = self.cursor_location
        there = self.get_cursor_up_location() if step < 0 else self.get_cursor_down_location()
        up = self.wrapped_document.location_to_offset(there).y
        return up == self.wrapped_document.location_to_offset(here).y

    def action_search_history(self) -> None:
        """Search all prompts."""
        self.post_message(messages.HistoryWanted())

    # --- completion ------------------------------------------------------------------------------------

    @property
    def _choosing(self) -> bool:
        return self._popup is not None and self._popup.is_open

    def on_text_area_changed(self) -> None:
        """Look for what can be completed, and tell that there is another draft."""
        self.set_class(self.text.startswith("!"), "-shell")
        self._suggest()
        self.post_message(messages.DraftChanged())
        self.call_after_refresh(self.place_cursor)

    def on_text_area_selection_changed(self) -> None:
        """Close the list when the caret leaves what is completed."""
        if self._choosing and self._find_request() is None:
            self._close_popup()

    def _find_request(self) -> Request | None:
        row, column = self.cursor_location
        if not self.selection.is_empty:
            return None
        line = self.document.get_line(row)
        before = line[:column] if row else self.document.get_text_range((0, 0), (row, column))
        request = find_request(before, line[column:])
        return None if request is not None and row and request.kind != "file" else request

    def _suggest(self) -> None:
        if self._popup is None or self._walking:
            self._close_popup()
            return
        self._request = self._find_request()
        if self._request is None:
            self._close_popup()
            return
        if self._request.kind == "file" and time.monotonic() - self._files_at > _FILES_AGE_S:
            self._files_at = time.monotonic()
            self.post_message(messages.FilesWanted())
        self._popup.offer(self._suggestions(self._request), self._request.kind)

    def _suggestions(self, request: Request) -> Sequence[Suggestion]:
        if request.kind == "file":
            return self._files.search(request.query)
        if request.kind == "command":
            return rank_commands(request.query, self._commands)
        return self._complete_command(request.query) if self._complete_command is not None else ()

    def _close_popup(self) -> None:
        if self._popup is not None:
            self._popup.close()

    def action_complete(self) -> None:
        """Take the suggestion that is marked; without one go to the open question."""
        chosen = self._popup.chosen if self._choosing and self._popup is not None else None
        if chosen is None or self._request is None:
            self.post_message(messages.AnswerWanted())
            return
        row, column = self.cursor_location
        self.replace(
            chosen.insert, (row, self._request.start), (row, column), maintain_selection_offset=False
        )
        if not chosen.insert.endswith("/"):
            self._close_popup()

    def action_close(self) -> None:
        """Close the list; without one the key goes on to the app."""
        if not self._choosing:
            raise SkipAction
        self._close_popup()

    # --- the rest ----------------------------------------------------------------------------------------

    def action_clipboard(self) -> None:
        """Paste what is in the clipboard, also an image."""
        self.post_message(messages.ClipboardWanted())

    def action_focus_queue(self) -> None:
        """Go to the queue."""
        self.post_message(messages.QueueFocusWanted())

    def action_copy_or_clear(self) -> None:
        """Copy what is selected, else clear the text, else stop what runs, or leave."""
        selected = self.selected_text or self.selected_elsewhere() or self.screen.get_selected_text()
        if selected:
            self.post_message(messages.CopyWanted(selected))
        elif self.text:
            self.history.checkpoint()
            self.reset()
            self.post_message(messages.HintWanted("Cleared; Ctrl+_ brings it back."))
        else:
            self.post_message(messages.StopWanted())

    def action_delete_or_quit(self) -> None:
        """Delete to the right; on an empty prompt quit."""
        if self.text:
            self.action_delete_right()
        else:
            self.post_message(messages.QuitWanted())

    def action_cancel_all(self) -> None:
        """Cut what is selected; else cancel the run and clear the queue, after asking."""
        if self.selected_text:
            self.post_message(messages.CopyWanted(self.selected_text))
            self.insert_at_caret("")
        else:
            self.post_message(messages.CancelWanted())

    def on_resize(self) -> None:
        """Keep the terminal's cursor at the caret when the box moves."""
        self.call_after_refresh(self.place_cursor)
