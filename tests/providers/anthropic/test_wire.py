"""Answers: oddities of the wire, and one response whatever the form and however the bytes are cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aar.protocol.errors import ErrorKind, ProviderError
from aar.protocol.messages import ReasoningBlock
from aar.providers.anthropic.decode import normalise
from tests.providers.anthropic.support import decode, events, message, stream_of

texts = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)
inputs = st.dictionaries(
    texts, st.one_of(texts, st.integers(-9, 9), st.none(), st.lists(texts, max_size=2)), max_size=3
)
blocks = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, texts),
    st.builds(
        lambda text, seal: {"type": "thinking", "thinking": text, "signature": seal},
        st.text(max_size=9),
        texts,
    ),
    st.builds(lambda data: {"type": "redacted_thinking", "data": data}, texts),
    st.builds(
        lambda value: {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": value}, inputs
    ),
    st.builds(lambda text: {"type": "web_fetch_tool_result", "tool_use_id": "srv_1", "content": text}, texts),
    st.builds(lambda text: {"type": "block_from_the_future", "content": text}, texts),
)
calls = st.builds(lambda value: {"type": "tool_use", "name": "read", "input": value}, inputs)


@given(
    content=st.lists(st.one_of(blocks, calls), max_size=6),
    stop=st.sampled_from(["end_turn", "tool_use", "stop_sequence", "refusal", "pause_turn", "a_new_reason"]),
    piece=st.integers(1, 7),
    cuts=st.lists(st.integers(1, 40), min_size=1, max_size=30),
    ends=st.sampled_from([b"\n", b"\r\n", b"\r"]),
)
def test_every_form_and_every_cut_of_an_answer_gives_the_same_response(
    content: list[dict[str, Any]], stop: str, piece: int, cuts: list[int], ends: bytes
):
    numbered = [
        {**block, "id": f"toolu_{place}"} if block["type"] == "tool_use" else block
        for place, block in enumerate(content)
    ]
    whole = message(*numbered, stop=stop)
    expected = decode([json.dumps(whole).encode()])[1]
    body = stream_of(whole, piece=piece).replace(b"\n", ends)
    pieces: list[bytes] = []
    place = 0
    while place < len(body):
        size = cuts[len(pieces) % len(cuts)]
        pieces.append(body[place : place + size])
        place += size
    deltas, response = decode(pieces)
    assert response == expected
    assert "".join(delta.text for delta in deltas) == response.text
    assert "".join(delta.reasoning for delta in deltas) == response.reasoning
    assert [call.arguments for call in response.tool_uses] == [
        block["input"] for block in numbered if block["type"] == "tool_use"
    ]
    with pytest.raises(ProviderError) as caught:
        decode([body[: body.rindex(b'{"type": "message_stop"')]])
    assert caught.value.error_kind is ErrorKind.INCOMPLETE_STREAM


@pytest.mark.parametrize(
    ("raw", "block", "stop", "kind"),
    [
        ("end_turn", {"type": "text", "text": "a"}, "end_turn", None),
        ("end_turn", {"type": "tool_use", "id": "t", "name": "read", "input": {}}, "tool_use", None),
        ("tool_use", {"type": "text", "text": "a"}, "other", None),
        ("max_tokens", {"type": "text", "text": "a"}, "max_tokens", None),
        ("model_context_window_exceeded", {"type": "text", "text": "a"}, "max_tokens", None),
        ("stop_sequence", {"type": "text", "text": "a"}, "stop_sequence", None),
        ("pause_turn", {"type": "text", "text": "a"}, "other", None),
        ("refusal", {"type": "text", "text": "a"}, "refusal", None),
        (None, {"type": "text", "text": "a"}, "end_turn", None),
    ],
)
def test_why_the_model_stopped_is_told_in_one_form(raw: Any, block: dict[str, Any], stop: str, kind: None):
    response = decode([stream_of(message(block, stop=raw))])[1]
    assert (response.stop, response.stop_raw, response.refusal) == (stop, raw, stop == "refusal")


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            ErrorKind.OVERLOADED,
        ),
        ({"type": "error", "error": {"type": "api_error", "message": "boom"}}, ErrorKind.PROVIDER_INTERNAL),
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}, ErrorKind.RATE_LIMIT),
        ({"type": "error", "error": {"type": "timeout_error", "message": "late"}}, ErrorKind.TIMEOUT),
        (
            {
                "type": "error",
                "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"},
            },
            ErrorKind.CONTEXT_OVERFLOW,
        ),
    ],
)
def test_an_error_inside_a_stream_ends_it_with_its_kind(data: dict[str, Any], kind: ErrorKind):
    begun = stream_of(
        message({"type": "tool_use", "id": "t", "name": "read", "input": {"p": "x"}}), end=False
    )
    for body in (begun + events(data), json.dumps(data).encode()):
        with pytest.raises(ProviderError) as caught:
            decode([body])
        assert caught.value.error_kind is kind


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", ErrorKind.INCOMPLETE_STREAM),
        (b'event: ping\ndata: {"type": "ping"}\n\n', ErrorKind.INCOMPLETE_STREAM),
        (b'{"type": "message", "content": [{"ty', ErrorKind.INCOMPLETE_STREAM),
        (b'{"type": "message"}', ErrorKind.MALFORMED_RESPONSE),
        (b'{"choices": [{"message": {"content": "x"}}]}', ErrorKind.MALFORMED_RESPONSE),
        (b"<html><title>Welcome</title></html>", ErrorKind.MALFORMED_RESPONSE),
        (b"upstream connect error", ErrorKind.MALFORMED_RESPONSE),
        (b"data: [1]\n\n", ErrorKind.MALFORMED_RESPONSE),
        (b"data: {broken\n\n", ErrorKind.MALFORMED_RESPONSE),
    ],
)
def test_what_is_no_answer_is_told_so(body: bytes, kind: ErrorKind):
    with pytest.raises(ProviderError) as caught:
        decode([body])
    assert caught.value.error_kind is kind
    assert "\n" not in str(caught.value)


def test_events_that_nobody_knows_and_pieces_without_a_beginning_do_no_harm():
    body = events(
        {"type": "message_start", "message": {"content": [], "usage": {"input_tokens": 1}}},
        {"type": "thread_from_the_future", "index": 3},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {}}},
        {
            "type": "content_block_delta",
            "index": 9,
            "delta": {"type": "input_json_delta", "partial_json": "{"},
        },
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    )
    response = decode([body])[1]
    assert (response.text, len(response.blocks), response.stop) == ("a", 1, "end_turn")


def test_arguments_that_were_cut_at_the_limit_are_never_run():
    used = {"type": "tool_use", "id": "t", "name": "write", "input": {"path": "a"}}
    whole = decode([json.dumps(message(used, stop="max_tokens")).encode()])[1]
    assert whole.tool_uses[0].raw_arguments == '{"path": "a"}'
    nothing = decode([stream_of(message({**used, "input": {}}, stop="max_tokens"))])[1]
    assert nothing.tool_uses[0].raw_arguments == ""
    finished = decode([stream_of(message(used, stop="max_tokens"))])[1]
    assert finished.tool_uses[0].arguments == {"path": "a"}
    earlier = decode(
        [json.dumps(message(used, {"type": "text", "text": "and"}, stop="max_tokens")).encode()]
    )[1]
    assert earlier.tool_uses[0].raw_arguments is None


def test_calls_without_an_id_or_with_one_that_was_used_get_their_own():
    used = {"type": "tool_use", "id": "t", "name": "read", "input": {}}
    for body in (
        stream_of(message(used, used, {**used, "id": ""})),
        json.dumps(message(used, used)).encode(),
    ):
        ids = [call.call_id for call in decode([body], taken=("t",))[1].tool_uses]
        assert len(set(ids)) == len(ids) >= 2
        assert "t" not in ids
    with pytest.raises(ProviderError, match="without a name"):
        decode([stream_of(message({"type": "tool_use", "id": "t", "input": {}}))])


def test_thinking_keeps_its_signature_and_its_place():
    content = [
        {"type": "thinking", "thinking": "", "signature": "Empty=="},
        {"type": "redacted_thinking", "data": "Secret"},
        {"type": "text", "text": "a"},
        {"type": "thinking", "thinking": "more", "signature": "More=="},
        {"type": "tool_use", "id": "t", "name": "read", "input": {}},
    ]
    found = decode([stream_of(message(*content, stop="tool_use"))])[1].blocks
    assert found[0] == ReasoningBlock(text="", signature="Empty==")
    assert found[1] == ReasoningBlock(data="Secret", redacted=True)
    assert found[3] == ReasoningBlock(text="more", signature="More==")
    assert [block.type for block in found] == ["reasoning", "reasoning", "text", "reasoning", "tool_use"]


def test_usage_excludes_the_cache_and_later_counts_replace_earlier_ones():
    raw = {
        "input_tokens": 10, "output_tokens": 7, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 30,
        "cache_creation": {"ephemeral_1h_input_tokens": 20}, "output_tokens_details": {"thinking_tokens": 4},
    }  # fmt: skip
    usage = normalise(raw)
    assert usage is not None
    assert (usage.input, usage.cache_read, usage.cache_write, usage.cache_write_1h) == (10, 90, 30, 20)
    assert (usage.output, usage.reasoning, usage.prompt) == (7, 4, 130)
    assert normalise({"service_tier": "standard", "input_tokens": None}) is None
    assert normalise({"input_tokens": -1, "output_tokens": True}) is None
