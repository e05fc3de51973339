"""What is sent is valid by the vendor's own types, says everything, and keeps its beginning byte by byte."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from pydantic import TypeAdapter

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
from aar.providers.base import ProviderRequest
from aar.providers.chat_completions.encode import RequestEncoder, WireOptions
from aar.providers.openai.encode import ResponsesEncoder
from aar.providers.openai.seal import seal
from tests.providers.openai.wire import reasoning, search
from tests.support.work import calls_made

PIXEL = ImageBlock(media_type="image/png", data="iVBORw0KGgo=")
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}
PATHS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = (
    ToolSpec("read_file", "Reads a file.", PATHS, frozenset(), None),
    ToolSpec("list_directory", "Lists a folder.", {"type": "object", "properties": {}}, frozenset(), None),
)
THOUGHT = ReasoningBlock(text="why", data=seal("host", reasoning("why"), "commentary"))


def user(*content: Any) -> Message:
    return Message(role="user", content=content)


def said(*content: Any) -> Message:
    return Message(role="assistant", content=content)


def conversation() -> list[Message]:
    return [
        user(TextBlock(text="look"), PIXEL, ResourceBlock(uri='a"b.txt', text="body")),
        said(
            THOUGHT,
            TextBlock(text="I look."),
            ToolUseBlock(call_id="call_1", name="read_file", arguments={"path": "ä"}),
            ToolUseBlock(call_id="c" * 90, name="list_directory", raw_arguments='{"path'),
        ),
        user(
            ToolResultBlock(call_id="call_1", name="read_file", output="seen", images=(PIXEL,)),
            ToolResultBlock(call_id="c" * 90, name="list_directory", output="Error [x]: y", is_error=True),
            TextBlock(text="go on"),
        ),
        said(ReasoningBlock(data=seal("host", search()), redacted=True), TextBlock(text="Done.")),
        user(TextBlock(text="thanks")),
    ]


def full(messages: list[Message]) -> ProviderRequest:
    return ProviderRequest(
        model="gpt-5",
        system="be brief",
        messages=messages,
        tools=TOOLS,
        max_output_tokens=900,
        temperature=0.5,
        reasoning="max",
        output_schema=SCHEMA,
        cache_key="session-1",
    )


def encoder(*, thinks: bool = True, returns_items: bool = True) -> ResponsesEncoder:
    return ResponsesEncoder(WireOptions("host", top_effort="max"), thinks=thinks, returns_items=returns_items)


def sent(request: ProviderRequest, **more: Any) -> dict[str, Any]:
    return json.loads(encoder(**more).encode(request, stream=True).body)


def consume(value: Any) -> None:
    """Walk through a validated value: what is declared as iterable is validated as it is read."""
    if isinstance(value, dict):
        for item in value.values():  # pyright: ignore[reportUnknownVariableType]
            consume(item)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            consume(item)


def test_a_full_conversation_is_valid_by_the_sdk_s_own_types():
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

    body = sent(full(conversation()))
    adapter = TypeAdapter(ResponseCreateParamsStreaming)
    consume(adapter.validate_python(body))
    known = ResponseCreateParamsStreaming.__required_keys__ | ResponseCreateParamsStreaming.__optional_keys__
    assert set(body) <= known


def test_a_full_conversation_is_valid_chat_by_the_sdk_s_own_types():
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

    wire = WireOptions("host", max_tokens_field="max_completion_tokens", cache_key=True, top_effort="max")
    body = json.loads(RequestEncoder(wire).encode(full(conversation()), stream=True).body)
    adapter = TypeAdapter(CompletionCreateParamsStreaming)
    consume(adapter.validate_python(body))
    known = (
        CompletionCreateParamsStreaming.__required_keys__ | CompletionCreateParamsStreaming.__optional_keys__
    )
    assert set(body) <= known
    assert body["reasoning_effort"] == "max"
    assert body["max_completion_tokens"] == 900


def test_every_part_of_a_conversation_has_its_place():
    body = sent(full(conversation()))
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])
    assert (body["instructions"], body["prompt_cache_key"]) == ("be brief", "session-1")
    assert (body["max_output_tokens"], body["temperature"]) == (900, 0.5)
    assert body["text"]["format"] == {
        "type": "json_schema",
        "name": "answer",
        "schema": SCHEMA,
        "strict": True,
    }
    assert [tool["strict"] for tool in body["tools"]] == [False, False]
    items = body["input"]
    assert [item["type"] for item in items] == [
        "message",
        "reasoning",
        "message",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "message",
        "web_search_call",
        "message",
        "message",
    ]
    assert [part["type"] for part in items[0]["content"]] == ["input_text", "input_image", "input_text"]
    assert items[1] == reasoning("why")
    assert items[2] == {"type": "message", "role": "assistant", "content": "I look.", "phase": "commentary"}
    assert items[3]["arguments"] == '{"path":"ä"}'
    assert json.loads(items[4]["arguments"]) == {"unparsed_arguments": '{"path'}
    assert [part["type"] for part in items[5]["output"]] == ["input_text", "input_image"]
    assert items[6]["output"] == "Error [x]: y"
    assert items[4]["call_id"] == items[6]["call_id"]
    assert len(items[4]["call_id"]) <= 64
    assert items[8] == search()


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (None, {"summary": "auto"}),
        ("off", {"effort": "none"}),
        ("minimal", {"effort": "minimal", "summary": "auto"}),
        ("high", {"effort": "high", "summary": "auto"}),
        ("max", {"effort": "max", "summary": "auto"}),
        (0, {"effort": "none"}),
        (8_000, {"effort": "medium", "summary": "auto"}),
        (50_000, {"effort": "high", "summary": "auto"}),
    ],
)
def test_levels_of_thinking_become_efforts(level: str | int | None, expected: dict[str, str]):
    assert sent(replace(full([]), reasoning=level))["reasoning"] == expected


def test_a_model_that_is_not_known_to_think_is_asked_plainly():
    body = sent(replace(full([]), reasoning=None), thinks=False)
    assert "reasoning" not in body
    assert "include" not in body


def test_thinking_of_another_server_stays_away():
    other = ReasoningBlock(text="secret", data=seal("elsewhere", reasoning("secret")))
    body = sent(full([user(TextBlock(text="a")), said(other, TextBlock(text="b"))]))
    assert [item["type"] for item in body["input"]] == ["message", "message"]
    assert "secret" not in json.dumps(body)


def test_thinking_that_led_to_nothing_is_not_sent_back():
    body = sent(full([user(TextBlock(text="a")), said(THOUGHT), user(TextBlock(text="b"))]))
    assert [item["type"] for item in body["input"]] == ["message", "message"]


def test_tools_of_the_server_stand_beside_the_own_ones():
    own = full(conversation())
    asked = replace(own, extra={"tools": [{"type": "web_search"}], "include": None})
    body = sent(asked)
    assert [tool["type"] for tool in body["tools"]] == ["function", "function", "web_search"]
    assert "include" not in body
    assert "tools" not in sent(replace(asked, tools=()))


def test_items_can_be_left_out_for_a_model_that_cannot_use_them():
    body = sent(full(conversation()), returns_items=False)
    assert not {"reasoning", "web_search_call"} & {item["type"] for item in body["input"]}


def test_a_request_begins_with_the_bytes_of_the_last_one():
    messages = conversation()
    lasting, before = encoder(), b""
    for end in range(1, len(messages) + 1):
        request = full(messages[:end])
        body = lasting.encode(request, stream=True).body
        resumed = full([Message.model_validate_json(message.model_dump_json()) for message in messages[:end]])
        assert body == encoder().encode(resumed, stream=True).body
        prefix = body[: body.index(b'],"tools":')]
        assert prefix.startswith(before)
        before = prefix
    assert before.count(b'"type":"message"') == 5


def test_a_long_conversation_is_encoded_once():
    lasting = encoder()
    messages = [user(TextBlock(text="x" * 200)) for _ in range(8_000)]
    request = full(messages)

    first = calls_made(lambda: lasting.encode(request, stream=True))
    assert calls_made(lambda: lasting.encode(request, stream=True)) < first / 3
