"""Honest estimates of token counts, for when no server has told the number.

Estimates err on the high side: a request that is thought a little too long costs a compaction, one that
is thought too short costs a failed call.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from aar.core.image_tokens import image_tokens
from aar.protocol.late import late_pattern
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

# Pieces of about the length of a token: parts of words, of numbers, of signs, and white space.
_PIECE = late_pattern(
    r" ?[A-Z]?[a-z]{1,6}| ?[A-Z]{1,3}| ?\d{1,2}| ?[^\sA-Za-z\d\x80-\U0010ffff]{1,2}|[ \t]{1,16}"
    r"|[\r\n]+\s{0,16}"
)
_TOKENS_PER_PIECE = 1.05
# Base64 and the like: next to no token is longer than two of its characters.
_DENSE = late_pattern(r"[A-Za-z0-9+/_-]{48,}")
_MORE_PER_DENSE_CHAR = 0.2
# By the first byte in UTF-8: Latin with marks; Greek, Cyrillic; Hebrew, Arabic; most of Asia; emoji.
_TOKENS_PER_CHARACTER = (
    (bytes(range(0xC2, 0xCD)), 1.0),
    (bytes(range(0xCD, 0xD4)), 0.5),
    (bytes(range(0xD4, 0xE0)), 0.8),
    (bytes(range(0xE0, 0xF0)), 1.25),
    (bytes(range(0xF0, 0xF5)), 3.0),
)
MESSAGE_TOKENS = 4
"""What surrounds the content of each message."""


def estimate_text(text: str) -> int:
    """Return about how many tokens ``text`` is.

    Measured against OpenAI's tokenizers (o200k, cl100k): 0 to 40 % more than they count for code and prose.
    """
    if not text:
        return 0
    tokens = len(_PIECE.findall(text)) * _TOKENS_PER_PIECE
    tokens += sum(map(len, _DENSE.findall(text))) * _MORE_PER_DENSE_CHAR
    if not text.isascii():
        data = text.encode("utf-8", "surrogatepass")
        for first_bytes, each in _TOKENS_PER_CHARACTER:
            tokens += each * (len(data) - len(data.translate(None, first_bytes)))
    return int(tokens) + 1


def estimate_message(message: Message) -> int:
    """Return about how many tokens ``message`` is."""
    return MESSAGE_TOKENS + sum(estimate_block(block) for block in message.content)


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


def estimate_block(block: object) -> int:
    """Return about how many tokens one block of a message is."""
    match block:
        case TextBlock() | ReasoningBlock():
            return estimate_text(block.text)
        case ResourceBlock():
            return estimate_text(block.text) + estimate_text(block.uri)
        case ImageBlock():
            return image_tokens(block.data)
        case ToolUseBlock():
            return estimate_text(block.name) + estimate_text(json.dumps(block.arguments)) + 8
        case ToolResultBlock():
            return estimate_text(block.output) + sum(image_tokens(item.data) for item in block.images) + 8
        case _:
            return 0
