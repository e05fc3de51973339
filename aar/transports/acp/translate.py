"""Events to ``session/update``: what happens in a session, as an editor is told it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from aar.core.way_on import CODE as WAY_ON
from aar.protocol.events import (
    Approval,
    AssistantMessage,
    Compaction,
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
    ToolCall,
    ToolProgress,
    ToolResult,
    UserMessage,
)
from aar.protocol.state import AgentState
from aar.safety.sanitize import sanitize
from aar.transports.acp import tool_calls
from aar.transports.acp.content import text_block, told_content
from aar.transports.acp.greeting import ClientCapabilities

Update = dict[str, Any]
_PROGRESS_EVERY_S = 0.2
"""Content replaces what was sent before, so that output is sent as a whole each time, but not too often."""
_PROGRESS_CHARS = 16_000
_STARTS_AFTER_S = 0.05
"""A call that was not asked about counts as running when it has no result by then."""
_PLAN_STATUS = {
    "pending": "pending",
    "in_progress": "in_progress",
    "executing": "in_progress",
    "completed": "completed",
    "failed": "pending",
    "blocked": "pending",
}
_PLAN_WORDS = {"failed": " (failed)", "blocked": " (blocked)"}


class Facts(Protocol):
    """What updates tell besides the event."""

    root: Path

    def window(self) -> int:
        """Tokens that the model's window holds."""
        ...

    def cost(self) -> float | None:
        """US dollars that the session cost, where all prices are known."""
        ...

    def title(self) -> str:
        """Title of the session."""
        ...

    def peek(self, path: str) -> bytes:
        """Content of a file that tools may read."""
        ...

    def options_changed(self) -> None:
        """Mode, model or thinking is another one."""
        ...


@dataclass
class _Call:
    """A tool call that has no result yet."""

    update_id: str
    tool: str
    asked: bool = False
    running: bool = False
    output: str = ""
    terminal: str = ""
    timer: asyncio.TimerHandle | None = None


def _terminal(name: str) -> dict[str, str]:
    return {"type": "terminal", "terminalId": name}


