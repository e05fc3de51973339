"""The full screen: which widgets there are, and what their messages do.

The first frame needs only Textual: the parts behind it (settings, model, session) are opened in a thread
while the user already types. No widget touches the store, a provider or the policy: that is `Connection`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.timer import Timer

from aar.transports.tui.activity import ActivityLine
from aar.transports.tui.approvals import ApprovalPanel
from aar.transports.tui.header import HeaderBar
from aar.transports.tui.prompt import PromptArea
from aar.transports.tui.transcript import Transcript

if TYPE_CHECKING:
    from aar.core.agent import RunResult
    from aar.transports.tui.connection import Connection

_FRAME_S = 1 / 30
"""Seconds between two looks at what changed: faster than this nobody sees it."""


class AarApp(App[int]):
    """A session on the whole screen.

    Args:
        options: For `aar.runtime.open_runtime`.
        which: For `Runtime.open_session`: which session to go on with.
        prompt: First prompt, sent when everything is ready.

    Attributes:
        connection: The session; ``None`` until it was opened.
        failure: Why it could not be opened, for the command line to tell.
    """

    TITLE = "aar"
    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = "aar.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "quit"),
        Binding("escape", "interrupt", "interrupt", show=False),
        Binding("tab", "answer", "answer", show=False, priority=False),
    ]

    def __init__(
        self,
        options: Mapping[str, Any] | None = None,
        which: Mapping[str, Any] | None = None,
        prompt: str | None = None,
    ) -> None:
        super().__init__()
        self.connection: Connection | None = None
        self.failure: BaseException | None = None
        self._options = dict(options or {})
        self._which = dict(which or {})
        self._waiting: list[str] = [prompt] if prompt else []
        self._flush_timer: Timer | None = None

    def compose(self) -> ComposeResult:
        """Put the parts of the screen below each other."""
        yield HeaderBar()
        with Horizontal(id="middle"):
            yield Transcript()
        yield ActivityLine()
        yield ApprovalPanel()
        yield PromptArea()

    def on_mount(self) -> None:
        """Open the parts once the first frame stands."""
        self.query_one(PromptArea).focus()
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
        opened = await asyncio.to_thread(_open_in_thread, self._options, self._which)
        from aar.runtime.conversation import Conversation
        from aar.transports.tui.connection import Connection

        conversation = Conversation(*opened)
        self.connection = Connection(conversation, self._wake, self._ended)
        for text in conversation.runtime.notices:
            conversation.session.append(conversation.runtime.notice(text))
        self._wake()
        for prompt in self._waiting:
            conversation.submit(prompt)
        self._waiting.clear()

    async def on_unmount(self) -> None:
        """Close the session; nothing that was shown is lost."""
        if self.connection is not None:
            await self.connection.conversation.aclose()

    # --- what changed ------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Look at what changed, but not more often than the screen can show."""
        if self._flush_timer is None and self.is_running:
            self._flush_timer = self.set_timer(_FRAME_S, self._show_changes)

    def _show_changes(self) -> None:
        self._flush_timer = None
        if self.connection is None:
            return
        presenter = self.connection.presenter
        changes = presenter.drain()
        self.query_one(Transcript).apply(changes, presenter.blocks)
        if changes.status or changes.reset:
            status = presenter.status
            self.query_one(HeaderBar).show(status)
            self.query_one(ActivityLine).show(status)
            self.query_one(ApprovalPanel).show(status.pending)
            self.title = status.title or "aar"

    def _ended(self, result: RunResult) -> None:
        self._wake()

    # --- what the user does ------------------------------------------------------------------------------

    def on_prompt_area_submitted(self, message: PromptArea.Submitted) -> None:
        """Send a prompt, or let it wait."""
        if self.connection is None:
            self._waiting.append(message.text)
            return
        if message.how == "queue":
            self.connection.conversation.enqueue(message.text)
        else:
            self.connection.conversation.submit(message.text)

    def on_approval_panel_answered(self, message: ApprovalPanel.Answered) -> None:
        """Give an answer to the call that waits for it."""
        if self.connection is not None:
            self.connection.conversation.answer(message.request_id, message.decision, **message.details)

    def on_approval_panel_left(self) -> None:
        """Go back to the prompt when no question is open."""
        self.query_one(PromptArea).focus()

    def action_answer(self) -> None:
        """Go to the open question."""
        panel = self.query_one(ApprovalPanel)
        if panel.display:
            panel.focus()

    def action_interrupt(self) -> None:
        """End the present run."""
        if self.connection is not None:
            self.connection.conversation.interrupt()


def _open_in_thread(options: Mapping[str, Any], which: Mapping[str, Any]) -> tuple[Any, Any]:
    # Imported here, in the thread, so that the screen answers keys meanwhile.
    from aar.transports.tui.connection import open_parts

    return open_parts(options, which)
