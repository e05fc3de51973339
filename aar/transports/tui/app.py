"""The full screen: which widgets there are, and what their messages do.

The first frame needs only Textual: the parts behind it (settings, model, session) are opened in a thread
while the user already types. No widget touches the store, a provider or the policy: that is `Connection`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.events import Paste
from textual.screen import Screen
from textual.timer import Timer

from aar.transports.tui.activity import ActivityLine
from aar.transports.tui.commanding import CommandController
from aar.transports.tui.footer import FooterBar
from aar.transports.tui.header import HeaderBar
from aar.transports.tui.layout import Look, look_of
from aar.transports.tui.prompt import PromptArea
from aar.transports.tui.prompt.controller import PromptController
from aar.transports.tui.prompt.hint import HintLine
from aar.transports.tui.prompt.messages import (
    CopyWanted,
    EditorWanted,
    FilesDropped,
    HintWanted,
    ModeChanged,
    ShellWanted,
    Submitted,
)
from aar.transports.tui.screen_actions import ScreenActions
from aar.transports.tui.side_panel import SidePanel
from aar.transports.tui.textual_private import feed_typed
from aar.transports.tui.transcript import Transcript
from aar.transports.tui.transcript.controller import TranscriptController

if TYPE_CHECKING:
    from aar.core.agent import RunResult
    from aar.transports.tui.approvals import ApprovalPanel
    from aar.transports.tui.prompt.history_search import HistorySearch
    from aar.transports.tui.prompt.queue_panel import QueuePanel

_FRAME_S = 1 / 30
"""Seconds between two looks at what changed: faster than this nobody sees it."""


class MainScreen(Screen[None]):
    """The screen of the conversation, on which keys go to the prompt.

    By default they would go to the first part that takes any, which would be styled three times at the start.
    """

    AUTO_FOCUS = "PromptArea"


class AarApp(ScreenActions):
    """A session on the whole screen.

    Args:
        options: For `aar.runtime.open_runtime`.
        which: For `Runtime.open_session`: which session to go on with.
        prompt: First prompt, sent when everything is ready.
        look: How the screen is to be, as far as it is known yet.
        user_themes: Folder of the user's themes.
        background: Colour behind the terminal's text, where it told.
        typed: Keys that came in before the screen stood.

    Attributes:
        connection: The session; ``None`` until it was opened.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+p", "show_commands", "commands", priority=True, id="app.show_commands"),
        Binding(
            "f9",
            "read",
            "read",
            show=False,
            priority=True,
            id="app.read",
            tooltip="Go to the transcript and back.",
        ),
        Binding("pageup", "scroll(-1)", "scroll up", show=False, priority=True, id="app.scroll_up"),
        Binding("pagedown", "scroll(1)", "scroll down", show=False, priority=True, id="app.scroll_down"),
    ]

    def __init__(
        self,
        options: Mapping[str, Any] | None = None,
        which: Mapping[str, Any] | None = None,
        prompt: str | None = None,
        *,
        look: Look | None = None,
        user_themes: Path | None = None,
        background: tuple[int, int, int] | None = None,
        typed: bytes = b"",
    ) -> None:
        super().__init__(look, user_themes, background)
        self.options = dict(options or {})
        self._typed = typed
        self._which = dict(which or {})
        self.prompting = PromptController(self)
        self.commanding = CommandController(self, self.options)
        self._first_prompt = prompt
        self.reading = TranscriptController(self, lambda text: self.notify(text, markup=False))
        self._flush_timer: Timer | None = None

    def get_default_screen(self) -> Screen[Any]:
        """Return the screen of the conversation."""
        return MainScreen(id="_default")

    def compose(self) -> ComposeResult:
        """Put the parts of the screen below each other."""
        yield HeaderBar()
        with Horizontal(id="middle"):
            yield Transcript()
            yield SidePanel()
        yield ActivityLine()
        yield from self.prompting.compose()
        yield FooterBar()

    def on_mount(self) -> None:
        """Open the parts once the first frame stands."""
        self.query_one(PromptArea).focus()
        transcript = self.query_one(Transcript)
        self.query_one(PromptArea).selected_elsewhere = lambda: transcript.selected_text
        self.watch_signals()
        feed_typed(self, self._typed)
        self.apply_layout()
        if self._first_prompt:
            self.prompting.submit(Submitted(self._first_prompt))
        self.call_after_refresh(self._open)

    # --- opening and closing -----------------------------------------------------------------------------

    def _open(self) -> None:
        self.run_worker(self._connect(), name="open", exit_on_error=False)

    async def _connect(self) -> None:
        try:
            await self._connect_or_raise()
        except Exception as error:
            self.failure = error
            self.exit(return_code=1)

    async def _connect_or_raise(self) -> None:
        await self.prompting.complete()
        from aar.transports.tui.opening import open_parts

        runtime, session = await open_parts(self, self.options, self._which)
        from aar.runtime.conversation import Conversation
        from aar.transports.tui.connection import Connection

        conversation = Conversation(runtime, session)
        self.connection = Connection(conversation, self._wake, self._ended)
        for text in conversation.runtime.notices:
            conversation.session.append(conversation.runtime.notice(text))
        self.settled(look_of(runtime.config.tui))
        self._wake()
        await self.prompting.connected(self.connection)
        self.commanding.connected(self.connection)

    async def on_unmount(self) -> None:
        """Close the session; nothing that was shown or typed is lost."""
        self.reading.close()
        self.prompting.closed()
        self.give_title_back()
        await self.stop_status_command()
        if self.connection is not None:
            await self.connection.conversation.aclose()

    # --- what changed ------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Look at what changed, but not more often than the screen can show."""
        if self._flush_timer is None and self.is_running:
            self._flush_timer = self.set_timer(_FRAME_S, self._show_changes)

    def _show_changes(self) -> None:
        self._flush_timer = None
        if self.connection is None or not self.screen_stack:
            return
        presenter = self.connection.presenter
        changes = presenter.drain()
        self.prompting.refresh_queue()
        self.screen_stack[0].query_one(Transcript).apply(changes, presenter.blocks)
        if changes.status or changes.reset:
            status = presenter.status
            self.show_surroundings(presenter)
            self.prompting.show_questions(status.pending)
            self.title = status.title or "aar"

    def _ended(self, result: RunResult) -> None:
        self.prompting.ended(result)
        if self.connection is not None:
            self.connection.refresh_place()
        self._wake()

    # --- what the user types -----------------------------------------------------------------------------

    def on_prompt_area_submitted(self, message: Submitted) -> None:
        """Run a command, send a prompt, or let it wait."""
        if not self.commanding.take(message.text):
            self.prompting.submit(message)

    def on_paste(self, event: Paste) -> None:
        """Take what was pasted while a list or question has the keys: into the prompt."""
        if len(self.screen_stack) == 1:
            self.query_one(PromptArea).take_paste(event.text)

    def on_prompt_area_shell_wanted(self, message: ShellWanted) -> None:
        """Run a command of the user's own."""
        self.prompting.run_shell(message.command, private=message.private)

    def on_prompt_area_go_on_wanted(self) -> None:
        """Go on with the queue."""
        self.prompting.go_on()

    def on_prompt_area_take_back_wanted(self) -> None:
        """Take the last queued prompt back."""
        self.prompting.take_back()

    def on_prompt_area_queue_focus_wanted(self) -> None:
        """Go to the queue."""
        self.prompting.focus_queue()

    def on_queue_panel_changed(self, message: QueuePanel.Changed) -> None:
        """Edit, remove or move a queued prompt."""
        self.prompting.change_queue(message)

    def on_queue_panel_left(self) -> None:
        """Go back to the prompt."""
        self.query_one(PromptArea).focus()

    def on_prompt_area_answer_wanted(self) -> None:
        """Go to the open question."""
        self.action_answer()

    def on_prompt_area_history_wanted(self) -> None:
        """Search all prompts."""
        self.prompting.open_history()

    def on_history_search_chosen(self, message: HistorySearch.Chosen) -> None:
        """Take the prompt that was found."""
        self.prompting.history_chosen(message.text)

    def on_prompt_area_draft_changed(self) -> None:
        """Keep what is being typed."""
        self.prompting.draft_changed()

    def on_prompt_area_files_wanted(self) -> None:
        """List the project's files."""
        self.prompting.want_files()

    def on_prompt_area_files_dropped(self, message: FilesDropped) -> None:
        """Take files that were dragged into the terminal."""
        self.prompting.bringing.drop(message)

    def on_prompt_area_editor_wanted(self, message: EditorWanted) -> None:
        """Open the user's editor."""
        self.prompting.bringing.open_editor(message.text)

    def on_prompt_area_clipboard_wanted(self) -> None:
        """Paste from the clipboard."""
        self.prompting.bringing.paste_clipboard()

    def on_prompt_area_copy_wanted(self, message: CopyWanted) -> None:
        """Copy what is selected, and say what came of it."""
        self.run_worker(self.reading.copy(message.text), group="copy")

    def on_prompt_area_hint_wanted(self, message: HintWanted) -> None:
        """Say something below the prompt."""
        self.query_one(HintLine).tell(message.text)

    def on_prompt_area_mode_changed(self, message: ModeChanged) -> None:
        """Show vim's mode."""
        self.query_one(FooterBar).set_mode(message.mode)

    def on_prompt_area_quit_wanted(self) -> None:
        """Leave, after asking if something runs."""
        self.prompting.quit()

    def on_prompt_area_stop_wanted(self) -> None:
        """End what runs; a second time within a moment leave."""
        self.prompting.stop_or_quit()

    def action_help_quit(self) -> None:
        """Do what Ctrl+C does in an empty prompt, where nothing else has that key."""
        if len(self.screen_stack) == 1:
            self.prompting.stop_or_quit()

    def on_prompt_area_cancel_wanted(self) -> None:
        """End the run and clear the queue, after asking."""
        self.prompting.cancel_all()

    def on_hint_line_settled(self, message: HintLine.Settled) -> None:
        """Do what was asked about."""
        self.prompting.settle(message.name, message.yes)

    def action_show_commands(self) -> None:
        """Show all commands."""
        if len(self.screen_stack) > 1:
            raise SkipAction
        self.commanding.open_palette()

    # --- questions ---------------------------------------------------------------------------------------

    def on_approval_panel_answered(self, message: ApprovalPanel.Answered) -> None:
        """Give an answer to the call that waits for it."""
        self.prompting.answer(message)

    def on_approval_panel_left(self) -> None:
        """Go back to the prompt."""
        self.query_one(PromptArea).focus()

    def action_answer(self) -> None:
        """Go to the open question."""
        self.prompting.focus_question()

    async def on_transcript_copy_wanted(self, message: Transcript.CopyWanted) -> None:
        """Copy a block, its code or what is selected."""
        self.run_worker(self.reading.copy(message.text), group="copy")

    def on_transcript_link_opened(self, message: Transcript.LinkOpened) -> None:
        """Open a file or an address."""
        self.run_worker(self.reading.open_link(message), group="link")

    def on_transcript_older_wanted(self) -> None:
        """Load what is before."""
        self.run_worker(self.reading.load_older(self._wake), group="older")

    def on_transcript_left(self) -> None:
        """Go back to the prompt."""
        self.query_one(PromptArea).focus()

    def action_read(self) -> None:
        """Go to the transcript, from there to the prompt."""
        transcript = self.query_one(Transcript)
        # At once, not by `focus`: keys that were typed behind this one are for the one that gets it.
        self.screen.set_focus(self.query_one(PromptArea) if transcript.has_focus else transcript)

    def action_scroll(self, step: int) -> None:
        """Scroll the transcript while the user types."""
        if not isinstance(self.focused, PromptArea):
            raise SkipAction
        self.query_one(Transcript).action_page(step)

    def action_interrupt(self) -> None:
        """End what runs; a second time within a moment offers to go back."""
        if self.prompting.escape():
            self.offer_rewind()

    def action_voice(self) -> None:
        """Dictate into the prompt, or end that."""
        self.commanding.run("/voice")

    def action_to_background(self) -> None:
        """Let the running command go on in the background."""
        self.prompting.send_back()

    def offer_rewind(self) -> None:
        """Offer to go back to an earlier prompt."""
        if self.commanding.ready:
            self.commanding.run("/rewind")
