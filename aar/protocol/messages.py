"""Provider-neutral messages and their content blocks.

A conversation is a list of `Message`; tool results stand in the user message that follows the calls
(Anthropic's arrangement, from which the others are easily made). All of it is immutable, so that a
provider may keep the encoded form of a message by its identity.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from aar.protocol.text import JsonObject, Text


class _Block(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)


class TextBlock(_Block):
    """Plain text, Markdown by habit."""

    type: Literal["text"] = "text"
    text: Text


class ImageBlock(_Block):
    """An image: ``data`` is base64 of a file of type ``media_type`` (``image/png`` …)."""

    type: Literal["image"] = "image"
    media_type: str
    data: str
    name: Text | None = None


class ResourceBlock(_Block):
    """A named piece of text that was put before the model, such as an ``@file``."""

    type: Literal["resource"] = "resource"
    uri: Text
    text: Text
    media_type: str = "text/plain"


class ReasoningBlock(_Block):
    """Thinking of a model. ``signature`` and ``data`` are opaque and go back unchanged."""

    type: Literal["reasoning"] = "reasoning"
    text: Text = ""
    signature: str | None = None
    data: str | None = None
    redacted: bool = False


class ToolUseBlock(_Block):
    """A tool call. ``raw_arguments`` holds what the model wrote when it was no JSON object."""

    type: Literal["tool_use"] = "tool_use"
    call_id: Text
    name: Text
    arguments: JsonObject = Field(default_factory=dict)
    raw_arguments: Text | None = None


class ToolResultBlock(_Block):
    """The one result of a tool call. ``images`` follow the text."""

    type: Literal["tool_result"] = "tool_result"
    call_id: Text
    name: Text = ""
    output: Text
    images: tuple[ImageBlock, ...] = ()
    is_error: bool = False


ContentBlock = Annotated[TextBlock | ImageBlock | ResourceBlock, Field(discriminator="type")]
"""What a user message, a context event or a tool result may carry."""

AnswerBlock = Annotated[TextBlock | ReasoningBlock | ToolUseBlock, Field(discriminator="type")]
"""What a model's answer may carry, in the order in which the model gave it."""

MessageBlock = Annotated[
    TextBlock | ImageBlock | ResourceBlock | ReasoningBlock | ToolUseBlock | ToolResultBlock,
    Field(discriminator="type"),
]


class Message(BaseModel):
    """One turn of the conversation."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    role: Literal["user", "assistant"]
    content: tuple[MessageBlock, ...]

    @property
    def text(self) -> str:
        """All plain text of the message, joined with nothing between."""
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))

    @property
    def tool_uses(self) -> tuple[ToolUseBlock, ...]:
        """The tool calls of the message, in order."""
        return tuple(block for block in self.content if isinstance(block, ToolUseBlock))
