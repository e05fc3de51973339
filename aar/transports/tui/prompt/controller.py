"""What happens with what the user types: the one place that knows prompt, queue, questions and session.

The app hands every message of these widgets over. Whatever fails leaves the text where it was, or puts it
back into the prompt.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from textual.app import ComposeResult

from aar.transports.tui.prompt.area import PromptArea
from aar.transports.tui.prompt.bringing import STARTING, Bringing
from aar.transports.tui.prompt.chips import Chips
from aar.transports.tui.prompt.hint import HintLine
from aar.transports.tui.prompt.keeping import Keeper
from aar.transports.tui.prompt.messages import Submitted
from aar.transports.tui.prompt.shell import ShellRunner
from aar.transports.tui.textual_private import teach_alt_enter

if TYPE_CHECKING:
    from textual.app import App

    from aar.core.agent import RunResult
    from aar.protocol.events import ApprovalRequest
    from aar.runtime.conversation import Conversation
    from aar.transports.tui.approvals import ApprovalPanel
    from aar.transports.tui.connection import Connection
    from aar.transports.tui.prompt.panels import Panels
    from aar.transports.tui.prompt.queue_panel import QueuePanel

REWIND_S = 0.6
"""Seconds within which a second Esc offers to go back."""
QUIT_S = 2.0
"""Seconds within which a second Ctrl+C leaves."""
_SETTLED_S = 0.05


class PromptController:
    """Connects the prompt and what is around it with the open session.

    Args:
        app: The screen.

    Attributes:
        area: The box.
        hint: The line below it.
        panels: What stands above it at times; ``None`` until `complete`.
        bringing: Takes what comes from elsewhere.
    """

    def __init__(self, app: App[int]) -> None:
        teach_alt_enter()
        self._app = app
        self.area = PromptArea()
        self.hint = HintLine()
        self.panels: Panels | None = None
        self._connection: Connection | None = None
        self._waiting: list[Submitted] = []
        self._keeper = Keeper(app, self._draft, self.hint.tell)
        self._shell = ShellRunner(self.hint.tell)
        self.bringing = Bringing(app, self.area, self.hint.tell, lambda: self.conversation)
        self._escaped_at = self._stopped_at = float("-inf")
        self._queued: tuple[list[str], list[str]] = ([], [])
        self._closed = False

    # --- parts -----------------------------------------------------------------------------------------

    @property
    def conversation(self) -> Conversation | None:
        """The open session with its agent; ``None`` until it was opened."""
        return self._connection.conversation if self._connection is not None else None

    def compose(self) -> ComposeResult:
        """Put the parts of the first frame below each other."""
        yield self.area
        yield self.hint

    async def complete(self) -> None:
        """Add the parts that the first frame does not need."""
        from aar.transports.tui.prompt.panels import Panels

        panels = Panels(self.area, self._may_take_focus)
        await self.area.screen.mount_all(panels, before=self.area)
        self.panels = panels

    def _may_take_focus(self) -> bool:
        """Tell whether a question may take the keys: only from the prompt, and under no other screen."""
        return self._app.screen is self.area.screen and self._app.focused in (self.area, None)

    async def connected(self, connection: Connection) -> None:
        """Take the open session: vim keys, earlier prompts, the draft, and what was sent meanwhile."""
        self._connection = connection
        runtime = connection.conversation.runtime
        self.area.use_vim(runtime.config.tui.vim)
        if runtime.config.voice.speak:
            connection.conversation.voice.reads_answers = True
        if entries := await self._keeper.open(runtime):
            self.area.recall.set(entries)
        draft = await self._keeper.left()
        if draft is not None and isinstance(draft.get("text"), str):
            self.area.put_back(draft["text"], Chips.load(draft.get("chips")))
            self.hint.tell("What you were typing is back.")
        waiting, self._waiting = self._waiting, []
        for message in waiting:
            self.submit(message)

    def closed(self) -> None:
        """Keep what was typed and not heard, queued prompts as well; the screen ends."""
        self._closed = True
        self._shell.cancel()
        self._keeper.close(self._draft())

    # --- sending ---------------------------------------------------------------------------------------

    def submit(self, message: Submitted) -> None:
        """Send a prompt, steer the run under way, or let it wait; a prompt that is too long comes back."""
        conversation = self.conversation
        if conversation is None:
            self._waiting.append(message)
            return
        from aar.transports.tui.prompt.content import content_of

        limit = conversation.runtime.config.context.max_prompt_chars
        if len(message.text) > limit:
            self.area.put_back(message.typed or message.text)
            self.hint.tell(
                f"The prompt has {len(message.text):,} characters; [context] max_prompt_chars is {limit:,}."
            )
            return
        self.remember(message.typed or message.text)
        content = content_of(message.text, message.images)
        if message.how == "queue":
            conversation.enqueue(content)
        else:
            conversation.submit(content)
        self.refresh_queue()

    def remember(self, typed: str) -> None:
        """Keep a prompt in the history, and forget the draft."""
        self._keeper.remember(typed)

    def ended(self, result: RunResult) -> None:
        """After a run that did not end well, put words that it did not hear back into the prompt."""
        conversation = self.conversation
        if conversation is None or self._closed:
            return
        # The conversation counts as running until its handlers were called.
        self._app.set_timer(_SETTLED_S, self.refresh_queue)
        if result.exit_code == 0:
            return
        from aar.transports.tui.prompt.content import chips_of, text_of

        for prompt in reversed(conversation.agent.queue.take_steering()):
            self.area.put_back(text_of(prompt), chips_of(prompt))
            self.hint.tell("It ended before it heard this; your words are back.")
        self.refresh_queue()

    # --- the queue -------------------------------------------------------------------------------------

    def refresh_queue(self) -> None:
        """Show what waits."""
        conversation = self.conversation
        if conversation is None or self.panels is None or self._closed:
            return
        from aar.transports.tui.prompt.content import text_of

        queue = conversation.agent.queue
        queued = ([*map(text_of, queue.steering)], [*map(text_of, queue.prompts)])
        if queued != self._queued:
            self._queued = queued
            self.draft_changed()
        self.panels.queue.show(*queued, running=conversation.running)

    def change_queue(self, message: QueuePanel.Changed) -> None:
        """Edit, remove or move a waiting prompt."""
        self._change(message.place, message.what, message.step)

    def _change(self, place: int, what: str, step: int = 0) -> None:
        conversation = self.conversation
        if conversation is None:
            return
        from aar.transports.tui.prompt.content import chips_of, text_of

        queue = conversation.agent.queue
        prompts = list(queue.prompts)
        if place >= len(prompts):
            self.refresh_queue()
            return
        prompt = prompts.pop(place)
        if what == "shift":
            prompts.insert(place + step, prompt)
        queue.replace(prompts)
        if what == "edit":
            self.area.put_back(text_of(prompt), chips_of(prompt))
            self.area.focus()
        elif what == "remove":
            self.hint.tell("Removed from the queue; Ctrl+R finds it again.")
        self.refresh_queue()

    def take_back(self) -> None:
        """Take the last waiting prompt into the box; without one, the last prompt of the history."""
        conversation = self.conversation
        waiting = len(conversation.agent.queue.prompts) if conversation is not None else 0
        if waiting:
            self._change(waiting - 1, "edit")
        else:
            self.area.recall_older()

    def go_on(self) -> None:
        """Start the next waiting prompt, after a run that was interrupted."""
        if self.conversation is not None:
            self.conversation.go_on()
            self.refresh_queue()

    def focus_queue(self) -> None:
        """Give the queue the keys."""
        if self.panels is not None and self.panels.queue.can_edit:
            self.panels.queue.focus()
        else:
            self.hint.tell("Nothing is queued; Alt+Enter queues a prompt.")

    # --- stopping --------------------------------------------------------------------------------------

    def escape(self) -> bool:
        """Interrupt what runs; return whether this was the second Esc, which offers to go back."""
        now = time.monotonic()
        second, self._escaped_at = now - self._escaped_at <= REWIND_S, now
        if self.conversation is not None and self.conversation.stop_voice():
            self._escaped_at = float("-inf")
            return False
        self._interrupt()
        if second:
            self._escaped_at = float("-inf")
        return second

    @property
    def _working(self) -> bool:
        return self._shell.running or (self.conversation is not None and self.conversation.running)

    def _interrupt(self) -> None:
        if self._shell.running:
            self._shell.cancel()
        elif self.conversation is not None and self.conversation.running:
            self.conversation.interrupt()

    def stop_or_quit(self) -> None:
        """Interrupt what runs; a second time within a moment leave."""
        now = time.monotonic()
        second, self._stopped_at = now - self._stopped_at <= QUIT_S, now
        if second:
            self.quit()
        else:
            self._interrupt()
            self.hint.tell("Ctrl+C again quits.")

    def send_back(self) -> None:
        """Let the commands of the agent go on in the background."""
        if self._connection is not None and self._connection.send_back():
            return
        own = " Esc ends yours." if self._shell.running else ""
        self.hint.tell(f"No command of the agent runs that could go to the background.{own}")

    def cancel_all(self) -> None:
        """Ask, then end the run and clear the queue."""
        conversation = self.conversation
        if conversation is None:
            return
        queue = conversation.agent.queue
        waiting = len(queue.prompts) + len(queue.steering)
        running = conversation.running or self._shell.running
        if waiting and running:
            self.hint.ask("cancel", f"End the run and clear {_prompts(waiting)}?")
        elif running or waiting:
            self.hint.ask("cancel", "End the run?" if running else f"Clear {_prompts(waiting)}?")
        else:
            self.hint.tell("Nothing runs and nothing is queued.")

    def quit(self) -> None:
        """Leave; ask first when something runs."""
        if self._working:
            self.hint.ask("quit", "Something still runs. Quit all the same?")
        else:
            self._app.exit(0)

    def settle(self, name: str, yes: bool) -> None:
        """Do what was asked about."""
        self.area.focus()
        if not yes:
            return
        if name == "quit":
            self._app.exit(0)
        elif name == "cancel" and self.conversation is not None:
            queue = self.conversation.agent.queue
            for prompt in (*queue.take_steering(), *queue.prompts):
                self._remember_prompt(prompt)
            queue.replace(())
            self.conversation.interrupt()
            self._shell.cancel()
            self.refresh_queue()

    def _remember_prompt(self, prompt: Any) -> None:
        """Keep what is dropped where Ctrl+R and Up find it."""
        from aar.transports.tui.prompt.content import text_of

        self.area.recall.add(text_of(prompt))

    # --- history and draft -----------------------------------------------------------------------------

    def open_history(self) -> None:
        """Search the prompts of all sessions."""
        self._app.run_worker(self._open_history(), exit_on_error=False)

    async def _open_history(self) -> None:
        if self.panels is None:
            self.hint.tell(STARTING)
            return
        entries = await self._keeper.entries()
        query = self.area.text if len(self.area.text.split()) <= 3 else ""
        self.panels.search.open(entries, query.strip())

    def history_chosen(self, text: str | None) -> None:
        """Put the prompt that was found into the box."""
        self.area.focus()
        if text is not None:
            self.area.set_text(text)

    def draft_changed(self) -> None:
        """Write the draft soon, at most once a second."""
        self._keeper.draft_changed()

    def _draft(self) -> dict[str, Any]:
        """Return the draft; what waits stands before it."""
        text, chips = self.area.text, self.area.chips.used(self.area.text)
        conversation = self.conversation
        if conversation is not None:
            from aar.transports.tui.prompt.content import chips_of, text_of

            waiting = (*conversation.agent.queue.steering, *conversation.agent.queue.prompts)
            text = "\n\n".join(part for part in (*map(text_of, waiting), text) if part.strip())
            for prompt in waiting:
                chips.by_label.update(chips_of(prompt).by_label)
        return {"text": text, "chips": chips.dump()} if text.strip() else {}

    # --- files -----------------------------------------------------------------------------------------

    def want_files(self) -> None:
        """List the project's files for completion."""
        if self.conversation is not None:
            self._app.run_worker(self._list_files(self.conversation), exit_on_error=False)

    async def _list_files(self, conversation: Conversation) -> None:
        runtime = conversation.runtime
        self.area.set_files(await runtime.survey(), runtime.servers.resources())

    # --- the user's commands ---------------------------------------------------------------------------

    def run_shell(self, command: str, *, private: bool) -> None:
        """Run a command that the user typed."""
        typed = ("!!" if private else "!") + command
        if self._connection is None or self._shell.running:
            self.area.put_back(typed)
            self.hint.tell(
                "Another command still runs; Esc ends it." if self._shell.running else "One moment …"
            )
            return
        self.remember(typed)
        self._shell.start(self._connection, command, private=private)

    # --- questions -------------------------------------------------------------------------------------

    def show_questions(self, requests: Sequence[ApprovalRequest]) -> None:
        """Show the open questions, oldest first."""
        if self.panels is not None:
            self.panels.questions.show(requests)

    def focus_question(self) -> None:
        """Give an open question the keys."""
        if self.panels is not None and self.panels.questions.display:
            self.panels.questions.focus()

    def answer(self, message: ApprovalPanel.Answered) -> None:
        """Give an answer to the call that waits for it; tell there what is wrong with it."""
        if self.conversation is None or self.panels is None:
            return
        from aar.protocol.errors import AarError

        try:
            self.conversation.answer(message.request_id, message.decision, **message.details)
        except AarError as error:
            self.panels.questions.show_error(message.request_id, str(error))


def _prompts(count: int) -> str:
    return "one queued prompt" if count == 1 else f"{count} queued prompts"