@dataclass
class Translator:
    """Turns the events of one session into updates.

    Attributes:
        facts: See `Facts`.
        send: Gets the updates in order.
        client: What the client can show.
        replay: Whether a stored conversation is told again: prompts too, and nothing that has passed.
    """

    facts: Facts
    send: Callable[[Update], None]
    client: ClientCapabilities
    replay: bool = False
    _calls: dict[str, _Call] = field(default_factory=dict[str, _Call])
    _streamed: set[str] = field(default_factory=set[str])
    _step: tuple[str | None, int | None] = (None, None)
    _attempt: int = 0
    _title: str = ""
    _compaction: str | None = None

    def __post_init__(self) -> None:
        self._handlers: dict[str, Callable[[Any], None]] = {
            "user_message": self._on_user_message,
            "stream_chunk": self._on_chunk,
            "reasoning": self._on_reasoning,
            "assistant_message": self._on_answer,
            "tool_call": self._on_call,
            "tool_progress": self._on_progress,
            "tool_result": self._on_result,
            "approval": self._on_approval,
            "plan": self._on_plan,
        }
        if not self.replay:
            self._handlers |= {
                "approval_request": self._on_question,
                "provider_meta": self._on_meta,
                "setting": self._on_setting,
                "session": self._on_session,
                "retry": self._on_retry,
                "model_switch": self._on_switch,
                "compaction": self._on_compaction,
                "state": self._on_state,
                "notice": self._on_notice,
            }

    def take(self, event: Event) -> None:
        """Tell of one event; those of agents other than the main one are not shown."""
        handler = self._handlers.get(event.type)
        if handler is not None and event.agent_id == "main":
            handler(event)

    # --- what is said ------------------------------------------------------------------------------------

    def say(self, text: str, message_id: str, *, kind: str = "agent_message_chunk") -> None:
        """Send a piece of a message."""
        self.send({"sessionUpdate": kind, "content": text_block(sanitize(text)), "messageId": message_id})

    def think(self, text: str, message_id: str) -> None:
        """Send a piece of thinking, or a remark of aar's own."""
        self.say(text, message_id, kind="agent_thought_chunk")

    def _message_id(self, event: Event) -> str:
        if event.run_id is None:
            return event.id
        if (event.run_id, event.step) != self._step:
            self._step, self._attempt = (event.run_id, event.step), 0
            self._streamed.clear()
        attempt = f".{self._attempt}" if self._attempt else ""
        return f"{event.run_id}.{event.step or 0}{attempt}"

    def _on_user_message(self, event: UserMessage) -> None:
        if self.replay:
            for block in told_content(event.content):
                self.send({"sessionUpdate": "user_message_chunk", "content": block, "messageId": event.id})
        elif self.facts.title() != self._title:
            self._tell_title(event.ts)

    def _on_chunk(self, event: StreamChunk) -> None:
        message_id = self._message_id(event)
        if event.reasoning_text:
            self._streamed.add("thought")
            self.think(event.reasoning_text, f"{message_id}.thought")
        if event.text:
            self._streamed.add("text")
            self.say(event.text, message_id)

    def _on_reasoning(self, event: Reasoning) -> None:
        message_id = self._message_id(event)
        if event.content and "thought" not in self._streamed:
            self.think(event.content, f"{message_id}.thought")

    def _on_answer(self, event: AssistantMessage) -> None:
        message_id = self._message_id(event)
        if event.content and "text" not in self._streamed:
            self.say(event.content, message_id)

    def _on_retry(self, event: Retry) -> None:
        self._message_id(event)
        if event.discard:
            self._void()
        self.think(f"{event.message} Trying again in {event.delay_s:.0f} s.\n", event.id)

    def _on_switch(self, event: ModelSwitch) -> None:
        self._message_id(event)
        if event.discard:
            self._void()
        self.think(f"{event.to_model} goes on: {event.reason}\n", event.id)
        self.facts.options_changed()

    def _void(self) -> None:
        """What was shown of this answer does not count; the next attempt is another message."""
        if self._streamed:
            self._attempt += 1
            self._streamed.clear()

    # --- tools -------------------------------------------------------------------------------------------

    def _on_call(self, event: ToolCall) -> None:
        tool, arguments = event.tool_name, event.arguments
        old = None if self.replay else tool_calls.replaced_text(tool, arguments, self.facts.peek)
        root = self.facts.root
        update: Update = {
            "sessionUpdate": "tool_call",
            "toolCallId": event.id,
            "title": tool_calls.title_of(tool, arguments),
            "name": tool,
            "kind": tool_calls.kind_of(tool),
            "status": "pending",
            "rawInput": arguments if event.raw_arguments is None else event.raw_arguments,
            "locations": tool_calls.locations_of(tool, arguments, root),
        }
        content = tool_calls.preview(tool, arguments, root, old)
        if content:
            update["content"] = content
        self._calls[event.call_id] = _Call(event.id, tool)
        self.send(update)

    def call_update(self, call_id: str) -> Update | None:
        """Return the beginning of an update of an open call; ``None``: there is none."""
        call = self._calls.get(call_id)
        return None if call is None else {"sessionUpdate": "tool_call_update", "toolCallId": call.update_id}

    def show_terminal(self, call_id: str, terminal_id: str) -> bool:
        """Show a terminal of the client in an open call; tell whether there is one."""
        call = self._calls.get(call_id)
        if call is None:
            return False
        self._runs(call_id)
        call.terminal = terminal_id
        self.send({**(self.call_update(call_id) or {}), "content": [_terminal(terminal_id)]})
        return True

    def _on_question(self, event: Event) -> None:
        call = self._calls.get(str(getattr(event, "call_id", "")))
        if call is not None:
            call.asked = True

    def _on_approval(self, event: Approval) -> None:
        if event.decision == "allow" and not self.replay:
            self._runs(event.call_id)

    def _runs(self, call_id: str) -> None:
        call = self._calls.get(call_id)
        if call is not None and not call.running:
            call.running = True
            self.send({**(self.call_update(call_id) or {}), "status": "in_progress"})

    def _start_unasked(self, names: Iterable[str]) -> None:
        for name in names:
            call = self._calls.get(name)
            if call is not None and not call.asked:
                self._runs(name)

    def _on_progress(self, event: ToolProgress) -> None:
        call = self._calls.get(event.call_id)
        if call is None:
            return
        self._runs(event.call_id)
        call.output = (call.output + event.text)[-_PROGRESS_CHARS:]
        if call.timer is None:
            loop = asyncio.get_running_loop()
            call.timer = loop.call_later(_PROGRESS_EVERY_S, self._tell_progress, event.call_id)

    def _tell_progress(self, call_id: str) -> None:
        call = self._calls.get(call_id)
        if call is not None:
            call.timer = None
            content = tool_calls.output_content(call.tool, call.output)
            self.send({**(self.call_update(call_id) or {}), "content": content})

    def _on_result(self, event: ToolResult) -> None:
        update = self.call_update(event.call_id)
        call = self._calls.pop(event.call_id, None)
        if update is None or call is None:
            return
        if call.timer is not None:
            call.timer.cancel()
        fields = tool_calls.result_fields(event, self.facts.root)
        if call.terminal:
            fields["content"] = [_terminal(call.terminal)]
        self.send({**update, **fields})

    # --- facts -------------------------------------------------------------------------------------------

    def _on_plan(self, event: PlanEvent) -> None:
        entries = [
            {
                "content": sanitize(item.title) + _PLAN_WORDS.get(item.status, ""),
                "priority": "medium",
                "status": _PLAN_STATUS[item.status],
            }
            for item in event.items
            if item.status in _PLAN_STATUS
        ]
        self.send({"sessionUpdate": "plan", "entries": entries})

    def _on_meta(self, event: ProviderMeta) -> None:
        self.tell_usage(event.usage.total)
        waiting = [name for name, call in self._calls.items() if not call.running]
        if waiting:
            asyncio.get_running_loop().call_later(_STARTS_AFTER_S, self._start_unasked, waiting)

    def tell_usage(self, used: int) -> None:
        """Tell how full the window is and what the session cost."""
        update: Update = {"sessionUpdate": "usage_update", "used": used, "size": self.facts.window()}
        cost = self.facts.cost()
        if cost is not None:
            update["cost"] = {"amount": round(cost, 6), "currency": "USD"}
        self.send(update)

    def _on_setting(self, event: Setting) -> None:
        if event.key == "mode":
            self.send({"sessionUpdate": "current_mode_update", "currentModeId": str(event.to)})
        self.facts.options_changed()

    def _on_session(self, event: SessionEvent) -> None:
        if event.action == "rename":
            self._tell_title(event.ts)

    def _tell_title(self, when: str) -> None:
        self._title = self.facts.title()
        update: Update = {"sessionUpdate": "session_info_update", "updatedAt": when}
        if self._title:
            update["title"] = sanitize(self._title, keep_newlines=False)
        self.send(update)

    def _on_state(self, event: StateEvent) -> None:
        if event.state is AgentState.COMPACTING:
            self._compaction = event.id
            self._tell_compaction("in_progress")
        elif self._compaction is not None:
            # No summary came: it was cancelled, or there was nothing to leave out.
            self._tell_compaction("failed" if event.state is AgentState.ERROR else "cancelled")
            self._compaction = None
        if event.stop_reason is not None:
            self._tell_title(event.ts)

    def _tell_compaction(self, status: str, **more: Any) -> None:
        if self.client.compaction:
            update = {
                "sessionUpdate": "compaction_update",
                "compactionId": self._compaction,
                "status": status,
            }
            self.send({**update, **more})

    def _on_compaction(self, event: Compaction) -> None:
        self._compaction = self._compaction or event.id
        if self.client.compaction:
            summary = [text_block(sanitize(event.summary))] if event.summary else []
            self._tell_compaction("completed", summary=summary)
        else:
            before, after = event.tokens_before, event.tokens_after
            self.think(f"The conversation was summed up: {before:,} tokens became {after:,}.\n", event.id)
        self._compaction = None

    def _on_notice(self, event: Notice) -> None:
        if event.code == WAY_ON:  # said at the end of the turn
            return
        self.notice(event.level, event.message, event.id)

    def notice(self, level: str, message: str, message_id: str) -> None:
        """Tell the user something; in thoughts, where the client has no place for it."""
        if self.client.notices:
            self.send({"sessionUpdate": "notice", "severity": level, "title": sanitize(message)})
        elif level != "info":
            self.think(f"{message}\n", message_id or "notice")


def still_told(events: Iterable[Event], rewinds: Sequence[Rewind]) -> Iterator[Event]:
    """Yield the events of the conversation as it stands: what was rewound is left out.

    Args:
        events: All stored events.
        rewinds: Those that are `Rewind`, in order.
    """
    backwards: list[tuple[int, int]] = []
    ends_at = sys.maxsize
    for rewind in reversed(rewinds):
        if is_of_conversation(rewind):
            ends_at = min(ends_at, rewind.to_seq)
            backwards.append((rewind.seq or 0, ends_at))
    for event in events:
        while backwards and (event.seq or 0) >= backwards[-1][0]:
            backwards.pop()
        hidden = backwards and (event.seq or 0) > backwards[-1][1]
        if not hidden and not (isinstance(event, Rewind) and is_of_conversation(event)):
            yield event


def is_of_conversation(rewind: Rewind) -> bool:
    """Tell whether a rewind takes back what was said to the main agent."""
    return rewind.scope != "files" and rewind.agent_id == "main"
