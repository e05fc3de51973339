"""The conversation as another model can take it: for one that reads text only, images become a remark.

What else differs between vendors is dealt with where each message is encoded: opaque thinking is sealed
for its own server and left out everywhere else (`openai_reasoning.unseal`), ids of calls are put into the
form that a server takes, the same for the call and its result.
"""

from __future__ import annotations

from collections.abc import Sequence

from aar.protocol.messages import ImageBlock, Message, MessageBlock, TextBlock, ToolResultBlock


class TextOnlyHistory:
    """Conversations without their images, for one model.

    Messages are immutable and keep their identity from step to step; so do those that stand in for them,
    and each is made once. Messages without images are passed on as they are.

    Attributes:
        left_out: How many images have been left out so far.
    """

    def __init__(self) -> None:
        self.left_out = 0
        self._seen: list[Message] = []
        self._given: list[Message] = []
        self._known: dict[int, tuple[Message, Message]] = {}

    def fit(self, messages: Sequence[Message]) -> list[Message]:
        """Return ``messages`` with a remark in place of each image; the list is the caller's."""
        asked = list(messages)
        known = len(self._seen)
        # Lists of the same objects compare without a look into them.
        if asked[:known] != self._seen:
            known, self._given = 0, []
        self._given = [*self._given[:known], *(self._fitted(message) for message in asked[known:])]
        self._seen = asked
        if len(self._known) > 4 * len(asked) + 64:
            ids = {id(message) for message in asked}
            self._known = {key: pair for key, pair in self._known.items() if key in ids}
        return list(self._given)

    def _fitted(self, message: Message) -> Message:
        pair = self._known.get(id(message))
        if pair is None or pair[0] is not message:
            count = _count(message)
            fitted = without_images(message) if count else message
            self.left_out += count
            pair = self._known[id(message)] = (message, fitted)
        return pair[1]


def without_images(message: Message) -> Message:
    """Return ``message`` with a remark in place of each image."""
    content: list[MessageBlock] = []
    for block in message.content:
        if isinstance(block, ImageBlock):
            content.append(TextBlock(text=_remark(block)))
        elif isinstance(block, ToolResultBlock) and block.images:
            output = "\n".join([block.output, *(_remark(image) for image in block.images)])
            content.append(block.model_copy(update={"output": output, "images": ()}))
        else:
            content.append(block)
    return message.model_copy(update={"content": tuple(content)})


def _count(message: Message) -> int:
    return sum(
        1 if isinstance(block, ImageBlock) else len(block.images)
        for block in message.content
        if isinstance(block, ImageBlock | ToolResultBlock)
    )


def _remark(image: ImageBlock) -> str:
    name = f" {image.name}" if image.name else ""
    return f"[The image{name} ({image.media_type}) is not shown: you read text only.]"
