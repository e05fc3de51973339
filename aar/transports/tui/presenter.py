"""Folds events into the view state of a screen: blocks for the transcript, a `Status` for what is around it.

Pure: no terminal, no clock of its own, no store. The same presenter serves live events and stored ones. A
door calls `take` with each event and, a few times a second, `drain`, which tells what has to be drawn again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from aar.protocol.events import (
    Approval,
    ApprovalRequest,
    AssistantMessage,
    CheckpointEvent,
    Compaction,
    ContextEvent,
    ErrorEvent,
    Event,
    ModelSwitch,
    Notice,
    PlanEvent,
    ProviderMeta,
    Reasoning,
    Retry,
    Rewind,
    SessionEvent,
    Setting,
    StateEvent,
    StreamChunk,
    Subagent,
    ToolCall,
    ToolProgress,
    ToolResult,
    UserMessage,
)
from aar.protocol.messages import ImageBlock, ResourceBlock, TextBlock
from aar.protocol.panel import Panel
from aar.protocol.state import AgentState
from aar.transports.tui.advice import advice_for, ending, way_back
from aar.transports.tui.answer_stream import AnswerStream
from aar.transports.tui.blocks import (
    AnyBlock,
    ErrorBlock,
    MarkKind,
    NoticeBlock,
    PlanBlock,
    SubagentBlock,
    ThinkingBlock,
    UserBlock,
)
from aar.transports.tui.other_agents import OtherAgents
from aar.transports.tui.own_commands import OwnCommands
from aar.transports.tui.tool_calls import ToolCalls
from aar.transports.tui.view_state import Changes, ViewState

__all__ = ["Changes", "Presenter"]

_MAIN = "main"
_QUIET_CONTEXT = frozenset({"nudge", "notes", "diagnostics"})
_PASSING = "provider_progress"


class Presenter:
    """View state of one session.

    Args:
        clock: Monotonic seconds.
        live: Whether durations can be measured; false while stored events are taken.

    Attributes:
        blocks: The transcript, oldest first.
        status: What is around it.
        own_commands: What the user runs with ``!``.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, live: bool = True) -> None:
        self._view = ViewState(clock)
        self.blocks = self._view.blocks
        self.status = self._view.status
        self.live = live
        self._stream = AnswerStream(self._view)
        self._calls = ToolCalls(self._view, self._stream)
        self._agents = OtherAgents(self._view)
        self.own_commands = OwnCommands(self._view)
        self._plan: PlanBlock | None = None
        self._handlers: dict[type[Event], Callable[..., None]] = {
            SessionEvent: self._session,
            Setting: self._setting,
            UserMessage: self._user,
            ContextEvent: self._context,
            StreamChunk: self._stream.chunk,
            Reasoning: self._stream.reasoning,
            AssistantMessage: self._stream.answer,
            ToolCall: self._calls.call,
            ProviderMeta: self._meta,
            ApprovalRequest: self._calls.asked,
            Approval: self._calls.answered,
            ToolProgress: self._calls.progress,
            ToolResult: self._result,
            Retry: self._retry,
            ModelSwitch: self._switch,
            Compaction: self._compaction,
            CheckpointEvent: self._checkpoint,
            Rewind: self._rewind,
            PlanEvent: self._plan_changed,
            Subagent: self._agents.told,
            StateEvent: self._state,
            Notice: self._notice,
            ErrorEvent: self._error,
        }

    # --- in and out --------------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        """Fold one event. Events of a type that is not known are skipped."""
        if event.seq is not None:
            self.status.last_seq = max(self.status.last_seq, event.seq)
        if event.agent_id != _MAIN and not isinstance(event, Subagent | ApprovalRequest | Approval):
            self._agents.take(event)
            return
        handler = self._handlers.get(type(event)) or self._handler_of_subclass(event)
        if handler is not None:
            handler(event)

    def _handler_of_subclass(self, event: Event) -> Callable[..., None] | None:
        return next((self._handlers[kind] for kind in type(event).__mro__ if kind in self._handlers), None)

    def load(self, events: Iterable[Event]) -> None:
        """Fold stored events, the end of a session in which nothing runs, into an empty presenter."""
        live, self.live = self.live, False
        for event in events:
            self.take(event)
        # The end of the last run may lie in what a rewind hides.
        self._settle()
        self.live = live
        self._view.changes = Changes(reset=True, status=True)

    def prepend(self, events: Iterable[Event]) -> list[AnyBlock]:
        """Put the blocks of older ``events`` before the present ones, and return them.

        ``events`` begins at a user message (so that no call is cut from its result).
        """
        page = Presenter(clock=self._view.clock, live=False)
        for event in events:
            page.take(event)
        older = [block for block in page.blocks if not block.live]
        first = self.blocks[0].key if self.blocks else 1
        for place, block in enumerate(older):
            block.key = first - len(older) + place
        for path, change in page.status.files.items():
            self._view.add_change(path, change.action, change.added, change.removed)
        self.blocks[:0] = older
        self._view.changes.status = True
        return older

    def drain(self) -> Changes:
        """Return what changed since the last call."""
        return self._view.drain()

    def find(self, key: int) -> AnyBlock | None:
        """Return the block with ``key``."""
        return next((block for block in reversed(self.blocks) if block.key == key), None)

    @property
    def agents(self) -> list[SubagentBlock]:
        """Other agents that are at work."""
        return self._agents.at_work()

    def thinking(self) -> str:
        """Return what the model thought last; empty when that is long ago."""
        recent = (block for block in reversed(self.blocks[-40:]) if isinstance(block, ThinkingBlock))
        return next((block.text for block in recent), "")

    def troubles(self, count: int) -> list[NoticeBlock | ErrorBlock]:
        """Return the last notices and errors, oldest first."""
        recent = [block for block in self.blocks[-200:] if isinstance(block, NoticeBlock | ErrorBlock)]
        return recent[-count:]

    def prompts(self) -> list[UserBlock]:
        """Return what the user said, oldest first."""
        return [block for block in self.blocks if isinstance(block, UserBlock)]

    def set_panels(self, panels: tuple[Panel, ...]) -> None:
        """Show these panels of extensions."""
        if panels != self.status.panels:
            self.status.panels = panels
            self._view.changes.status = True

    def add_local_notice(self, message: str, level: str = "info") -> None:
        """Show the answer of a command of this screen, which is no event; the same once more is counted."""
        last = self.blocks[-1] if self.blocks else None
        if isinstance(last, NoticeBlock) and last.message == message:
            last.count += 1
            self._view.touch(last)
            return
        self._view.append(
            NoticeBlock(self._view.key(), level="error" if level == "error" else "info", message=message)
        )

    # --- what was said -----------------------------------------------------------------------------------

    def _session(self, event: SessionEvent) -> None:
        if event.title:
            self.status.title = event.title
        if event.model:
            self.status.model = event.model
        if event.action == "resume":
            self._view.mark(event, "session", "Session resumed")
        elif event.action == "fork" and event.forked_from is not None:
            self._view.mark(event, "session", f"Copy of session {event.forked_from.session_id}")
        self._view.changes.status = True

    def _setting(self, event: Setting) -> None:
        if event.key == "mode":
            self.status.mode = str(event.to)
        elif event.key == "model":
            self.status.model = str(event.to)
        kind: MarkKind = "mode" if event.key == "mode" else "model"
        self._view.mark(event, kind, f"{event.key.capitalize()}: {event.to}")
        self._view.changes.status = True

    def _user(self, event: UserMessage) -> None:
        texts = [block.text for block in event.content if isinstance(block, TextBlock)]
        attachments = tuple(
            block.name or "image" if isinstance(block, ImageBlock) else block.uri
            for block in event.content
            if isinstance(block, ImageBlock | ResourceBlock)
        )
        self._view.append(
            UserBlock(
                self._view.key(),
                event.seq,
                text="\n".join(texts),
                attachments=attachments,
                source=event.source,
            )
        )
        if not self.status.title:
            self.status.title = texts[0].strip().partition("\n")[0][:80] if texts else ""
            self._view.changes.status = True

    def _context(self, event: ContextEvent) -> None:
        if event.source in _QUIET_CONTEXT:
            return
        if event.source == "shell":
            texts = [block.text for block in event.content if isinstance(block, TextBlock)]
            self.own_commands.stored(event, "\n".join(texts))
            return
        text = "\n".join(block.text for block in event.content if isinstance(block, TextBlock))
        self._view.mark(event, "context", event.label or event.source, text)

    def _meta(self, event: ProviderMeta) -> None:
        self._stream.drop()
        status, usage = self.status, event.usage
        status.context_tokens = usage.total
        status.run_tokens += usage.total
        status.step = event.step
        self._view.add_cost(usage.total, event.cost_usd)
        self._view.do("Working")

    # --- tools -------------------------------------------------------------------------------------------

    def _result(self, event: ToolResult) -> None:
        self._calls.result(event)
        if event.would_allow and self.live:
            self._offer_hosts(event.would_allow)

    def _offer_hosts(self, rules: Iterable[str]) -> None:
        """Say how commands may reach the hosts that the wall blocked."""
        commands = " and ".join(f"/sandbox allow {rule}" for rule in dict.fromkeys(rules))
        message = f"The wall blocked the network. {commands} opens it until aar ends."
        self._view.append(
            NoticeBlock(self._view.key(), level="warning", message=message, code="blocked_host")
        )

    # --- what happens to the session -------------------------------------------------------------------

    def _retry(self, event: Retry) -> None:
        if event.discard:
            self._stream.drop()
        seconds = f" in {event.delay_s:.0f} s" if event.delay_s >= 1 else ""
        self._view.mark(
            event, "retry", f"Attempt {event.attempt} failed; trying again{seconds}", event.message
        )
        self._view.do(f"Trying again{seconds}")

    def _switch(self, event: ModelSwitch) -> None:
        if event.discard:
            self._stream.drop()
        self.status.model = event.to_model
        self._view.mark(event, "model", f"{event.to_model} goes on", event.reason)
        self._view.changes.status = True

    def _compaction(self, event: Compaction) -> None:
        label = f"Compacted: {event.tokens_before:,} → {event.tokens_after:,} tokens"
        self.status.context_tokens = event.tokens_after
        self._view.mark(event, "compaction", label, event.summary)
        self._view.changes.status = True

    def _checkpoint(self, event: CheckpointEvent) -> None:
        if event.kind == "auto":
            return
        files = f" ({len(event.paths)} files)" if event.paths else ""
        names = {"manual": "Checkpoint", "undo": "Undone", "redo": "Done again"}
        self._view.mark(event, "checkpoint", names[event.kind] + files, "\n".join(event.paths))

    def _rewind(self, event: Rewind) -> None:
        if event.scope != "files":
            place = len(self.blocks)
            while place > 0 and (self.blocks[place - 1].seq or event.to_seq + 1) > event.to_seq:
                place -= 1
            self._view.remove(self.blocks[place:])
        self._view.mark(event, "rewind", way_back(event.scope))

    def _plan_changed(self, event: PlanEvent) -> None:
        self.status.plan = event.items
        if self._plan is None:
            self._plan = PlanBlock(self._view.key(), event.seq, live=True)
            self._view.append(self._plan)
        self._plan.items, self._plan.seq = event.items, event.seq
        self._view.touch(self._plan)
        self._view.changes.status = True

    def _state(self, event: StateEvent) -> None:
        status = self.status
        before, status.state, status.stop_reason = status.state, event.state, event.stop_reason
        if event.stop_reason is not None:
            self._ended(event)
        elif event.state is AgentState.IDLE:
            # What was no run is over: summing up on request.
            self._settle()
        else:
            if status.run_since is None:
                status.run_since, status.run_tokens = self._view.clock(), 0
                self._view.do("Working")
            if event.state is not before and event.state is AgentState.COMPACTING:
                self._view.do("Compacting the conversation")
        self._view.changes.status = True

    def _ended(self, event: StateEvent) -> None:
        self._settle()
        if event.stop_reason not in {"end_turn", "verified", "error"}:
            self._view.mark(event, "end", ending(str(event.stop_reason)))

    def _settle(self) -> None:
        """Show that nothing runs."""
        status = self.status
        self._stream.drop()
        self._calls.clear()
        status.pending.clear()
        status.run_since, status.activity, status.step = None, "", None
        if self._plan is not None:
            self._plan.live = False
            self._plan = None

    def _notice(self, event: Notice) -> None:
        if event.code == _PASSING:
            self._view.do(event.message)
            return
        last = self.blocks[-1] if self.blocks else None
        if isinstance(last, NoticeBlock) and last.message == event.message:
            last.count += 1
            self._view.touch(last)
            return
        self._view.append(
            NoticeBlock(
                self._view.key(), event.seq, level=event.level, message=event.message, code=event.code
            )
        )

    def _error(self, event: ErrorEvent) -> None:
        self._view.append(
            ErrorBlock(
                self._view.key(),
                event.seq,
                kind=str(event.kind),
                message=event.message,
                advice=advice_for(str(event.kind)),
            )
        )
