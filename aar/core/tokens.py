"""Honest estimates of token counts, for when no server has told the number.

Estimates err on the high side: a request that is thought a little too long costs a compaction, one that
is thought too short costs a failed call.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

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

_CHARS_PER_TOKEN = 3.5
_IMAGE_TOKENS = 1600
_MESSAGE_TOKENS = 4


def estimate_text(text: str) -> int:
    """Return about how many tokens ``text`` is: 3.5 ASCII characters, or one other character, a token."""
    if text.isascii():
        return int(len(text) / _CHARS_PER_TOKEN) + 1 if text else 0
    others = sum(1 for char in text if ord(char) > 127)
    return int((len(text) - others) / _CHARS_PER_TOKEN + others) + 1


def estimate_message(message: Message) -> int:
    """Return about how many tokens ``message`` is."""
    return _MESSAGE_TOKENS + sum(_estimate_block(block) for block in message.content)


class MessageEstimates:
    """Estimates of a growing conversation: each message is looked at once, however often it is sent."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Message, int]] = {}

    def total(self, messages: Iterable[Message]) -> int:
        """Return about how many tokens ``messages`` are together."""
        # Known by identity, and held, so that no other message can get the same one.
        known = {
            id(message): self._known.get(id(message)) or (message, estimate_message(message))
            for message in messages
        }
        self._known = known
        return sum(tokens for _, tokens in known.values())


def estimate_tools(tools: Iterable[ToolSpec]) -> int:
    """Return about how many tokens the schemas of ``tools`` are."""
    return sum(
        estimate_text(tool.description) + estimate_text(json.dumps(tool.input_schema)) for tool in tools
    )


def _estimate_block(block: object) -> int:
    match block:
        case TextBlock() | ReasoningBlock():
            return estimate_text(block.text)
        case ResourceBlock():
            return estimate_text(block.text) + estimate_text(block.uri)
        case ImageBlock():
            return _IMAGE_TOKENS
        case ToolUseBlock():
            return estimate_text(block.name) + estimate_text(json.dumps(block.arguments)) + 8
        case ToolResultBlock():
            return estimate_text(block.output) + len(block.images) * _IMAGE_TOKENS + 8
        case _:
            return 0
