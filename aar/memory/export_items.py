"""What a reader of a session wants to see, folded from its events: calls stand with their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from pydantic_core import to_json

from aar.protocol.events import (
    Approval,
    AssistantMessage,
    Compaction,
    ContextEvent,
    ErrorEvent,
    Event,
    ModelSwitch,
    Notice,
    PlanEvent,
    ProviderMeta,
    Reasoning,
    Rewind,
    SessionEvent,
    StateEvent,
    Subagent,
    ToolCall,
    ToolResult,
    UserMessage,
)
from aar.protocol.messages import ContentBlock, ImageBlock, ResourceBlock, TextBlock
from aar.safety.sanitize import strip_ansi

Redact = Callable[[str], str]

_TELLING = ("command", "path", "file_path", "pattern", "url", "query", "name", "task", "id")
_BRIEF_CHARS = 100
_STATUS_MARKS = {"completed": "x", "done": "x", "in_progress": "~"}


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that was said or done.

    Attributes:
        kind: ``note`` is one line of what else happened.
        text: What was said; of a tool its output.
        seq: Of the event.
        ts: When.
        agent_id: Who; ``main`` or a sub-agent.
        title: Of a tool: name and what it was about; of a note: its kind.
        arguments: Of a tool, as JSON.
        diff: What a tool changed.
        facts: Short facts, such as an exit code.
        failed: Whether it went wrong.
        images: Media type and base64 data.
    """

    kind: Literal["user", "assistant", "thinking", "tool", "note"]
    text: str
    seq: int = 0
    ts: str = ""
    agent_id: str = "main"
    title: str = ""
    arguments: str = ""
    diff: str = ""
    facts: tuple[str, ...] = ()
    failed: bool = False
    images: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Heading:
    """Facts about a session for the top of an export."""

    session_id: str = ""
    title: str = ""
    cwd: str = ""
    model: str = ""
    began: str = ""
    ended: str = ""
    events: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    cost_known: bool = True
    requests: int = 0
    stop_reason: str = ""

    def rows(self) -> list[tuple[str, str]]:
        """Return names and values, those that are known."""
        least = "" if self.cost_known else " at least"
        known = f"${self.cost_usd:.4f}{least}" if self.cost_known or self.cost_usd else "not known"
        rows = [
            ("Session", self.session_id),
            ("Folder", self.cwd),
            ("Model", self.model),
            ("Began", self.began),
            ("Last event", self.ended),
            ("Events", str(self.events)),
            ("Requests", str(self.requests)),
            ("Tokens", f"{self.tokens:,}"),
            ("Cost", known if self.requests else "$0"),
            ("Ended with", self.stop_reason),
        ]
        return [(name, value) for name, value in rows if value]


def heading(events: Iterable[Event], redact: Redact, title: str = "") -> Heading:
    """Fold events to the facts about their session."""
    top = Heading(title=redact(title))
    for event in events:
        top.events += 1
        top.session_id = event.session_id or top.session_id
        top.began = top.began or event.ts
        top.ended = event.ts or top.ended
        if isinstance(event, SessionEvent):
            top.cwd = redact(event.cwd or "") or top.cwd
            top.model = event.model or top.model
        elif isinstance(event, ProviderMeta):
            top.requests += 1
            top.tokens += event.usage.total
            top.cost_usd += event.cost_usd or 0.0
            top.cost_known = top.cost_known and event.cost_usd is not None
        elif isinstance(event, StateEvent) and event.agent_id == "main" and event.stop_reason:
            top.stop_reason = str(event.stop_reason)
    return top


