"""Answers of the Responses API: what servers really send, whole, in pieces, cut and failed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aar.protocol.errors import ErrorKind, ProviderError
from aar.protocol.messages import ReasoningBlock, TextBlock
from aar.protocol.usage import Usage
from aar.providers.openai.seal import unsealed
from tests.providers.openai.wire import Item, call, events, message, read, reasoning, response, search, sse

TEXTS = st.text(max_size=12)
ARGUMENTS = st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=5), max_size=3).map(
    json.dumps
)
ITEMS = st.lists(
    st.one_of(
        st.builds(message, TEXTS, TEXTS),
        st.builds(lambda text: message(refusal=text), TEXTS),
        st.builds(reasoning, TEXTS, TEXTS, encrypted=st.none() | st.just("gAAA")),
        st.builds(lambda text: reasoning(content=[{"type": "reasoning_text", "text": text}]), TEXTS),
        st.builds(call, st.sampled_from(["read", "bash"]), ARGUMENTS, st.uuids().map(str)),
        st.just(search()),
    ),
    max_size=5,
)


def failure(body: bytes) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        read(body)
    assert "\n" not in str(caught.value)
    return caught.value


@given(ITEMS, st.integers(1, 9), st.booleans(), st.sampled_from(["\n", "\r\n", "\r"]), st.data())
@settings(max_examples=80, deadline=None)
def test_a_streamed_answer_equals_the_whole_one_however_its_bytes_are_cut(
    items: list[Item], cut: int, names: bool, line: str, data: st.DataObject
):
    body = sse(events(items, cut=cut), names=names, line=line)
    places = sorted(data.draw(st.sets(st.integers(1, max(1, len(body) - 1)), max_size=12)))
    pieces = [body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)]
    deltas, streamed = read(*pieces)
    _, whole = read(json.dumps(response(items)).encode())
    assert streamed == whole
    assert "".join(delta.text for delta in deltas) == "".join(
        part.get("text", part.get("refusal", ""))
        for item in items
        if item["type"] == "message"
        for part in item["content"]
    )
    named = [delta.tool_name for delta in deltas if delta.tool_name]
    assert named == [use.name for use in streamed.tool_uses]


@given(ITEMS.filter(bool), st.data())
@settings(max_examples=40, deadline=None)
def test_a_stream_that_just_ends_is_an_error(items: list[Item], data: st.DataObject):
    body = sse(list(events(items))[:-1])
    error = failure(body[: data.draw(st.integers(0, len(body)))])
    assert error.error_kind is ErrorKind.INCOMPLETE_STREAM


def test_a_done_mark_alone_does_not_make_an_answer_complete():
    body = sse(list(events([message("half")]))[:-1]) + b"data: [DONE]\n\n"
    assert failure(body).error_kind is ErrorKind.INCOMPLETE_STREAM


def test_usage_is_normalised_and_the_server_s_words_are_kept():
    _, answer = read(sse(events([message("hello")])), headers={"x-request-id": "req_9"})
    assert answer.usage == Usage(input=6, output=12, cache_read=20, cache_write=4, reasoning=7)
    assert (answer.stop, answer.stop_raw, answer.model) == ("end_turn", "completed", "gpt-x")
    assert answer.request_id == "req_9"


def test_reasoning_is_kept_whole_and_sealed_for_its_server():
    item = reasoning("I ", "think", encrypted="gAAA-secret", status="completed", content=[])
    _, answer = read(sse(events([item, call("read", "{}")])))
    block = answer.blocks[0]
    assert isinstance(block, ReasoningBlock)
    assert block.text == "I think"
    kept = {name: item[name] for name in ("type", "id", "summary", "encrypted_content")}
    assert unsealed(block, "host") == (kept, None)
    assert unsealed(block, "elsewhere") == (None, None)
    assert answer.stop == "tool_use"


def test_reasoning_that_the_server_would_have_to_look_up_is_not_sent_back():
    _, answer = read(sse(events([reasoning("a thought", encrypted=None), message("hi")])))
    assert answer.blocks == (ReasoningBlock(text="a thought"), TextBlock(text="hi"))


def test_tools_that_the_server_runs_are_kept_and_never_run():
    interpreter = {"type": "code_interpreter_call", "id": "ci_1", "code": "1+1", "status": "completed"}
    mcp = {"type": "mcp_call", "id": "mcp_1", "name": "drop", "arguments": "{}", "server_label": "s"}
    _, answer = read(sse(events([search(), interpreter, mcp, message("found")])))
    assert answer.tool_uses == ()
    kept = [unsealed(block, "host")[0] for block in answer.blocks if isinstance(block, ReasoningBlock)]
    assert kept == [search(), interpreter, mcp]
    assert answer.stop == "end_turn"


def test_a_call_that_the_client_would_have_to_answer_but_cannot_is_dropped():
    _, answer = read(sse(events([{"type": "local_shell_call", "id": "l", "call_id": "c"}, message("hi")])))
    assert answer.blocks == (TextBlock(text="hi"),)


def test_the_phase_of_a_message_is_kept_with_what_stands_before_it():
    items = [reasoning("why"), message("a note", phase="commentary"), message("done", phase="final_answer")]
    _, answer = read(sse(events(items)))
    sealed = [unsealed(block, "host") for block in answer.blocks if isinstance(block, ReasoningBlock)]
    assert [phase for _, phase in sealed] == ["commentary", "final_answer"]
    assert answer.text == "a notedone"


def test_a_refusal_is_text_and_marked():
    deltas, answer = read(sse(events([message(refusal="I cannot help.")])))
    assert (answer.text, answer.refusal, answer.stop) == ("I cannot help.", True, "refusal")
    assert "".join(delta.text for delta in deltas) == "I cannot help."


@pytest.mark.parametrize(
    ("reason", "stop", "refusal"),
    [("max_output_tokens", "max_tokens", False), ("content_filter", "refusal", True)],
)
def test_an_incomplete_answer_tells_why(reason: str, stop: str, refusal: bool):
    end = response([message("half")], "incomplete", incomplete_details={"reason": reason})
    _, answer = read(sse(events([message("half")], end)))
    assert (answer.stop, answer.stop_raw, answer.refusal) == (stop, "incomplete", refusal)
    assert answer.text == "half"


@pytest.mark.parametrize("arguments", ['{"path": "a', '{"path": "a"}', ""])
def test_a_call_that_was_cut_is_never_taken_for_a_shorter_one(arguments: str):
    items = [call("read", arguments, status="incomplete")]
    end = response(items, "incomplete", incomplete_details={"reason": "max_output_tokens"})
    for body in (sse(events(items, end)), json.dumps(end).encode()):
        _, answer = read(body)
        assert [use.raw_arguments for use in answer.tool_uses] == [arguments]
        assert answer.stop == "max_tokens"


@pytest.mark.parametrize("arguments", ["", "{}", "null"])
def test_no_arguments_are_an_empty_object(arguments: str):
    _, answer = read(sse(events([call("now", arguments)])))
    assert [(use.arguments, use.raw_arguments) for use in answer.tool_uses] == [({}, None)]


def test_ids_of_calls_are_unique_in_the_conversation():
    items = [
        call("a", "{}", "call_1"),
        call("b", "{}", "call_1"),
        call("c", "{}", ""),
        call("d", "{}", "call_0"),
    ]
    _, answer = read(sse(events(items)), taken_ids={"call_0"})
    ids = [use.call_id for use in answer.tool_uses]
    assert ids[0] == "call_1"
    assert len({*ids, "call_0"}) == 5
    assert all(ids)


def test_a_server_that_sends_no_pieces_is_read_from_its_end():
    whole = response([reasoning("why"), message("hello"), call("read", '{"a": 1}')])
    deltas, answer = read(sse([{"type": "response.completed", "response": whole}]))
    assert "".join(delta.text for delta in deltas) == "hello"
    assert [(use.name, use.arguments) for use in answer.tool_uses] == [("read", {"a": 1})]
    assert answer == read(json.dumps(whole).encode())[1]


def test_a_server_whose_end_repeats_nothing_is_read_from_its_pieces():
    items = [message("hello"), call("read", '{"a": 1}')]
    _, answer = read(sse(events(items, response([]))))
    assert answer.text == "hello"
    assert [use.arguments for use in answer.tool_uses] == [{"a": 1}]


def test_unknown_events_and_comments_are_passed_over():
    told = [*events([message("hello")])]
    told.insert(1, {"type": "response.new_thing.delta", "delta": "noise", "output_index": 0})
    told.insert(1, {"type": "keepalive", "sequence_number": 3})
    _, answer = read(b": ping\n\n" + sse(told))
    assert answer.blocks == (TextBlock(text="hello"),)


QUOTA: Item = {"code": "insufficient_quota", "message": "You exceeded your current quota."}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (QUOTA, ErrorKind.QUOTA),
        ({"code": "server_error", "message": "An error occurred."}, ErrorKind.PROVIDER_INTERNAL),
        ({"code": "rate_limit_exceeded", "message": "Slow down."}, ErrorKind.RATE_LIMIT),
        ({"code": "context_length_exceeded", "message": "Too long."}, ErrorKind.CONTEXT_OVERFLOW),
        ({"code": "invalid_api_key", "message": "Incorrect API key provided."}, ErrorKind.AUTH),
        ({"code": "invalid_prompt", "message": "This cannot be answered."}, ErrorKind.INVALID_REQUEST),
        ({"code": "image_parse_error", "message": "The image is broken."}, ErrorKind.INVALID_REQUEST),
        ({"code": "bio_policy", "message": "Not this."}, ErrorKind.CONTENT_FILTER),
    ],
)
def test_errors_inside_an_answer_have_their_kind_in_every_shape(error: Item, kind: ErrorKind):
    failed = response([], "failed", error=error, usage=None)
    half = [*events([call("bash", '{"command": "rm"}')])][:-1]
    shapes: list[Any] = [
        sse([{"type": "response.failed", "response": failed}]),
        sse([*half, {"type": "response.failed", "response": failed}]),
        sse([*half, {"type": "error", "error": {"type": "x", **error}}]),
        sse([*half, {"type": "error", "sequence_number": 3, **error}], names=False),
        json.dumps(failed).encode(),
        json.dumps({"error": error}).encode(),
    ]
    assert [failure(body).error_kind for body in shapes] == [kind] * len(shapes)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", ErrorKind.INCOMPLETE_STREAM),
        (b"<html><title>502</title></html>", ErrorKind.MALFORMED_RESPONSE),
        (b'{"object": "response", "status": "comp', ErrorKind.INCOMPLETE_STREAM),
        (b'{"object": "response", "status": "in_progress", "output": []}', ErrorKind.INCOMPLETE_STREAM),
        (b'{"object": "response", "status": "cancelled", "output": []}', ErrorKind.PROVIDER_INTERNAL),
        (b'{"hello": "world"}', ErrorKind.MALFORMED_RESPONSE),
        (b'{"choices": []}', ErrorKind.MALFORMED_RESPONSE),
        (b"[1, 2]", ErrorKind.MALFORMED_RESPONSE),
        (b"data: {broken\n\n", ErrorKind.MALFORMED_RESPONSE),
        (
            sse([{"type": "response.completed", "response": response([call("", "{}")])}]),
            ErrorKind.MALFORMED_RESPONSE,
        ),
    ],
)
def test_what_is_no_answer_is_an_error(body: bytes, kind: ErrorKind):
    assert failure(body).error_kind is kind


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=4),
        lambda x: (
            st.lists(x, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "type",
                        "item",
                        "output_index",
                        "delta",
                        "response",
                        "output",
                        "content",
                        "part",
                        "status",
                    ]
                ),
                x
                | st.sampled_from(
                    ["message", "function_call", "response.output_item.done", "response.completed"]
                ),
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
@settings(max_examples=100, deadline=None)
def test_whatever_json_comes_ends_in_an_answer_or_a_provider_error(event: Any):
    body = b"data: " + json.dumps(event).encode() + b"\n\n"
    try:
        outcome: object = read(body, sse([{"type": "response.completed", "response": response([])}]))[
            1
        ].stop_raw
    except ProviderError as error:
        outcome = error.error_kind
    assert outcome == "completed" or outcome in set(ErrorKind)
