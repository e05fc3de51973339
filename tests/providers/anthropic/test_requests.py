"""What is sent: valid by the SDK's own types, with a stable prefix, and each message encoded once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

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
from aar.providers.anthropic.encode import RequestEncoder
from tests.providers.anthropic.support import (
    PNG,
    READ,
    SEAL,
    answer,
    ask,
    assistant,
    decode,
    message,
    provider_at,
    say,
    stream_of,
    user,
)
from tests.support.model_server import Reply

MARK = {"type": "ephemeral"}
KEPT = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {"type": "web_search_result", "title": "t", "url": "https://a.example", "encrypted_content": "E"}
    ],
}
THOUGHT = ReasoningBlock(text="hm", signature="Sig==")
OK = Reply(body=stream_of(message({"type": "text", "text": "ok"})), content_type="text/event-stream")


def call(call_id: str = "toolu_1", **more: Any) -> ToolUseBlock:
    return ToolUseBlock(**{"call_id": call_id, "name": "read", "arguments": {"p": "ä"}, **more})


def result(call_id: str = "toolu_1", output: str = "text", **more: Any) -> ToolResultBlock:
    return ToolResultBlock(call_id=call_id, name="read", output=output, **more)


def kept_blocks() -> tuple[Any, ...]:
    return decode([stream_of(message(KEPT, FOUND))])[1].blocks


def full_conversation() -> list[Message]:
    return [
        user(say("look"), PNG, ResourceBlock(uri='a"b', text="body")),
        assistant(
            THOUGHT,
            ReasoningBlock(data="EncryptedByTheVendor", redacted=True),
            say("I look."),
            *kept_blocks(),
            call("toolu_1"),
            call("call.with/odd:chars", arguments={}, raw_arguments='{"p'),
        ),
        user(
            result("toolu_1", images=(PNG,)),
            result("call.with/odd:chars", "", is_error=True),
            say("and then?"),
        ),
        assistant(ReasoningBlock(text="", signature="Empty=="), say("done")),
        user(say("thanks")),
    ]


def sent(messages: list[Message], encoder: RequestEncoder | None = None, **more: Any) -> dict[str, Any]:
    encoder = encoder or RequestEncoder(SEAL)
    body = encoder.encode(ask(messages=messages, **more), {"model": "m"}, {"max_tokens": 9}).body
    return json.loads(body)


def walked(value: Any) -> Any:
    """Return ``value`` with what pydantic validates only when it is walked."""
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_unset=True)
    if isinstance(value, Mapping):
        return {name: walked(item) for name, item in value.items()}
    return [walked(item) for item in value]


def check_by_the_sdk(body: dict[str, Any]) -> None:
    """Check a body against the SDK's types; a field that they do not know would be missing afterwards."""
    from anthropic.types import MessageCreateParams

    adapter = TypeAdapter(MessageCreateParams)  # must live as long as what is walked
    assert walked(adapter.validate_python(body)) == body


@pytest.mark.parametrize(
    ("model", "level"),
    [
        ("claude-3-5-haiku-20241022", "high"),
        ("claude-sonnet-4-5", "high"),
        ("claude-opus-4-6", "max"),
        ("claude-opus-4-6", 5000),
        ("claude-opus-4-8", "off"),
        ("claude-opus-5", "off"),
        ("claude-sonnet-5-5", "minimal"),
        ("claude-fable-5-2", None),
        ("a-model-of-another-vendor", None),
    ],
)
async def test_a_whole_conversation_is_valid_by_the_sdks_own_types(model: str, level: Any):
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
    request = ask(
        *full_conversation(), model=model, reasoning=level, tools=(READ,), stop=("END", " "),
        output_schema=schema,
    )  # fmt: skip
    _, _, server = await answer(OK, request)
    body = server.requests[0].body
    check_by_the_sdk(body)
    thinking = body.get("thinking", {})
    assert body["max_tokens"] > thinking.get("budget_tokens", 0)
    assert body["stop_sequences"] == ["END"]
    assert body["output_config"]["format"]["schema"]["additionalProperties"] is False
    assert json.dumps(body).count('"cache_control"') == 4


def test_every_kind_of_block_has_its_place_and_form():
    system, tools, messages = (
        sent(full_conversation(), tools=(READ,))[name] for name in ("system", "tools", "messages")
    )
    assert system == [{"type": "text", "text": "be brief", "cache_control": MARK}]
    assert tools == [
        {
            "name": "read",
            "description": "Reads a file.",
            "input_schema": READ.input_schema,
            "cache_control": MARK,
        }
    ]
    assert [item["role"] for item in messages] == ["user", "assistant", "user", "assistant", "user"]
    look, image, resource = messages[0]["content"]
    assert (look["text"], image["source"]["data"]) == ("look", "aGk=")
    assert resource["text"] == '<resource uri="a%22b">\nbody\n</resource>'
    thinking, redacted, text, kept, found, first, second = messages[1]["content"]
    assert thinking == {"type": "thinking", "thinking": "hm", "signature": "Sig=="}
    assert redacted == {"type": "redacted_thinking", "data": "EncryptedByTheVendor"}
    assert (text["text"], kept, found) == ("I look.", KEPT, FOUND)
    assert first == {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"p": "ä"}}
    assert second["input"] == {"unparsed_arguments": '{"p'}
    one, two, rest = messages[2]["content"]
    assert [part["type"] for part in one["content"]] == ["text", "image"]
    assert two == {
        "type": "tool_result",
        "tool_use_id": second["id"],
        "content": "(no output)",
        "is_error": True,
    }
    assert rest == {"type": "text", "text": "and then?", "cache_control": MARK}
    assert messages[3]["content"][0] == {"type": "thinking", "thinking": "", "signature": "Empty=="}


