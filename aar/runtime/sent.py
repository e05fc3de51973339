"""What a model is sent, by section: the next request of a session, or the one of an earlier step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from aar.core.fold import MessageFold
from aar.core.prompt import tools_hash
from aar.core.timeline import Step, timeline
from aar.core.tokens import estimate_text, estimate_tools
from aar.core.totals import TotalsFold
from aar.protocol.errors import NotThereError
from aar.protocol.events import AssistantMessage, Event, PromptEvent, PromptLayer, Reasoning, ToolCall
from aar.protocol.messages import (
    ImageBlock,
    Message,
    ReasoningBlock,
    ResourceBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from aar.protocol.tool import ToolSpec
from aar.providers.base import Dialect

if TYPE_CHECKING:
    from aar.core.agent import Agent
    from aar.core.session import Session

Redact = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Section:
    """One part of a request.

    Attributes:
        name: Such as ``identity``, ``rules``, ``tools``, ``message 3``.
        source: Where it comes from.
        text: Word for word, but for pictures.
        tokens: About how many it takes.
    """

    name: str
    source: str
    text: str
    tokens: int


@dataclass(frozen=True)
class Sent:
    """A request to a model.

    Attributes:
        model: ``provider/model``.
        dialect: How tools are called.
        layers: Of the system prompt.
        tool_names: Tools that the model had.
        tools: Those of them that are known here.
        messages: The conversation.
        tools_changed: Whether the tools, all of them known, are described otherwise now than they were then.
        step: The step that it began; ``None``: the next one.
        answer: Events of the answer.
    """

    model: str
    dialect: Dialect
    layers: tuple[PromptLayer, ...]
    tool_names: tuple[str, ...]
    tools: tuple[ToolSpec, ...]
    messages: list[Message]
    tools_changed: bool = False
    step: Step | None = None
    answer: tuple[Event, ...] = field(default=())

    @property
    def system(self) -> str:
        """The system prompt as one text."""
        return "\n\n".join(layer.text for layer in self.layers if layer.text)

    def sections(self) -> Iterator[Section]:
        """Yield the request by section, in the order in which it is sent."""
        for layer in self.layers:
            yield Section(layer.name, layer.source, layer.text, estimate_text(layer.text))
        if self.tool_names:
            known = {tool.name: tool for tool in self.tools}
            lines = [
                f"{name}: {known[name].description}" if name in known else name for name in self.tool_names
            ]
            cost = estimate_tools(self.tools) if self.dialect == "native" else 0
            yield Section("tools", f"{len(lines)} tools", "\n\n".join(lines), cost)
        for number, message in enumerate(self.messages, 1):
            text = "\n".join(map(_block_text, message.content))
            yield Section(f"message {number}", message.role, text, estimate_text(text))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        known = {tool.name: tool for tool in self.tools}
        return {
            "model": self.model,
            "dialect": self.dialect,
            "step": None if self.step is None else self.step.number,
            "system": [layer.model_dump() for layer in self.layers],
            "tools": [_tool_fields(name, known.get(name)) for name in self.tool_names],
            "tools_changed": self.tools_changed,
            "messages": [message.model_dump(mode="json") for message in self.messages],
        }


def sent_at(events: Iterable[Event], number: int) -> Sent:
    """Return what was sent at step ``number`` of a session.

    Args:
        events: All of the session.
        number: From 1, over all runs; requests of other agents do not count.

    Raises:
        NotThereError: There is no such step.
    """
    stored = list(events)
    steps = timeline(stored)
    if not 1 <= number <= len(steps):
        has = f"steps 1 to {len(steps)}" if steps else "no answered request"
        raise NotThereError(f"The session has {has}; `aar trace --steps` lists them.")
    step = steps[number - 1]
    before = [event for event in stored if (event.seq or 0) < step.first_seq]
    fold, totals, prompt = MessageFold(), TotalsFold(), None
    for event in before:
        totals.apply(event)
        fold.apply(event)
        if isinstance(event, PromptEvent) and event.agent_id == "main":
            prompt = event
    answer = tuple(
        event
        for event in stored
        if step.first_seq <= (event.seq or 0) <= step.last_seq
        and event.agent_id == "main"
        and isinstance(event, Reasoning | AssistantMessage | ToolCall)
    )
    layers = () if prompt is None else prompt.layers
    told: dict[str, Any] = {} if prompt is None else prompt.tools
    names = tuple(cast("list[str]", told.get("names") or []))
    tools = _known_tools(names)
    changed = len(tools) == len(names) and tools_hash(tools) != told.get("sha256")
    model = totals.model or step.model
    messages = _in_dialect(fold.messages(), dialect := _dialect_of(layers))
    return Sent(model, dialect, layers, names, tools, messages, changed, step, answer)


def sent_next(agent: Agent, session: Session) -> Sent:
    """Return what would be sent if the model were asked now, but for what the user says next."""
    view = agent.view_of(session)
    tools = (*view.tools, *view.more_tools())
    dialect = view.active.capabilities.dialect
    messages = _in_dialect(session.messages(), dialect)
    names = tuple(tool.name for tool in tools)
    return Sent(view.active.name, dialect, view.prompt.layers, names, tools, messages)


def dump_text(sent: Sent, redact: Redact) -> Iterator[str]:
    """Yield a request for people, section by section, without known keys."""
    total = 0
    for section in sent.sections():
        total += section.tokens
        yield f"--- {section.name} · {section.source} · about {section.tokens:,} tokens"
        yield f"{redact(section.text)}\n"
    what = "the next request" if sent.step is None else f"step {sent.step.number}"
    yield f"--- {sent.model} · dialect {sent.dialect} · {what} · about {total:,} tokens"
    if sent.tools_changed:
        yield "--- the tools are described otherwise now than they were then"


def _known_tools(names: Sequence[str]) -> tuple[ToolSpec, ...]:
    from aar.tools.builtin.catalogue import builtin_tools

    known = {tool.name: tool for tool in builtin_tools()}
    return tuple(known[name] for name in names if name in known)


def _dialect_of(layers: Sequence[PromptLayer]) -> Dialect:
    told = next((layer.source for layer in layers if layer.name == "dialect"), "")
    for dialect in ("text", "files"):
        if f"({dialect})" in told:
            return dialect
    return "native"


def _in_dialect(messages: list[Message], dialect: Dialect) -> list[Message]:
    if dialect == "native":
        return messages
    from aar.providers.text_tools import render_messages

    return list(render_messages(messages, dialect))


def _tool_fields(name: str, spec: ToolSpec | None) -> dict[str, Any]:
    if spec is None:
        return {"name": name}
    return {"name": name, "description": spec.description, "input_schema": spec.input_schema}


def _block_text(block: object) -> str:
    match block:
        case TextBlock():
            return block.text
        case ResourceBlock():
            return f"[{block.uri}]\n{block.text}"
        case ImageBlock():
            return f"[image, {block.media_type}]"
        case ReasoningBlock():
            return f"[thinking] {block.text}"
        case ToolUseBlock():
            from json import dumps

            return f"[call {block.name}] {dumps(block.arguments, ensure_ascii=False)}"
        case ToolResultBlock():
            error = ", error" if block.is_error else ""
            pictures = f", {len(block.images)} images" if block.images else ""
            return f"[result of {block.name}{error}{pictures}]\n{block.output}"
        case _:
            return ""
