"""From a provider's response to the events of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aar.core.attempt import Attempt
from aar.protocol.events import AssistantMessage, Event, ProviderMeta, Reasoning, ToolCall
from aar.protocol.ids import new_id
from aar.protocol.messages import ReasoningBlock, TextBlock, ToolUseBlock
from aar.protocol.usage import Usage
from aar.providers.base import ProviderResponse

_Block = TextBlock | ReasoningBlock | ToolUseBlock


@dataclass(frozen=True, slots=True)
class Answer:
    """A stored answer.

    Attributes:
        text: Prose of the answer.
        calls: Tool calls as they were stored.
        cut: Whether it was cut at the output limit.
        cut_call: Whether it was cut in or right after its last tool call, which then may not be whole.
        refused: Whether the model or a filter declined.
        problem: What was wrong with a tool call written as text.
        usage: Tokens; estimated when the server told none.
        cost_usd: ``None`` when the price is not known.
    """

    text: str
    calls: tuple[ToolCall, ...]
    cut: bool
    cut_call: bool
    refused: bool
    problem: str | None
    usage: Usage
    cost_usd: float | None


def store_answer(response: ProviderResponse, attempt: Attempt, meta: ProviderMeta) -> Answer:
    """Store what the model said, then ``meta``, all at once, before any tool runs."""
    blocks, problem = _parsed(response, attempt)
    attempt.close()
    refused = response.refusal or response.stop == "refusal"
    events = [event for block in blocks if (event := _event(block, refused=refused)) is not None]
    if refused and not any(isinstance(event, AssistantMessage) for event in events):
        events.append(AssistantMessage(content="", refusal=True))
    stored = attempt.emit.append(*events, meta)
    return Answer(
        text="".join(block.text for block in blocks if isinstance(block, TextBlock)),
        calls=tuple(event for event in stored if isinstance(event, ToolCall)),
        cut=response.stop == "max_tokens",
        cut_call=_ends_in_cut_call(response),
        refused=refused,
        problem=problem,
        usage=meta.usage,
        cost_usd=meta.cost_usd,
    )


def _ends_in_cut_call(response: ProviderResponse) -> bool:
    """Tell whether the last call may be incomplete, also where a server has closed its JSON."""
    return response.stop == "max_tokens" and bool(response.blocks) and response.blocks[-1].type == "tool_use"


def _parsed(response: ProviderResponse, attempt: Attempt) -> tuple[list[_Block], str | None]:
    """Return the answer's blocks, with tool calls that were written as text taken out of the text."""
    parser = attempt.parser
    if parser is None:
        return _distinct(response.blocks), None
    parsed = parser.finish(cut=response.stop == "max_tokens", native_calls=bool(response.tool_uses))
    if parsed.rest:
        attempt.show(parsed.rest)
    if response.tool_uses:
        return _distinct(response.blocks), None
    blocks: list[_Block] = [block for block in response.blocks if isinstance(block, ReasoningBlock)]
    if parsed.prose.strip():
        blocks.append(TextBlock(text=parsed.prose))
    return [*blocks, *parsed.calls], parsed.problem


def _distinct(blocks: Sequence[_Block]) -> list[_Block]:
    """Return ``blocks`` with a new id for each call that has none, or that of another: results go by id."""
    seen: set[str] = set()
    distinct: list[_Block] = []
    for block in blocks:
        if isinstance(block, ToolUseBlock):
            if not block.call_id or block.call_id in seen:
                block = block.model_copy(update={"call_id": f"call_{new_id()}"})
            seen.add(block.call_id)
        distinct.append(block)
    return distinct


def _event(block: _Block, *, refused: bool) -> Event | None:
    match block:
        case TextBlock():
            if not block.text and not refused:
                return None
            return AssistantMessage(content=block.text, refusal=refused)
        case ReasoningBlock():
            return Reasoning(
                content=block.text, signature=block.signature, data=block.data, redacted=block.redacted
            )
        case ToolUseBlock():
            return ToolCall(
                call_id=block.call_id,
                tool_name=block.name,
                arguments=block.arguments,
                raw_arguments=block.raw_arguments,
            )