def test_a_growing_conversation_keeps_its_prefix_byte_for_byte_apart_from_the_marks():
    encoder = RequestEncoder(SEAL)
    messages = [user(say("start"))]
    bodies: list[bytes] = []
    for number in range(6):
        request = ask(messages=messages, tools=(READ,))
        bodies.append(encoder.encode(request, {"model": "m"}, {"max_tokens": 9}).body)
        call_id = f"toolu_{number}"
        messages = [*messages, assistant(THOUGHT, call(call_id)), user(result(call_id, str(number)))]
    mark = b',"cache_control":{"type":"ephemeral"}'
    for shorter, longer in pairwise(bodies):
        head = shorter.index(b'"messages":[')
        assert longer[:head] == shorter[:head]
        plain = shorter.replace(mark, b"")
        prefix = plain[: plain.index(b'],"max_tokens"')]
        assert longer.replace(mark, b"").startswith(prefix)
        # The turn that was marked last is marked again, so that what the server kept is found.
        before, after = (json.loads(body)["messages"] for body in (shorter, longer))
        assert after[len(before) - 1] == before[-1]
    afresh = RequestEncoder(SEAL).encode(
        ask(messages=messages[:-2], tools=(READ,)), {"model": "m"}, {"max_tokens": 9}
    )
    assert afresh.body == bodies[-1]


def test_marks_stand_on_the_last_two_user_turns_only_and_can_be_switched_off():
    messages = [user(say("a")), assistant(say("b")), user(say("c")), assistant(say("d")), user(say("e"), PNG)]
    body = sent(messages)
    marked = [
        ["cache_control" in block for block in item["content"]]
        for item in body["messages"]
        if item["role"] == "user"
    ]
    assert marked == [[False], [True], [False, True]]
    assert "cache_control" not in json.dumps(sent(messages, RequestEncoder(SEAL, cache=False), tools=(READ,)))


def test_thinking_of_another_vendor_and_unsigned_thinking_stay_behind():
    other = ReasoningBlock(text="theirs", signature="x", data='{"server":"api.example","field":"reasoning"}')
    foreign_block = ReasoningBlock(data='{"server":"anthropic:","block":{"type":"server_tool_use"}}')
    messages = [
        user(say("a")),
        assistant(other, ReasoningBlock(text="plain"), foreign_block, say("b")),
        user(say("c")),
        assistant(THOUGHT),
        user(say("d")),
    ]
    wire = sent(messages)["messages"]
    assert wire[1]["content"] == [{"type": "text", "text": "b"}]
    assert [item["role"] for item in wire] == ["user", "assistant", "user", "user"]


def test_what_the_wire_does_not_take_is_written_so_that_it_does():
    picture = ImageBlock(media_type="image/tiff", data="aGk=")
    odd = ToolSpec("mcp.server/tool", "d", {"properties": {}}, frozenset(), None)
    messages = [
        assistant(say("first"), say(" \n")),
        user(picture, TextBlock(text="  "), say("x")),
        assistant(call("toolu_1", name="mcp.server/tool")),
        user(result("toolu_1", "")),
    ]
    body = sent(messages, tools=(odd,))
    assert body["messages"][0]["role"] == "user"
    assert body["messages"][1]["content"] == [{"type": "text", "text": "first"}]
    assert [part["type"] for part in body["messages"][2]["content"]] == ["text", "text"]
    assert body["messages"][3]["content"][0]["name"] == body["tools"][0]["name"] == "mcp_server_tool"
    assert "content" not in body["messages"][4]["content"][0]
    assert body["tools"][0]["input_schema"]["type"] == "object"


def test_a_last_answer_without_tools_keeps_the_tools_so_that_the_cached_prefix_holds():
    encoder = RequestEncoder(SEAL)
    messages = [user(say("a")), assistant(call()), user(result())]
    first = sent(messages, encoder, tools=(READ,))
    last = sent(messages, encoder)
    assert (last["tools"], last["tool_choice"]) == (first["tools"], {"type": "none"})
    resumed = sent(messages)
    assert [tool["name"] for tool in resumed["tools"]] == ["read"]
    assert "tools" not in sent([user(say("a"))])


def test_a_message_is_encoded_once_and_a_changed_conversation_is_sent_as_it_is_now(
    monkeypatch: pytest.MonkeyPatch,
):
    encoder = RequestEncoder(SEAL)
    encoded: list[str] = []
    inner = encoder._assistant
    monkeypatch.setattr(encoder, "_assistant", lambda item: encoded.append(item.text) or inner(item))
    messages = [user(say("a")), assistant(say("b")), user(say("c"))]
    for _ in range(300):
        sent(messages, encoder)
    sent([*messages, assistant(say("d")), user(say("e"))], encoder)
    assert encoded == ["b", "d"]
    shortened = sent([messages[0], assistant(say("z")), user(say("y"))], encoder)["messages"]
    assert [item["content"][0]["text"] for item in shortened] == ["a", "z", "y"]
    for _ in range(600):
        sent([user(say("other"))], encoder)
    assert len(encoder._kept._messages) < 600


def test_null_in_extra_removes_a_field_and_the_rest_is_added():
    provider = provider_at("http://127.0.0.1:9", providers={"anthropic": {"extra": {"service_tier": "auto"}}})
    request = ask(reasoning="high", extra={"thinking": None})
    fields = provider._fields(request, provider._plan(request))
    assert "thinking" not in fields
    assert fields["service_tier"] == "auto"
