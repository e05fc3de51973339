"""The chat-completions wire: what is sent, and what is made of oddities in what comes back."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aar.protocol.errors import ErrorKind, ProviderError
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
from aar.providers.base import ProviderRequest, ProviderResponse
from aar.providers.chat_completions.body import BodyDecoder
from aar.providers.chat_completions.decode import AnswerContext
from aar.providers.chat_completions.encode import RequestEncoder, WireOptions
from aar.providers.chat_completions.usage import normalise

PNG = ImageBlock(media_type="image/png", data="aGk=")
READ = ToolSpec(
    "read", "Reads a file.", {"type": "object", "properties": {"p": {"type": "string"}}}, frozenset(), None
)


def user(*blocks: Any) -> Message:
    return Message(role="user", content=blocks)


def assistant(*blocks: Any) -> Message:
    return Message(role="assistant", content=blocks)


def sent(messages: list[Message], encoder: RequestEncoder | None = None, **more: Any) -> dict[str, Any]:
    encoder = encoder or RequestEncoder(WireOptions("host"))
    request = ProviderRequest(model="m", system=more.pop("system", ""), messages=messages, **more)
    return json.loads(encoder.encode(request, stream=True).body)


def decode(
    body: bytes, *, pieces: list[bytes] | None = None, taken: tuple[str, ...] = ()
) -> ProviderResponse:
    decoder = BodyDecoder(AnswerContext("host", "m", taken_ids=taken))
    deltas = [delta for piece in pieces or [body] for delta in decoder.feed(piece)] + decoder.finish()
    assert deltas[-1].response is not None
    return deltas[-1].response


def stream_of(*deltas: dict[str, Any], finish: str | None = "stop", done: bool = True) -> bytes:
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    body = b"".join(b"data: %s\n\n" % json.dumps(chunk).encode() for chunk in chunks)
    return body + (b"data: [DONE]\n\n" if done else b"")


def calls_of(
    *fragments: list[dict[str, Any]], finish: str | None = "tool_calls"
) -> list[tuple[str, str, Any]]:
    response = decode(stream_of(*({"tool_calls": part} for part in fragments), finish=finish))
    return [(call.call_id, call.name, call.raw_arguments or call.arguments) for call in response.tool_uses]


def call(name: str | None = None, arguments: Any = None, **more: Any) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {**more, "function": function}


# What is sent


def test_a_whole_conversation_is_encoded_so_that_every_call_has_its_result():
    conversation = [
        user(TextBlock(text="look"), PNG, ResourceBlock(uri="a b", text="body")),
        assistant(
            ReasoningBlock(text="hm"),
            TextBlock(text="ok"),
            ToolUseBlock(call_id="c1", name="read", arguments={"p": "ä"}),
            ToolUseBlock(call_id="x" * 60, name="read", raw_arguments='{"p'),
        ),
        user(
            ToolResultBlock(call_id="c1", name="read", output="", images=(PNG,)),
            ToolResultBlock(
                call_id="x" * 60, name="read", output="Error [invalid_arguments]: no", is_error=True
            ),
            TextBlock(text="go on"),
        ),
        assistant(TextBlock(text="done")),
    ]
    body = sent(conversation, system="sys", tools=(READ,))
    system, first, answer, result, broken, rest, last = body["messages"]
    assert system == {"role": "system", "content": "sys"}
    assert [part["type"] for part in first["content"]] == ["text", "image_url", "text"]
    assert first["content"][1]["image_url"]["url"] == "data:image/png;base64,aGk="
    assert [message["role"] for message in (answer, result, broken, rest, last)] == [
        "assistant", "tool", "tool", "user", "assistant",
    ]  # fmt: skip
    ids = [item["id"] for item in answer["tool_calls"]]
    assert ids == [result["tool_call_id"], broken["tool_call_id"]]
    assert all(len(item) <= 40 for item in ids)
    assert [json.loads(item["function"]["arguments"]) for item in answer["tool_calls"]] == [
        {"p": "ä"},
        {"unparsed_arguments": '{"p'},
    ]
    assert [part["type"] for part in rest["content"]] == ["text", "image_url", "text"]
    assert body["tools"][0]["function"]["parameters"] == READ.input_schema
    assert last == {"role": "assistant", "content": "done"}


def test_text_without_images_is_sent_as_plain_text():
    messages = sent([user(TextBlock(text="a"), TextBlock(text="b"))])["messages"]
    assert messages == [{"role": "user", "content": "a\n\nb"}]


def test_the_prefix_of_a_growing_conversation_is_byte_for_byte_the_same():
    encoder = RequestEncoder(WireOptions("host"))
    messages = [user(TextBlock(text="a")), assistant(TextBlock(text="b"))]
    bodies = []
    for number in range(3):
        messages = [*messages, user(TextBlock(text=str(number))), assistant(TextBlock(text="x"))]
        request = ProviderRequest(model="m", system="s", messages=messages, tools=(READ,))
        bodies.append(encoder.encode(request, stream=True).body)
    for shorter, longer in pairwise(bodies):
        prefix = shorter[: shorter.index(b'],"tools"')]
        assert longer.startswith(prefix)


def test_a_message_is_encoded_once_and_forgotten_when_its_conversation_is_over(
    monkeypatch: pytest.MonkeyPatch,
):
    encoder = RequestEncoder(WireOptions("host"))
    encoded: list[str] = []
    inner = encoder._user

    def counted(message: Message) -> list[dict[str, Any]]:
        encoded.append(message.text)
        return inner(message)

    monkeypatch.setattr(encoder, "_user", counted)
    old, new = user(TextBlock(text="old")), user(TextBlock(text="new"))
    for _ in range(3):
        sent([old, new], encoder)
    assert encoded == ["old", "new"]
    others = [user(TextBlock(text="other")) for _ in range(9)]
    for number in range(600):
        sent([others[number % 9]], encoder)
    sent([old, new], encoder)
    assert [text for text in encoded if text != "other"] == ["old", "new", "old", "new"]


def test_a_conversation_that_was_changed_in_the_middle_is_sent_as_it_is_now():
    encoder = RequestEncoder(WireOptions("host"))
    first, second, third = (user(TextBlock(text=text)) for text in "abc")
    for messages in ([first, second], [first, third], [first], [first, second, third]):
        texts = [message["content"] for message in sent(messages, encoder)["messages"]]
        assert texts == [message.text for message in messages]
    assert [item["content"] for item in sent([first], encoder, system="s")["messages"]] == ["s", "a"]


@pytest.mark.parametrize(
    ("style", "level", "fields"),
    [
        ("effort", "high", {"reasoning_effort": "high"}),
        ("effort", "off", {"reasoning_effort": "none"}),
        ("effort", 4000, {"reasoning_effort": "low"}),
        ("openrouter", "low", {"reasoning": {"effort": "low"}}),
        ("openrouter", 4000, {"reasoning": {"max_tokens": 4000}}),
        ("openrouter", "off", {"reasoning": {"enabled": False}}),
        ("template", "off", {"chat_template_kwargs": {"enable_thinking": False}}),
        ("thinking", "max", {"thinking": {"type": "enabled"}}),
        ("none", "high", {}),
    ],
)
def test_reasoning_levels_are_told_as_each_server_wants(style: Any, level: Any, fields: dict[str, Any]):
    body = sent(
        [user(TextBlock(text="a"))], RequestEncoder(WireOptions("h", reasoning=style)), reasoning=level
    )
    assert {
        name: value
        for name, value in body.items()
        if name not in {"model", "messages", "stream", "stream_options"}
    } == fields


def test_a_null_in_extra_removes_a_field_and_anything_else_is_added():
    body = sent([user(TextBlock(text="a"))], temperature=0.5, extra={"stream_options": None, "seed": 3})
    assert "stream_options" not in body
    assert (body["seed"], body["temperature"]) == (3, 0.5)


def test_a_schema_is_enforced_only_when_it_is_closed():
    closed = {"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False}
    for schema, strict in ((closed, True), ({**closed, "required": []}, False)):
        form = sent([user(TextBlock(text="a"))], output_schema=schema)["response_format"]
        assert form["json_schema"] == {"name": "answer", "schema": schema, "strict": strict}


def test_short_ids_are_nine_letters_and_equal_for_call_and_result():
    encoder = RequestEncoder(WireOptions("host", short_ids=True))
    use = ToolUseBlock(call_id="call_from_elsewhere", name="read")
    messages = sent([assistant(use), user(ToolResultBlock(call_id=use.call_id, output="x"))], encoder)[
        "messages"
    ]
    assert messages[0]["tool_calls"][0]["id"] == messages[1]["tool_call_id"]
    assert len(messages[1]["tool_call_id"]) == 9


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_content": "hm", "content": "yes"},
        {"reasoning": "hm", "content": "yes"},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "yes"}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "s", "index": 0}], "content": "yes"},
    ],
)  # fmt: skip
def test_thinking_goes_back_in_the_form_in_which_it_came_and_to_no_other_server(delta: dict[str, Any]):
    answer = decode(stream_of(delta))
    assert (answer.reasoning, answer.text) == ("hm", "yes")
    message = Message(role="assistant", content=answer.blocks)
    back = sent([message], RequestEncoder(WireOptions("host")))["messages"][0]
    expected = {"content": "yes", **delta}
    assert back == {"role": "assistant", **expected}
    other = sent([message], RequestEncoder(WireOptions("other")))["messages"][0]
    assert other == {"role": "assistant", "content": "yes"}


# What comes back


def test_fragments_of_calls_are_put_together_however_they_are_marked():
    whole = '{"a":1}'
    assert calls_of([call("f", '{"a"', index=1, id="i")], [call(None, ":1}", index=1)]) == [
        ("i", "f", {"a": 1})
    ]
    assert calls_of([call("f", '{"a"', index=0, id="i")], [call("", ":1}", index=0, id="")]) == [
        ("i", "f", {"a": 1})
    ]
    assert calls_of([call("f", whole, id="i"), call("g", whole, id="j")]) == [
        ("i", "f", {"a": 1}),
        ("j", "g", {"a": 1}),
    ]
    assert calls_of([call("f", '{"a"', id="i")], [call(None, ":1}")]) == [("i", "f", {"a": 1})]
    assert calls_of([call("f", {"a": 1}, index=0, id="i")]) == [("i", "f", {"a": 1})]
    same_index = calls_of([call("f", whole, index=0, id="i")], [call("g", "{}", index=0, id="j")])
    assert same_index == [("i", "f", {"a": 1}), ("j", "g", {})]
    repeated = calls_of([call("f", '{"a"', index=0, id="i")], [call("f", ":1}", index=0, id="i")])
    assert repeated == [("i", "f", {"a": 1})]


@pytest.mark.parametrize("arguments", ["", "{}", None, "null", {}])
def test_a_call_without_arguments_has_an_empty_object(arguments: Any):
    assert [item[2] for item in calls_of([call("f", arguments, index=0, id="i")])] == [{}]


def test_ids_are_made_up_when_missing_and_never_come_twice():
    made = calls_of([call("f", "{}", index=0), call("f", "{}", index=1, id=""), call("f", "{}", index=2, id="x")],
                    [call("f", "{}", index=3, id="x")])  # fmt: skip
    assert len({item[0] for item in made}) == 4
    assert (
        decode(stream_of({"tool_calls": [call("f", id="x", index=0)]}), taken=("x",)).tool_uses[0].call_id
        != "x"
    )


def test_arguments_that_were_cut_are_never_repaired():
    assert calls_of([call("f", '{"path": "/', index=0, id="i")], finish="length") == [
        ("i", "f", '{"path": "/')
    ]
    response = decode(stream_of({"tool_calls": [call("f", "", index=0, id="i")]}, finish="length"))
    assert response.stop == "max_tokens"
    assert response.tool_uses[0].raw_arguments == ""
    with pytest.raises(ProviderError) as caught:
        decode(stream_of({"tool_calls": [call("f", '{"a', index=0, id="i")]}, finish=None))
    assert caught.value.error_kind is ErrorKind.INCOMPLETE_STREAM


def test_a_stop_for_tools_without_any_call_is_no_stop_for_tools():
    assert decode(stream_of({"content": "hm"}, finish="tool_calls")).stop == "other"


def test_tools_that_the_server_ran_itself_are_no_calls():
    assert calls_of([{**call("search", "{}", index=0, id="i"), "type": "web_search"}]) == []


@pytest.mark.parametrize(
    ("finish", "done", "complete"),
    [("stop", True, True), ("stop", False, True), (None, True, True), ("", True, True), (None, False, False), ("", False, False)],
)  # fmt: skip
def test_an_answer_needs_a_finish_reason_or_an_end_mark(finish: str | None, done: bool, complete: bool):
    body = stream_of({"content": "hi"}, finish=finish, done=done)
    if complete:
        assert decode(body).text == "hi"
        return
    with pytest.raises(ProviderError) as caught:
        decode(body)
    assert caught.value.error_kind is ErrorKind.INCOMPLETE_STREAM


def test_an_error_after_the_finish_reason_is_an_error():
    body = stream_of({"content": "hi"}, done=False) + b'data: {"error": {"code": 502, "message": "lost"}}\n\n'
    with pytest.raises(ProviderError) as caught:
        decode(body + b"data: [DONE]\n\n")
    assert caught.value.error_kind is ErrorKind.PROVIDER_INTERNAL


def test_thinking_tags_at_the_start_are_thinking():
    response = decode(stream_of({"content": "<thi"}, {"content": "nk>hm</th"}, {"content": "ink>\nyes"}))
    assert (response.reasoning, response.text) == ("hm", "yes")


def test_usage_is_told_in_one_form():
    cases = [
        ({"prompt_tokens": 10, "completion_tokens": 4, "prompt_cache_hit_tokens": 6}, (4, 6, 0, 4, 0)),
        ({"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 21, "completion_tokens_details": {"reasoning_tokens": 7}},
         (10, 0, 0, 11, 7)),
        ({"prompt_tokens": 10, "completion_tokens": 9, "total_tokens": 19, "completion_tokens_details": {"reasoning_tokens": 7}},
         (10, 0, 0, 9, 7)),
        ({"prompt_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 5}},
         (2, 3, 5, 1, 0)),
    ]  # fmt: skip
    for raw, numbers in cases:
        usage = normalise(raw)
        assert usage is not None
        assert (usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning) == numbers
    assert normalise({}) is None


_DELTAS = st.lists(
    st.one_of(
        st.builds(lambda text: {"content": text}, st.text(max_size=8)),
        st.builds(lambda text: {"reasoning_content": text}, st.text(max_size=8)),
        st.sampled_from(
            [{"content": "<think>"}, {"content": "</think>"}, {"content": None}, {"refusal": "no"}]
        ),
        st.builds(
            lambda index, text: {"tool_calls": [call("f", text, index=index, id=f"c{index}")]},
            st.integers(0, 2),
            st.sampled_from(["", "{", "}", '"a":1', '{"é": "\\ud83d"}']),
        ),
    ),
    max_size=8,
)


@given(_DELTAS, st.sampled_from(["\n", "\r\n", "\r"]), st.lists(st.integers(0, 3000), max_size=10))
def test_an_answer_does_not_depend_on_where_its_bytes_are_cut(deltas: list[Any], end: str, cuts: list[int]):
    body = stream_of(*deltas).replace(b"\n", end.encode())
    edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    pieces = [body[start:stop] for start, stop in pairwise(edges)]
    assert decode(body, pieces=pieces) == decode(body)


@given(st.binary(max_size=200))
def test_garbage_is_always_a_provider_error(body: bytes):
    with pytest.raises(ProviderError):
        decode(body)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["choices", "delta", "message", "tool_calls", "function", "usage", "error", "content",
                         "reasoning_details", "finish_reason", "id", "name", "arguments", "index", "x_groq", "text"]),
        inner, max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.lists(_JSON, max_size=4), st.booleans())
def test_json_of_any_shape_is_an_answer_or_a_provider_error(chunks: list[Any], whole: bool):
    body = b"".join(b"data: %s\n\n" % json.dumps(chunk).encode() for chunk in chunks)
    body = json.dumps(chunks[:1]).encode() if whole else body + b"data: [DONE]\n\n"
    with suppress(ProviderError):
        assert isinstance(decode(body), ProviderResponse)
