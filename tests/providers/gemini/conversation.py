"""A conversation with everything in it: thinking, parallel calls, images, results that failed, other vendors."""

from __future__ import annotations

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
from tests.providers.gemini.bodies import call, piece, read, sse

PIXEL = "iVBORw0KGgo="
IMAGE = ImageBlock(media_type="image/png", data=PIXEL)

SIGNED = piece(
    {"text": "I should look.", "thought": True},
    {"text": "Looking. "},
    {"text": "Now.", "thoughtSignature": "dGV4dA=="},
    {"executableCode": {"language": "PYTHON", "code": "print(1)"}, "thoughtSignature": "Y29kZQ=="},
    {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}},
    call("read_file", "Y2FsbA==", id="srv1", args={"path": "a.png"}),
    call("read_file", args={"path": "b.txt"}),
    {"text": "", "thoughtSignature": "ZW1wdHk="},
    finish="STOP",
)
"""An answer of Gemini with signatures wherever they can be."""

READ_FILE = ToolSpec(
    name="read_file",
    description="Reads a file.",
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1},
            "mode": {"const": "text"},
            "range": {"$ref": "#/definitions/Range"},
        },
        "definitions": {
            "Range": {"type": "object", "properties": {"default": {"type": "integer", "default": 1}}}
        },
        "required": ["path"],
    },
    side_effects=frozenset(),
    handler=None,
)
NO_INPUT = ToolSpec(
    name="list_all",
    description="Lists.",
    input_schema={"type": "object"},
    side_effects=frozenset(),
    handler=None,
)


def user(*blocks: TextBlock | ImageBlock | ResourceBlock | ToolResultBlock) -> Message:
    return Message(role="user", content=blocks)


def result(call_id: str, output: str, *, failed: bool = False, image: bool = False) -> ToolResultBlock:
    images = (IMAGE,) if image else ()
    return ToolResultBlock(call_id=call_id, name="read_file", output=output, images=images, is_error=failed)


def conversation() -> list[Message]:
    """Return six messages: Gemini's answer is the second, another vendor's the fourth."""
    answer = read([sse(SIGNED)])[1]
    first, second = (use.call_id for use in answer.tool_uses)
    foreign = (
        ReasoningBlock(text="Hm, elsewhere", signature="anthropic-signature"),
        ReasoningBlock(text="sealed elsewhere", data='{"server":"127.0.0.1","field":"reasoning"}'),
        TextBlock(text="Let me see more."),
        ToolUseBlock(call_id="toolu_1", name="read_file", raw_arguments='{"path": "c'),
    )
    return [
        user(TextBlock(text="What is this?"), IMAGE, ResourceBlock(uri='file:///a"b.txt', text="notes")),
        Message(role="assistant", content=answer.blocks),
        user(
            result(first, "a picture", image=True), result(second, "Error [not_found]: no b.txt", failed=True)
        ),
        Message(role="assistant", content=foreign),
        user(result("toolu_1", "done"), TextBlock(text="And now?")),
        Message(role="assistant", content=(TextBlock(text="Done."),)),
    ]
