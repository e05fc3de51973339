"""Encoded messages, conversations and tools, kept by identity; and pieces that many wires write alike.

Messages are immutable and keep their identity from step to step, so each is encoded once in its life. A
conversation mostly grows at its end: what was joined for the last request is kept too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from aar.protocol.messages import Message, ResourceBlock, ToolUseBlock
from aar.protocol.tool import ToolSpec

_KEPT_REQUESTS = 256
_KEPT_CONVERSATIONS = 8
_KEPT_TOOL_LISTS = 16


class Joined(Protocol):
    """A conversation as it was sent last."""

    messages: list[Message]


FormT = TypeVar("FormT")
JoinedT = TypeVar("JoinedT", bound=Joined)


@dataclass(slots=True)
class _Kept(Generic[FormT]):
    """A message with its form, and when that was used last."""

    message: Message
    form: FormT
    used: int


class KeptForms(Generic[FormT, JoinedT]):
    """What a wire's encoder has made already: messages, conversations and lists of tools."""

    def __init__(self) -> None:
        self._messages: dict[int, _Kept[FormT]] = {}
        self._joined: dict[Hashable, JoinedT] = {}
        self._tools: dict[int, tuple[tuple[ToolSpec, ...], bytes]] = {}
        self._requests = 0

    def form(self, message: Message, make: Callable[[Message], FormT]) -> FormT:
        """Return the encoded form of ``message``, which ``make`` makes the first time."""
        kept = self._messages.get(id(message))
        if kept is None or kept.message is not message:
            kept = self._messages[id(message)] = _Kept(message, make(message), self._requests)
        kept.used = self._requests
        return kept.form

    def take(self, key: Hashable) -> JoinedT | None:
        """Take out the conversation of ``key``, to go on with it and `put` it back."""
        self._requests += 1
        return self._joined.pop(key, None)

    def put(self, key: Hashable, joined: JoinedT) -> None:
        """Keep a conversation; those that are over are dropped, so that memory does not grow for ever."""
        self._joined[key] = joined
        while len(self._joined) > _KEPT_CONVERSATIONS:
            del self._joined[next(iter(self._joined))]
        if self._requests % _KEPT_REQUESTS == 0:
            oldest = self._requests - _KEPT_REQUESTS
            going_on = {id(message) for joined in self._joined.values() for message in joined.messages}
            self._messages = {
                key: item for key, item in self._messages.items() if item.used > oldest or key in going_on
            }

    def tools(self, tools: tuple[ToolSpec, ...], make: Callable[[tuple[ToolSpec, ...]], bytes]) -> bytes:
        """Return the encoded form of a list of tools, which ``make`` makes the first time."""
        known = self._tools.get(id(tools))
        if known is None or known[0] is not tools:
            if len(self._tools) >= _KEPT_TOOL_LISTS:
                self._tools.clear()
            known = self._tools[id(tools)] = (tools, make(tools))
        return known[1]

    def clear(self) -> None:
        """Forget everything."""
        self._messages.clear()
        self._joined.clear()
        self._tools.clear()


def conversation_key(messages: list[Message]) -> int:
    """Return what tells one conversation from another: its first message."""
    return id(messages[0]) if messages else 0


def to_json(value: Any) -> bytes:
    """Return ``value`` as compact JSON in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def arguments_of(block: ToolUseBlock) -> Any:
    """Return the arguments of a call as an object, whatever the model wrote."""
    # Many servers parse the arguments of earlier calls and fail on anything but an object.
    return block.arguments if block.raw_arguments is None else {"unparsed_arguments": block.raw_arguments}


def resource_text(block: ResourceBlock) -> str:
    """Return a resource as the text that models read."""
    uri = block.uri.replace('"', "%22")
    return f'<resource uri="{uri}">\n{block.text}\n</resource>'


def call_digest(call_id: str) -> str:
    """Return an id of plain letters for one that a server does not take; always the same."""
    return f"call_{hashlib.sha256(call_id.encode()).hexdigest()[:32]}"
