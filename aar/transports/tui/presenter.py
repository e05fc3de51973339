"""Folds events into the view state of a screen: blocks for the transcript, a `Status` for what is around it.

Pure: no terminal, no clock of its own, no store. The same presenter serves live events and stored ones. A
door calls `take` with each event and, a few times a second, `drain`, which tells what has to be drawn again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

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
from aar.transports.tui.advice import advice_for
from aar.transports.tui.blocks import (
    AnswerBlock,
    AnyBlock,
    ErrorBlock,
    MarkBlock,
    MarkKind,
    NoticeBlock,
    PlanBlock,
    SubagentBlock,
    ThinkingBlock,
    ToolBlock,
    ToolStatus,
    UserBlock,
)
from aar.transports.tui.status import ChangedFile, Status

_MAIN = "main"
_QUIET_CONTEXT = frozenset({"nudge", "notes", "diagnostics"})
_PASSING = "provider_progress"
_Streamed = TypeVar("_Streamed", AnswerBlock, ThinkingBlock)
_Kind = TypeVar("_Kind", AnswerBlock, ThinkingBlock, ToolBlock)


@dataclass(slots=True)
class Changes:
    """What has to be drawn again.

    Attributes:
        appended: Blocks that were added at the end, in order.
        changed: Keys of blocks that changed.
        removed: Keys of blocks that are gone.
        reset: Whether all blocks are others than before.
        status: Whether the `Status` changed.
    """

    appended: list[AnyBlock] = field(default_factory=list[AnyBlock])
    changed: set[int] = field(default_factory=set[int])
    removed: set[int] = field(default_factory=set[int])
    reset: bool = False
    status: bool = False

    def __bool__(self) -> bool:
        return bool(self.appended or self.changed or self.removed or self.reset or self.status)


class Presenter:
    """View state of one session.

    Args:
        clock: Monotonic seconds.
        live: Whether durations can be measured; false while stored events are taken.

    Attributes:
        blocks: The transcript, oldest first.
        status: What is around it.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, live: bool = True) -> None:
        self.blocks: list[AnyBlock] = []
        self.status = Status()
        self.live = live
        self._clock = clock
        self._last_key = 0
        self._changes = Changes()
        self._streaming: list[AnyBlock] = []
        self._calls: dict[str, ToolBlock] = {}
        self._agents: dict[str, SubagentBlock] = {}
        self._plan: PlanBlock | None = None
        self._thinking_since: float | None = None
        self._handlers: dict[type[Event], Callable[..., None]] = {
            SessionEvent: self._session,
            Setting: self._setting,
            UserMessage: self._user,
            ContextEvent: self._context,
            StreamChunk: self._chunk,
            Reasoning: self._reasoning,
            AssistantMessage: self._answer,
            ToolCall: self._call,
            ProviderMeta: self._meta,
            ApprovalRequest: self._asked,
            Approval: self._answered,
            ToolProgress: self._progress,
            ToolResult: self._result,
            Retry: self._retry,
            ModelSwitch: self._switch,
            Compaction: self._compaction,
            CheckpointEvent: self._checkpoint,
            Rewind: self._rewind,
            PlanEvent: self._plan_changed,
            Subagent: self._subagent,
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
            self._of_other_agent(event)
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
        self._changes = Changes(reset=True, status=True)

    def prepend(self, events: Iterable[Event]) -> list[AnyBlock]:
        """Put the blocks of older ``events`` before the present ones, and return them.

        ``events`` begins at a user message (so that no call is cut from its result).
        """
        page = Presenter(clock=self._clock, live=False)
        for event in events:
            page.take(event)
        older = [block for block in page.blocks if not block.live]
        first = self.blocks[0].key if self.blocks else 1
        for place, block in enumerate(older):
            block.key = first - len(older) + place
        for path, change in page.status.files.items():
            self._add_change(path, change.action, change.added, change.removed)
        self.blocks[:0] = older
        self._changes.status = True
        return older

    def drain(self) -> Changes:
        """Return what changed since the last call."""
        changes, self._changes = self._changes, Changes()
        new = {block.key for block in changes.appended}
        changes.changed -= new | changes.removed
        changes.appended = [block for block in changes.appended if block.key not in changes.removed]
        return changes

    def find(self, key: int) -> AnyBlock | None:
        """Return the block with ``key``."""
        return next((block for block in reversed(self.blocks) if block.key == key), None)

    @property
    def agents(self) -> list[SubagentBlock]:
        """Other agents that are at work."""
        return list(self._agents.values())

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
            self._changes.status = True

    def add_local_notice(self, message: str, level: str = "info") -> None:
        """Show a line that is no event: the answer of a command of this screen."""
        self._append(NoticeBlock(self._key(), level="error" if level == "error" else "info", message=message))

    # --- blocks ------------------------------------------------------------------------------------------

    def _key(self) -> int:
        self._last_key += 1
        return self._last_key

    def _append(self, block: AnyBlock) -> None:
        self.blocks.append(block)
        self._changes.appended.append(block)

    def _touch(self, block: AnyBlock) -> None:
        block.revision += 1
        self._changes.changed.add(block.key)

    def _remove(self, gone: Iterable[AnyBlock]) -> None:
        keys = {block.key for block in gone}
        if not keys:
            return
        oldest = min(keys)
        # What goes stands near the end; the list before it is left alone.
        first = len(self.blocks)
        while first > 0 and self.blocks[first - 1].key >= oldest:
            first -= 1
        self.blocks[first:] = [block for block in self.blocks[first:] if block.key not in keys]
        self._changes.removed |= keys

    def _mark(self, event: Event, kind: MarkKind, label: str, detail: str = "") -> None:
        self._append(MarkBlock(self._key(), event.seq, kind=kind, label=label, detail=detail))

    # --- what was said -----------------------------------------------------------------------------------

    def _session(self, event: SessionEvent) -> None:
        if event.title:
            self.status.title = event.title
        if event.model:
            self.status.model = event.model
        if event.action == "resume":
            self._mark(event, "session", "Session resumed")
        elif event.action == "fork" and event.forked_from is not None:
            self._mark(event, "session", f"Copy of session {event.forked_from.session_id}")
        self._changes.status = True

    def _setting(self, event: Setting) -> None:
        if event.key == "mode":
            self.status.mode = str(event.to)
        elif event.key == "model":
            self.status.model = str(event.to)
        kind: MarkKind = "mode" if event.key == "mode" else "model"
        self._mark(event, kind, f"{event.key.capitalize()}: {event.to}")
        self._changes.status = True

    def _user(self, event: UserMessage) -> None:
        texts = [block.text for block in event.content if isinstance(block, TextBlock)]
        attachments = tuple(
            block.name or "image" if isinstance(block, ImageBlock) else block.uri
            for block in event.content
            if isinstance(block, ImageBlock | ResourceBlock)
        )
        self._append(
            UserBlock(
                self._key(),
                event.seq,
                text="\n".join(texts),
                attachments=attachments,
                source=event.source,
            )
        )
        if not self.status.title:
            self.status.title = texts[0].strip().partition("\n")[0][:80] if texts else ""
            self._changes.status = True

    def begin_shell(self, command: str) -> ToolBlock:
        """Show that the user's own command runs; `ToolBlock.add_progress` and `end_shell` go on with it."""
        block = ToolBlock(self._key(), live=True, name="bash", arguments={"command": command})
        block.status = "running"
        self._append(block)
        return block

    def touch_shell(self, block: ToolBlock) -> None:
        """Tell that the user's command wrote something."""
        self._changes.changed.add(block.key)

    def end_shell(self, block: ToolBlock, status: ToolStatus, output: str, **facts: Any) -> None:
        """Show how the user's command ended; ``facts`` are attributes of the block."""
        block.status, block.output, block.live = status, output, False
        for name, value in facts.items():
            setattr(block, name, value)
        block.drop_tail()
        self._touch(block)

    def _stored_shell(self, event: ContextEvent, text: str) -> None:
        """Take the stored end of a user's command; one that was watched stands there already."""
        for block in reversed(self.blocks[-50:]):
            if not isinstance(block, ToolBlock) or block.call_id or block.seq is not None:
                continue
            if block.live and block.arguments.get("command") == event.label:
                block.seq = event.seq
                return
        block = self.begin_shell(event.label)
        block.seq = event.seq
        self.end_shell(block, "done", text.partition("\n")[2])

    def _context(self, event: ContextEvent) -> None:
        if event.source in _QUIET_CONTEXT:
            return
        if event.source == "shell":
            texts = [block.text for block in event.content if isinstance(block, TextBlock)]
            self._stored_shell(event, "\n".join(texts))
            return
        text = "\n".join(block.text for block in event.content if isinstance(block, TextBlock))
        self._mark(event, "context", event.label or event.source, text)

    # --- an answer as it comes ---------------------------------------------------------------------------

    def _chunk(self, event: StreamChunk) -> None:
        if event.reasoning_text:
            self._stream(ThinkingBlock, "Thinking").add(event.reasoning_text)
        if event.text:
            self._stop_thinking()
            self._stream(AnswerBlock, "Answering").add(event.text)
        if event.tool_call_fragment is not None:
            self._stop_thinking()
            self._fragment(event.tool_call_fragment)
        if event.finished:
            self._stop_thinking()

    def _stream(self, kind: type[_Streamed], activity: str) -> _Streamed:
        """Return the open block at the end of the stream, a new one if need be."""
        last = self._streaming[-1] if self._streaming else None
        if not isinstance(last, kind):
            last = kind(self._key(), live=True)
            self._streaming.append(last)
            self._append(last)
            self._do(activity)
            if kind is ThinkingBlock:
                self._thinking_since = self._clock()
        self._changes.changed.add(last.key)
        return last

    def _stop_thinking(self) -> None:
        if self._thinking_since is None:
            return
        for block in reversed(self._streaming):
            if isinstance(block, ThinkingBlock):
                block.seconds = (block.seconds or 0.0) + self._clock() - self._thinking_since
                self._touch(block)
                break
        self._thinking_since = None

    def _fragment(self, fragment: dict[str, object]) -> None:
        index = fragment.get("index")
        name, arguments = fragment.get("name"), fragment.get("arguments")
        open_calls = [block for block in self._streaming if isinstance(block, ToolBlock)]
        place = index if isinstance(index, int) else len(open_calls) - 1
        block = next((call for call in open_calls if call.call_id == f"#{place}"), None)
        if block is None:
            block = ToolBlock(self._key(), live=True, call_id=f"#{place}")
            self._streaming.append(block)
            self._append(block)
        if isinstance(name, str) and name:
            block.name = name
            self._do(f"Writing a call of {name}")
        if isinstance(arguments, str):
            block.add_draft(arguments)
        self._changes.changed.add(block.key)

    def _take_streamed(self, kind: type[_Kind]) -> _Kind | None:
        """Return the first streamed block of ``kind``, for the stored event that takes its place."""
        for place, block in enumerate(self._streaming):
            if isinstance(block, kind):
                del self._streaming[place]
                self._changes.changed.add(block.key)
                return block
        return None

    def _reasoning(self, event: Reasoning) -> None:
        self._stop_thinking()
        block = self._take_streamed(ThinkingBlock)
        if block is None:
            if not event.content and not event.redacted:
                return
            block = ThinkingBlock(self._key())
            self._append(block)
        block.redacted = event.redacted
        block.settle(event.content, event.seq)

    def _answer(self, event: AssistantMessage) -> None:
        block = self._take_streamed(AnswerBlock)
        if block is None:
            block = AnswerBlock(self._key())
            self._append(block)
        block.partial, block.refusal = event.partial, event.refusal
        block.settle(event.content, event.seq)

    def _call(self, event: ToolCall) -> None:
        block = self._take_streamed(ToolBlock)
        if block is None:
            block = ToolBlock(self._key())
            self._append(block)
        block.seq, block.call_id, block.name = event.seq, event.call_id, event.tool_name
        block.arguments = event.arguments
        block.settle_draft(event.raw_arguments)
        block.status, block.live = "waiting", True
        self._calls[event.call_id] = block
        self._touch(block)

    def _meta(self, event: ProviderMeta) -> None:
        self._drop_streamed()
        status, usage = self.status, event.usage
        status.context_tokens = usage.total
        status.tokens += usage.total
        status.run_tokens += usage.total
        status.step = event.step
        if event.cost_usd is None:
            status.cost_known = False
        else:
            status.cost_usd += event.cost_usd
        self._do("Working")

    def _drop_streamed(self) -> None:
        """Take away what was streamed and is not in the stored answer."""
        self._stop_thinking()
        self._remove(self._streaming)
        self._streaming.clear()

    # --- tools -------------------------------------------------------------------------------------------

    def _asked(self, event: ApprovalRequest) -> None:
        self.status.pending.append(event)
        block = self._calls.get(event.call_id)
        if block is not None:
            block.status = "asking"
            self._touch(block)
        self._do("Waiting for your answer")

    def _answered(self, event: Approval) -> None:
        pending = self.status.pending
        pending[:] = [request for request in pending if request.request_id != event.request_id]
        self._changes.status = True
        block = self._calls.get(event.call_id)
        if not pending:
            self._do(f"Running {block.name}" if block and event.decision == "allow" else "Working")
        if block is None:
            return
        if event.edited_arguments is not None:
            block.arguments = event.edited_arguments
        if event.decision == "reject":
            block.status, block.feedback = "denied", event.feedback
        elif block.status == "asking":
            block.status = "waiting"
        self._touch(block)

    def _progress(self, event: ToolProgress) -> None:
        block = self._calls.get(event.call_id)
        if block is None or block.status in {"done", "failed", "denied", "cancelled"}:
            return
        if block.status != "running":
            block.status = "running"
            self._do(f"Running {block.name}")
        block.add_progress(event.text)
        self._changes.changed.add(block.key)

    def _result(self, event: ToolResult) -> None:
        block = self._calls.pop(event.call_id, None)
        if block is None:
            block = ToolBlock(self._key(), call_id=event.call_id, name=event.tool_name)
            self._append(block)
        block.output, block.is_error, block.category = event.output, event.is_error, event.category
        block.duration_ms, block.exit_code, block.diff = event.duration_ms, event.exit_code, event.diff
        block.changes, block.wall = event.file_changes, event.sandbox
        block.truncated, block.output_ref = event.truncated, event.output_ref
        block.images = sum(isinstance(part, ImageBlock) for part in event.content)
        block.status, block.live = _outcome(event), False
        block.drop_tail()
        self._touch(block)
        for change in event.file_changes:
            self._add_change(change.path, change.action, change.added, change.removed)
        if event.would_allow and self.live:
            self._offer_hosts(event.would_allow)

    def _offer_hosts(self, rules: Iterable[str]) -> None:
        """Say how commands may reach the hosts that the wall blocked."""
        commands = " and ".join(f"/sandbox allow {rule}" for rule in dict.fromkeys(rules))
        message = f"The wall blocked the network. {commands} opens it until aar ends."
        self._append(NoticeBlock(self._key(), level="warning", message=message, code="blocked_host"))

    def _add_change(self, path: str, action: str, added: int, removed: int) -> None:
        known = self.status.files.get(path)
        if known is None:
            self.status.files[path] = ChangedFile(path, action, added, removed)
        else:
            self.status.files[path] = replace(
                known, action=action, added=known.added + added, removed=known.removed + removed
            )
        self._changes.status = True

    # --- what happens to the session -------------------------------------------------------------------

    def _retry(self, event: Retry) -> None:
        if event.discard:
            self._drop_streamed()
        seconds = f" in {event.delay_s:.0f} s" if event.delay_s >= 1 else ""
        self._mark(event, "retry", f"Attempt {event.attempt} failed; trying again{seconds}", event.message)
        self._do(f"Trying again{seconds}")

    def _switch(self, event: ModelSwitch) -> None:
        if event.discard:
            self._drop_streamed()
        self.status.model = event.to_model
        self._mark(event, "model", f"{event.to_model} goes on", event.reason)
        self._changes.status = True

    def _compaction(self, event: Compaction) -> None:
        label = f"Compacted: {event.tokens_before:,} → {event.tokens_after:,} tokens"
        self.status.context_tokens = event.tokens_after
        self._mark(event, "compaction", label, event.summary)
        self._changes.status = True

    def _checkpoint(self, event: CheckpointEvent) -> None:
        if event.kind == "auto":
            return
        files = f" ({len(event.paths)} files)" if event.paths else ""
        names = {"manual": "Checkpoint", "undo": "Undone", "redo": "Done again"}
        self._mark(event, "checkpoint", names[event.kind] + files, "\n".join(event.paths))

    def _rewind(self, event: Rewind) -> None:
        if event.scope != "files":
            place = len(self.blocks)
            while place > 0 and (self.blocks[place - 1].seq or event.to_seq + 1) > event.to_seq:
                place -= 1
            self._remove(self.blocks[place:])
        self._mark(event, "rewind", _BACK[event.scope])

    def _plan_changed(self, event: PlanEvent) -> None:
        self.status.plan = event.items
        if self._plan is None:
            self._plan = PlanBlock(self._key(), event.seq, live=True)
            self._append(self._plan)
        self._plan.items, self._plan.seq = event.items, event.seq
        self._touch(self._plan)
        self._changes.status = True

    def _state(self, event: StateEvent) -> None:
        status = self.status
        before, status.state, status.stop_reason = status.state, event.state, event.stop_reason
        if event.stop_reason is not None:
            self._ended(event)
        elif status.run_since is None:
            status.run_since, status.run_tokens = self._clock(), 0
            self._do("Working")
        elif event.state is not before and event.state is AgentState.COMPACTING:
            self._do("Compacting the conversation")
        self._changes.status = True

    def _ended(self, event: StateEvent) -> None:
        self._settle()
        if event.stop_reason not in {"end_turn", "verified", "error"}:
            self._mark(event, "end", _ENDS.get(str(event.stop_reason), f"Stopped: {event.stop_reason}"))

    def _settle(self) -> None:
        """Show that nothing runs."""
        status = self.status
        self._drop_streamed()
        self._calls.clear()
        status.pending.clear()
        status.run_since, status.activity, status.step = None, "", None
        if self._plan is not None:
            self._plan.live = False
            self._plan = None

    def _notice(self, event: Notice) -> None:
        if event.code == _PASSING:
            self._do(event.message)
            return
        last = self.blocks[-1] if self.blocks else None
        if isinstance(last, NoticeBlock) and last.message == event.message:
            last.count += 1
            self._touch(last)
            return
        self._append(
            NoticeBlock(self._key(), event.seq, level=event.level, message=event.message, code=event.code)
        )

    def _error(self, event: ErrorEvent) -> None:
        self._append(
            ErrorBlock(
                self._key(),
                event.seq,
                kind=str(event.kind),
                message=event.message,
                advice=advice_for(str(event.kind)),
            )
        )

    def _do(self, activity: str) -> None:
        """Say what happens now."""
        if self.status.activity != activity:
            self.status.activity, self.status.since = activity, self._clock()
        self._changes.status = True

    # --- other agents ------------------------------------------------------------------------------------

    def _subagent(self, event: Subagent) -> None:
        block = self._agents.get(event.agent_id)
        if event.action == "start":
            block = SubagentBlock(
                self._key(), event.seq, event.agent_id, live=True, profile=event.profile, task=event.task
            )
            self._agents[event.agent_id] = block
            self._append(block)
            return
        if block is None:
            block = SubagentBlock(self._key(), event.seq, event.agent_id, profile=event.profile)
            self._append(block)
        block.result, block.stop_reason, block.live = event.result, event.stop_reason, False
        block.activity = ""
        self._agents.pop(event.agent_id, None)
        self._touch(block)

    def _of_other_agent(self, event: Event) -> None:
        block = self._agents.get(event.agent_id)
        if isinstance(event, ProviderMeta):
            self.status.tokens += event.usage.total
            if event.cost_usd is None:
                self.status.cost_known = False
            else:
                self.status.cost_usd += event.cost_usd
            self._changes.status = True
            if block is not None:
                block.steps += 1
        elif isinstance(event, ToolResult):
            for change in event.file_changes:
                self._add_change(change.path, change.action, change.added, change.removed)
        elif isinstance(event, ToolCall) and block is not None:
            block.activity = event.tool_name
        elif not isinstance(event, ErrorEvent) or block is None:
            return
        else:
            block.activity = event.message
        if block is not None:
            self._touch(block)


_BACK = {
    "both": "Went back, files and conversation; /redo comes back",
    "files": "Files went back; /redo changes them again",
    "conversation": "The conversation went back, files stay; /redo comes back",
}
_ENDS = {
    "cancelled": "Interrupted",
    "stopped": "Stopped as you asked",
    "max_steps": "Stopped at the step limit ([limits] steps)",
    "timeout": "Stopped at the time limit ([limits] seconds)",
    "budget": "Stopped at the budget",
    "repetition": "Stopped: the model repeated itself",
    "denied": "Stopped: you said no; tell what to do instead",
    "empty": "Stopped: the model gave no answer",
    "max_tokens": "Stopped: the answer was cut at the output limit",
    "refusal": "The model declined",
}


def _outcome(event: ToolResult) -> ToolStatus:
    if not event.is_error:
        return "done"
    if event.category in {"denied", "blocked"}:
        return "denied"
    return "cancelled" if event.category in {"cancelled", "interrupted"} else "failed"
