"""How much of the window a conversation takes, by part: each message is looked at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from aar.core.image_tokens import image_tokens
from aar.core.session import Session
from aar.core.tokens import MESSAGE_TOKENS, estimate_block, estimate_text
from aar.protocol.messages import ImageBlock, Message, ToolResultBlock

_OPEN = 3
"""Messages at the end that may still change."""


@dataclass(slots=True)
class Tokens:
    """Estimated tokens of messages.

    Attributes:
        history: What was said, thought and called.
        outputs: Results of tools.
        images: Images of either side.
    """

    history: int = 0
    outputs: int = 0
    images: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.history + self.outputs + self.images

    def add(self, other: Tokens) -> None:
        """Add the tokens of other messages."""
        self.history += other.history
        self.outputs += other.outputs
        self.images += other.images


def message_tokens(message: Message) -> Tokens:
    """Return about how many tokens ``message`` is, by part."""
    found = Tokens(history=MESSAGE_TOKENS)
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            found.outputs += estimate_text(block.output) + 8
            found.images += sum(image_tokens(image.data) for image in block.images)
        elif isinstance(block, ImageBlock):
            found.images += estimate_block(block)
        else:
            found.history += estimate_block(block)
    return found


class ContextMeter:
    """Counts one conversation. Messages that can no longer change are counted once, by identity."""

    def __init__(self) -> None:
        self._sum = Tokens()
        self._count = 0
        self._ends: tuple[Message, Message] | None = None
        self._tail: dict[int, tuple[Message, Tokens]] = {}

    def measure(self, messages: Sequence[Message]) -> Tokens:
        """Return the tokens of ``messages``, which are those of the last time and more, or others."""
        if not self._holds(messages):
            self._sum, self._count, self._ends, self._tail = Tokens(), 0, None, {}
        stable = max(self._count, len(messages) - _OPEN)
        for message in messages[self._count : stable]:
            self._sum.add(self._of(message))
        if stable > self._count:
            self._count, self._ends = stable, (messages[0], messages[stable - 1])
        tail = {id(message): (message, self._of(message)) for message in messages[stable:]}
        self._tail = tail
        whole = Tokens(self._sum.history, self._sum.outputs, self._sum.images)
        for _, tokens in tail.values():
            whole.add(tokens)
        return whole

    def _holds(self, messages: Sequence[Message]) -> bool:
        """Tell whether what was counted is still the beginning of ``messages``."""
        if self._ends is None:
            return True
        first, last = self._ends
        return len(messages) >= self._count and messages[0] is first and messages[self._count - 1] is last

    def _of(self, message: Message) -> Tokens:
        known = self._tail.get(id(message))
        return known[1] if known is not None else message_tokens(message)


_METERS: WeakKeyDictionary[Session, dict[str, tuple[int, ContextMeter]]] = WeakKeyDictionary()


def session_tokens(session: Session, agent_id: str = "main") -> Tokens:
    """Return about how many tokens the conversation of an agent is now; cheap when asked again and again."""
    meters = _METERS.setdefault(session, {})
    compacted = session.totals.compactions.get(agent_id, 0)
    epoch, meter = meters.get(agent_id, (compacted, None))
    if meter is None or epoch != compacted:
        # Shrinking changes messages in the middle, which the meter does not look at again.
        meter = ContextMeter()
        meters[agent_id] = (compacted, meter)
    return meter.measure(session.messages(agent_id))
