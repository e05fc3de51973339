"""What a chat client asks: a conversation, which is known again by its words, and a prompt at its end."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict
from starlette.requests import Request

from aar.protocol.errors import UsageError
from aar.protocol.images import IMAGE_TYPES
from aar.protocol.messages import ImageBlock, Message, ResourceBlock, TextBlock

_REMEMBERED = 1000
"""Conversations that are known again."""


class Lenient(BaseModel):
    """A body of which more is passed over than is used."""

    model_config = ConfigDict(extra="ignore", frozen=True)


@dataclass(frozen=True)
class Asked:
    """What a chat client wants.

    Attributes:
        model: Name of the model, as `/v1/models` lists it.
        instructions: Its system prompt; empty: none.
        messages: The conversation; the last one is the user's prompt.
    """

    model: str
    instructions: str
    messages: tuple[Message, ...]

    def key(self, *more: Message) -> str:
        """Return what the conversation before the prompt, or with ``more`` behind it, is known by."""
        told = [*self.messages, *more] if more else self.messages[:-1]
        words = [[message.role, [_known_by(block) for block in message.content]] for message in told]
        return hashlib.sha256(json.dumps([self.model, self.instructions, words]).encode()).hexdigest()

    def with_instructions(self) -> list[Message]:
        """Return the messages with the client's instructions before the first of the user's."""
        messages = list(self.messages)
        if self.instructions:
            block = ResourceBlock(uri="instructions of the client", text=self.instructions)
            place = next(at for at, message in enumerate(messages) if message.role == "user")
            first = messages[place]
            messages[place] = Message(role="user", content=(block, *first.content))
        return messages


def _known_by(block: Any) -> str:
    return block.text.strip() if isinstance(block, TextBlock) else str(block.model_dump_json())


@dataclass
class Conversations:
    """Which session holds which conversation."""

    _sessions: OrderedDict[str, str] = field(default_factory=OrderedDict[str, str])

    def find(self, asked: Asked) -> str | None:
        """Return the session that holds what was said before."""
        return self._sessions.get(asked.key()) if len(asked.messages) > 1 else None

    def note(self, asked: Asked, answer: str, session_id: str) -> None:
        """Remember where a conversation goes on."""
        said = Message(role="assistant", content=(TextBlock(text=answer),))
        self._sessions[asked.key(said)] = session_id
        while len(self._sessions) > _REMEMBERED:
            self._sessions.popitem(last=False)


def conversations_of(request: Request) -> Conversations:
    """Return what the server that got ``request`` remembers."""
    state = request.app.state
    if not hasattr(state, "conversations"):
        state.conversations = Conversations()
    kept: Conversations = state.conversations
    return kept


def image(media_type: object, data: object) -> ImageBlock:
    """Return an image that a client sent.

    Raises:
        UsageError: It is of a kind that is not taken.
    """
    import base64
    import binascii

    if media_type not in IMAGE_TYPES or not isinstance(data, str) or not data:
        raise UsageError(f"Images must be {', '.join(sorted(IMAGE_TYPES))}, in base64.")
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise UsageError("The data of an image are no base64.") from None
    return ImageBlock(media_type=str(media_type), data=data)


def conversation(instructions: list[str], messages: list[Message], model: str) -> Asked:
    """Return what is asked.

    Raises:
        UsageError: There is no prompt in it.
    """
    if not messages or messages[-1].role != "user" or not messages[-1].content:
        raise UsageError("messages: the last one must be the user's, with something in it.")
    told = tuple(message for message in messages if message.content)
    return Asked(model, "\n\n".join(text for text in instructions if text.strip()), told)
