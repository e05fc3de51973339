"""Reading and writing Ollama's wire: recordings, every cut of the bytes, and requests of the documented shape."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
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
from aar.providers.chat_completions.decode import AnswerContext
from aar.providers.chat_completions.encode import WireOptions
from aar.providers.ollama.decode import OllamaBodyDecoder
from aar.providers.ollama.encode import OllamaEncoder, think_value
from tests.providers.ollama.server import Says
from tests.providers.test_recordings import KINDS, body_of, cases, check_calls, check_usage

PIXEL = "iVBORw0KGgo="


def read(pieces: Sequence[bytes]) -> ProviderResponse:
    decoder = OllamaBodyDecoder(AnswerContext(server="host", model="m"))
    deltas = [delta for piece in pieces for delta in decoder.feed(piece)] + decoder.finish()
    response = deltas[-1].response
    assert response is not None
    assert "".join(delta.text for delta in deltas) == response.text
    assert "".join(delta.reasoning for delta in deltas) == response.reasoning
    return response


def failure(body: bytes) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        read([body])
    assert "\n" not in str(caught.value)
    return caught.value


def outcome(pieces: Sequence[bytes]) -> object:
    try:
        response = read(pieces)
    except ProviderError as error:
        return error.error_kind, str(error)
    blocks = [block.model_dump(exclude={"call_id"}) for block in response.blocks]
    return blocks, response.usage, response.stop, response.stop_raw


@pytest.mark.parametrize(("folder", "case"), cases(lambda case: case["provider"] == "ollama"))
def test_a_recording_is_read_exactly_and_however_it_is_cut(folder: Path, case: dict[str, Any]):
    body, expect = body_of(folder), case["expect"]
    each_byte = [body[at : at + 1] for at in range(len(body))]
    assert outcome(each_byte) == outcome([body])
    if not case["complete"]:
        assert failure(body).error_kind in KINDS[expect["error"]["category"]]
        return
    response = read([body])
    assert response.text == expect["text"]
    assert response.reasoning == expect["reasoning"]
    assert response.stop_raw == expect["stop_reason_raw"]
    check_calls(response, expect)
    check_usage(response, expect["usage"])


RICH = Says(
    text="Café <b>\n done — ✓",
    thinking="let me\n think ü",
    calls=[("read", {"path": "ä.txt", "n": [1, {"x": None}]}), ("read", {}), ("ls", {"path": "."})],
    prompt=30,
    cached=12,
)


def test_streamed_and_whole_answers_are_equal():
    streamed, whole = outcome(RICH.lines()), outcome([RICH.whole()])
    assert streamed == whole
    response = read(RICH.lines())
    assert [block.type for block in response.blocks] == ["reasoning", "text", *["tool_use"] * 3]
    assert [call.arguments for call in response.tool_uses] == [
        {"path": "ä.txt", "n": [1, {"x": None}]},
        {},
        {"path": "."},
    ]
    assert len({call.call_id for call in response.tool_uses}) == 3
    assert response.usage is not None
    assert (response.usage.input, response.usage.cache_read, response.usage.output) == (18, 12, 6)
    assert response.stop == "tool_use"


@settings(max_examples=150, deadline=None)
@given(cuts=st.lists(st.integers(0, 900), max_size=40), crlf=st.booleans(), pretty=st.booleans())
def test_the_answer_does_not_depend_on_how_its_bytes_are_cut(cuts: list[int], crlf: bool, pretty: bool):
    body = b"".join(RICH.lines())
    if pretty:
        body = json.dumps(json.loads(RICH.whole()), indent=1, ensure_ascii=False).encode()
    if crlf:
        body = body.replace(b"\n", b"\r\n")
    places = sorted({0, *(cut for cut in cuts if cut < len(body)), len(body)})
    pieces = [body[start:end] for start, end in itertools.pairwise(places)]
    assert outcome(pieces) == outcome([body]) == outcome(RICH.lines())


@settings(max_examples=80, deadline=None)
@given(cut=st.integers(0, 10_000))
def test_a_stream_without_its_last_line_is_an_error_wherever_it_ends(cut: int):
    body = b"".join(RICH.lines())
    last = body.rindex(b"\n", 0, -1)
    error = failure(body[: cut % (last + 2)])
    assert error.error_kind is ErrorKind.INCOMPLETE_STREAM


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"error":"llama runner process has terminated: exit status 2"}\n', ErrorKind.PROVIDER_INTERNAL),
        (b"".join(Says(text="half", error="unexpected EOF").lines()), ErrorKind.PROVIDER_INTERNAL),
        (b"<html><title>Bad gateway</title></html>", ErrorKind.MALFORMED_RESPONSE),
        (b'{"hello":1}\n', ErrorKind.MALFORMED_RESPONSE),
        (b'[1]\n{"done":true}\n', ErrorKind.MALFORMED_RESPONSE),
        (b'{"message":{"content":"a"}}\n}{\n', ErrorKind.MALFORMED_RESPONSE),
        (b"", ErrorKind.INCOMPLETE_STREAM),
        (b"\n\n", ErrorKind.INCOMPLETE_STREAM),
    ],
)
def test_a_body_that_is_no_answer_has_the_right_kind(body: bytes, kind: ErrorKind):
    assert failure(body).error_kind is kind


def test_odd_answers_are_read_for_what_they_say():
    tagged = read(Says(text="<think>hm</think>\n\nYes").lines())
    assert (tagged.reasoning, tagged.text) == ("hm", "Yes")
    cut = read(Says(text="ab", reason="length", prompt=None).lines())
    assert (cut.stop, cut.stop_raw, cut.usage) == ("max_tokens", "length", None)
    assert read(Says(text="ab", reason=None).lines()).stop == "end_turn"
    broken = read(Says(calls=[("read", '{"path": "x')]).lines()).tool_uses[0]
    assert (broken.arguments, broken.raw_arguments) == ({}, '{"path": "x')
    assert read(Says(calls=[("read", '{"path": "x"}')]).lines()).tool_uses[0].arguments == {"path": "x"}


# --- Requests ------------------------------------------------------------------------------------------


def encode(*messages: Message, **more: Any) -> dict[str, Any]:
    request = ProviderRequest(model=more.pop("model", "qwen3"), system="be brief", messages=messages, **more)
    extra = request.extra
    body = OllamaEncoder(WireOptions("host")).encode(request, stream=True, extra=extra).body
    return json.loads(body)


CONVERSATION = (
    Message(role="user", content=(TextBlock(text="look"), ImageBlock(media_type="image/png", data=PIXEL))),
    Message(
        role="assistant",
        content=(
            ReasoningBlock(text="I should read both."),
            TextBlock(text="Reading."),
            ToolUseBlock(call_id="a", name="read", arguments={"path": "x"}),
            ToolUseBlock(call_id="b", name="shot", arguments={}),
            ToolUseBlock(call_id="c", name="read", raw_arguments='{"path'),
        ),
    ),
    Message(
        role="user",
        content=(
            ToolResultBlock(call_id="a", name="read", output="one"),
            ToolResultBlock(
                call_id="b", name="shot", output="", images=(ImageBlock(media_type="image/png", data=PIXEL),)
            ),
            ToolResultBlock(call_id="c", name="read", output="Error", is_error=True),
            ResourceBlock(uri='a"b', text="body"),
            TextBlock(text="and now?"),
        ),
    ),
)


async def _unused(*_: Any) -> None:
    return None


TOOL = ToolSpec(
    name="read",
    description="Reads.",
    input_schema={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    side_effects=frozenset(),
    handler=_unused,
)


def test_a_conversation_with_tools_thinking_and_images_has_the_documented_shape():
    body = encode(*CONVERSATION, tools=(TOOL,), reasoning="high", max_output_tokens=99, stop=("END",))
    types = pytest.importorskip("ollama._types")
    types.ChatRequest.model_validate({key: value for key, value in body.items() if key != "options"})
    types.Options.model_validate(body["options"])
    assert [message["role"] for message in body["messages"]] == [
        *("system", "user", "assistant", "tool", "tool", "tool", "user")
    ]
    _, look, answer, one, two, three, now = body["messages"]
    assert look == {"role": "user", "content": "look", "images": [PIXEL]}
    assert answer["thinking"] == "I should read both."
    assert answer["content"] == "Reading."
    assert [call["function"]["arguments"] for call in answer["tool_calls"]] == [
        {"path": "x"},
        {},
        {"unparsed_arguments": '{"path'},
    ]
    assert one == {"role": "tool", "tool_name": "read", "content": "one", "tool_call_id": "a"}
    assert two["images"] == [PIXEL]
    assert [item["tool_call_id"] for item in (one, two, three)] == [
        call["id"] for call in answer["tool_calls"]
    ]
    assert now["content"] == '<resource uri="a%22b">\nbody\n</resource>\n\nand now?'
    assert body["options"] == {"num_predict": 99, "stop": ["END"]}
    assert body["think"] is True
    assert (body["truncate"], body["shift"]) == (False, False)


def test_options_of_the_config_are_merged_and_a_schema_becomes_the_format():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    extra = {"options": {"seed": 7, "temperature": 0.9}, "keep_alive": "5m"}
    body = encode(CONVERSATION[0], output_schema=schema, temperature=0.1, extra=extra)
    assert body["format"] == schema
    assert body["options"] == {"temperature": 0.9, "seed": 7}
    assert body["keep_alive"] == "5m"


@pytest.mark.parametrize(
    ("model", "level", "value"),
    [
        ("qwen3:8b", "off", False),
        ("qwen3:8b", "minimal", True),
        ("qwen3:8b", 5000, True),
        ("qwen3:8b", 0, False),
        ("gpt-oss:20b", "off", "low"),
        ("gpt-oss:20b", "minimal", "low"),
        ("gpt-oss:20b", "max", "high"),
        ("gpt-oss:20b", 7000, "medium"),
        ("gpt-oss:20b", 90_000, "high"),
    ],
)
def test_reasoning_levels_become_think(model: str, level: str | int, value: bool | str):
    assert think_value(model, level) == value