@dataclass(slots=True)
class _Fold:
    redact: Redact
    open: dict[tuple[str, str], ToolCall] = field(default_factory=dict[tuple[str, str], ToolCall])

    def take(self, event: Event) -> Item | None:
        match event:
            case UserMessage():
                return self._said(event, "user", event.content)
            case ContextEvent():
                label = event.label or str(event.source)
                return self._note(event, label, _plain(event.content))
            case AssistantMessage():
                facts = ("cut off",) if event.partial else ()
                return self._item(event, "assistant", event.content, facts=facts)
            case Reasoning():
                return self._item(event, "thinking", event.content)
            case ToolCall():
                self.open[event.agent_id, event.call_id] = event
                return None
            case ToolResult():
                return self._tool(event, self.open.pop((event.agent_id, event.call_id), None))
            case _:
                told = _note_text(event)
                return self._note(event, *told) if told is not None else None

    def rest(self) -> Iterator[Item]:
        """Yield the calls that have no result."""
        for call in self.open.values():
            yield self._call(call, "", ("no result",), failed=True)

    def _item(
        self, event: Event, kind: Literal["assistant", "thinking"], text: str, facts: tuple[str, ...] = ()
    ) -> Item | None:
        text = self._clean(text)
        if not text.strip():
            return None
        return Item(kind, text, event.seq or 0, event.ts, event.agent_id, facts=facts)

    def _said(self, event: Event, kind: Literal["user"], content: tuple[ContentBlock, ...]) -> Item:
        images = tuple((b.media_type, b.data) for b in content if isinstance(b, ImageBlock))
        text = self._clean(_plain(content))
        return Item(kind, text, event.seq or 0, event.ts, event.agent_id, images=images)

    def _note(self, event: Event, title: str, text: str) -> Item:
        failed = isinstance(event, ErrorEvent)
        text = self._clean(text)
        return Item("note", text, event.seq or 0, event.ts, event.agent_id, self._clean(title), failed=failed)

    def _tool(self, result: ToolResult, call: ToolCall | None) -> Item:
        call = call or ToolCall(
            call_id=result.call_id,
            tool_name=result.tool_name,
            seq=result.seq,
            ts=result.ts,
            agent_id=result.agent_id,
        )
        facts = [f"{result.duration_ms / 1000:.1f} s"]
        if result.exit_code is not None:
            facts.append(f"exit {result.exit_code}")
        facts += [f"{change.action} {change.path}" for change in result.file_changes]
        diff = self._clean(result.diff or "")
        images = tuple((b.media_type, b.data) for b in result.content if isinstance(b, ImageBlock))
        return self._call(
            call, self._clean(result.output), tuple(facts), diff, images, failed=result.is_error
        )

    def _call(
        self,
        call: ToolCall,
        output: str,
        facts: tuple[str, ...],
        diff: str = "",
        images: tuple[tuple[str, str], ...] = (),
        *,
        failed: bool,
    ) -> Item:
        given = to_json(call.arguments, indent=2, inf_nan_mode="null").decode()
        return Item(
            "tool",
            output,
            call.seq or 0,
            call.ts,
            call.agent_id,
            self._clean(f"{call.tool_name} {_brief(call)}".strip()),
            self._clean(call.raw_arguments or given),
            diff,
            tuple(self._clean(fact) for fact in facts),
            failed,
            images,
        )

    def _clean(self, text: str) -> str:
        return self.redact(strip_ansi(text))


def items(events: Iterable[Event], redact: Redact) -> Iterator[Item]:
    """Fold events to what a reader wants to see, in order; a call stands where its result came."""
    fold = _Fold(redact)
    for event in events:
        item = fold.take(event)
        if item is not None:
            yield item
    yield from fold.rest()


def _plain(content: Iterable[ContentBlock]) -> str:
    texts: list[str] = []
    for block in content:
        if isinstance(block, TextBlock):
            texts.append(block.text)
        elif isinstance(block, ResourceBlock):
            texts.append(f"{block.uri}:\n{block.text}")
        else:
            texts.append(f"[image {block.name or block.media_type}]")
    return "\n\n".join(texts)


def _brief(call: ToolCall) -> str:
    for name in _TELLING:
        value = call.arguments.get(name)
        if isinstance(value, str) and value.strip():
            line = " ".join(value.split())
            return line if len(line) <= _BRIEF_CHARS else line[: _BRIEF_CHARS - 1] + "…"
    return ""


def _note_text(event: Event) -> tuple[str, str] | None:
    match event:
        case Notice():
            return str(event.level), event.message
        case ErrorEvent():
            return f"error: {event.kind}", event.message
        case Approval() if event.by == "user":
            scope = "" if event.scope == "once" else f" for the {event.scope}"
            return "decision", f"{event.decision}{scope}" + (f": {event.feedback}" if event.feedback else "")
        case ModelSwitch():
            return "model", f"{event.from_model} → {event.to_model}: {event.reason}"
        case Compaction() if event.summary:
            return "summary of what came before", event.summary
        case Rewind():
            return "rewind", f"{event.scope} back to event {event.to_seq}"
        case PlanEvent():
            lines = (f"- [{_STATUS_MARKS.get(item.status, ' ')}] {item.title}" for item in event.items)
            return "plan", "\n".join(lines)
        case Subagent():
            return f"sub-agent {event.profile}: {event.action}", event.result or event.task
        case StateEvent() if event.stop_reason is not None and event.agent_id == "main":
            return "end of the run", str(event.stop_reason) + (f": {event.detail}" if event.detail else "")
        case SessionEvent() if event.action in ("fork", "rename"):
            origin = f" of {event.forked_from.session_id}" if event.forked_from else ""
            return str(event.action), f"{event.title or ''}{origin}".strip()
        case _:
            return None
