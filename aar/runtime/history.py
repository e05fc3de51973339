"""A conversation that was held elsewhere, put before the model as if it had been held in a session."""

from __future__ import annotations

from collections.abc import Sequence

from aar.core.session import Scope, Session
from aar.protocol.errors import UsageError
from aar.protocol.events import AssistantMessage, Event, Reasoning, ToolCall, ToolResult, UserMessage
from aar.protocol.ids import new_id
from aar.protocol.messages import (
    AnswerBlock,
    ContentBlock,
    ImageBlock,
    Message,
    ReasoningBlock,
    ResourceBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)


def tell_history(session: Session, messages: Sequence[Message]) -> None:
    """Put ``messages`` into ``session``; the next prompt goes on behind them.

    Calls of tools must have their results, as a model's server would demand of a request.

    Args:
        session: An open session in which nothing runs.
        messages: The conversation, oldest first.

    Raises:
        UsageError: A message holds what its side cannot say, or a call has no result.
    """
    open_calls: dict[str, ToolUseBlock] = {}
    told = [_events(message, place, open_calls) for place, message in enumerate(messages)]
    if open_calls:
        raise UsageError(f"The call {next(iter(open_calls))} of the history has no result.")
    run_id = new_id()
    for step, events in enumerate(told, 1):
        # One step a message: the blocks of one step are one message of the model.
        session.append(*events, scope=Scope(session, run_id, step=step))


def _events(message: Message, place: int, open_calls: dict[str, ToolUseBlock]) -> list[Event]:
    if message.role == "assistant":
        return [_said(block, place, open_calls) for block in message.content]
    results: list[Event] = []
    words: list[ContentBlock] = []
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            results.append(_result(block, place, open_calls))
        elif isinstance(block, TextBlock | ImageBlock | ResourceBlock):
            words.append(block)
        else:
            raise _wrong(place, message.role, block.type)
    return [*results, UserMessage(content=tuple(words), source="prompt")] if words else results


def _said(
    block: AnswerBlock | ContentBlock | ToolResultBlock, place: int, open_calls: dict[str, ToolUseBlock]
) -> Event:
    match block:
        case TextBlock():
            return AssistantMessage(content=block.text)
        case ReasoningBlock():
            return Reasoning(
                content=block.text, signature=block.signature, data=block.data, redacted=block.redacted
            )
        case ToolUseBlock():
            open_calls[block.call_id] = block
            return ToolCall(call_id=block.call_id, tool_name=block.name, arguments=block.arguments)
        case _:
            raise _wrong(place, "assistant", block.type)


def _result(block: ToolResultBlock, place: int, open_calls: dict[str, ToolUseBlock]) -> ToolResult:
    call = open_calls.pop(block.call_id, None)
    if call is None:
        raise UsageError(f"Message {place} of the history answers the call {block.call_id}, which is none.")
    return ToolResult(
        call_id=block.call_id,
        tool_name=call.name,
        output=block.output,
        content=block.images,
        is_error=block.is_error,
    )


def _wrong(place: int, role: str, kind: str) -> UsageError:
    return UsageError(f"Message {place} of the history is of the {role} and cannot hold a {kind} block.")
