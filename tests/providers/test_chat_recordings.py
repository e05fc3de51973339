"""Recorded chat completions through the provider itself: asked for a stream or not, whole or cut anywhere."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aar.protocol.errors import ProviderError
from aar.protocol.messages import Message, TextBlock
from aar.providers.base import Delta, ProviderCapabilities, ProviderRequest, ProviderResponse
from aar.providers.openai_compatible import Endpoint, OpenAICompatibleProvider
from tests.providers.test_recordings import KINDS, body_of, cases, check_calls, check_usage, read
from tests.support.model_server import ModelServer, Reply

ASK = ProviderRequest(
    model="m", system="s", messages=[Message(role="user", content=(TextBlock(text="hello"),))]
)


def told(response: ProviderResponse) -> list[dict[str, Any]]:
    """Return what an answer says, without ids that were made up and without what is sealed."""
    return [block.model_dump(exclude={"call_id", "data", "redacted"}) for block in response.blocks]


def replying(case: dict[str, Any], body: bytes) -> Reply:
    # Only success is decoded as the recording's type says; errors are JSON either way.
    headers = {name.lower(): value for name, value in case["headers"].items()}
    return Reply(status=case["status"], body=body, content_type=case["content_type"], headers=headers)


async def asked(server: ModelServer, *, stream: bool) -> ProviderResponse | ProviderError:
    endpoint = Endpoint(name="x", base_url=server.base_url, timeout=60, stream=stream)
    provider = OpenAICompatibleProvider(endpoint, lambda model: ProviderCapabilities())
    try:
        deltas: list[Delta] = [delta async for delta in provider.stream(ASK)]
    except ProviderError as error:
        return error
    finally:
        await provider.aclose()
    assert deltas[-1].response is not None
    return deltas[-1].response


@pytest.mark.parametrize(("folder", "case"), cases())
async def test_a_recording_is_the_same_answer_however_it_was_asked_for(folder: Path, case: dict[str, Any]):
    async with ModelServer([replying(case, body_of(folder))]) as server:
        one, other = await asked(server, stream=True), await asked(server, stream=False)
    assert [request.body["stream"] for request in server.requests] == [True, False]
    assert isinstance(one, ProviderResponse) == isinstance(other, ProviderResponse) == case["complete"]
    if isinstance(one, ProviderResponse) and isinstance(other, ProviderResponse):
        assert told(one) == told(other)
        assert (one.usage, one.stop, one.stop_raw) == (other.usage, other.stop, other.stop_raw)
        check_calls(one, case["expect"])
        check_usage(one, case["expect"]["usage"])
    elif isinstance(one, ProviderError) and isinstance(other, ProviderError):
        assert one.error_kind in KINDS[case["expect"]["error"]["category"]]
        assert (one.error_kind, str(one)) == (other.error_kind, str(other))


def has_stream(case: dict[str, Any]) -> bool:
    return case["provider"] in {"openai-compatible", "openai-chat"} and case["complete"] and case["stream"]


@pytest.mark.parametrize(("folder", "case"), cases(has_stream))
def test_a_recorded_stream_says_the_same_as_one_document(folder: Path, case: dict[str, Any]):
    streamed = read(case, [body_of(folder)])[1]
    message: dict[str, Any] = {"role": "assistant", "content": streamed.text or None}
    if streamed.reasoning:
        message["reasoning_content"] = streamed.reasoning
    calls = [
        {
            "id": call.call_id,
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": json.dumps(call.arguments) if call.raw_arguments is None else call.raw_arguments,
            },
        }
        for call in streamed.tool_uses
    ]
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": streamed.stop_raw}
    document = {"id": "x", "choices": [choice], "usage": case["expect"]["usage_raw"]}
    whole = read(case, [json.dumps(document).encode()])[1]
    # A document has one field for all text and one for all thinking: their order among the calls is lost.
    assert whole.text == streamed.text
    assert whole.reasoning == streamed.reasoning
    assert whole.tool_uses == streamed.tool_uses
    assert whole.stop == streamed.stop or streamed.refusal
    if case["expect"]["usage_raw"]:
        assert whole.usage == streamed.usage


@settings(max_examples=12, deadline=None)
@given(cuts=st.lists(st.integers(0, 10_000), max_size=30), data=st.data())
def test_recorded_bytes_may_be_cut_anywhere(cuts: list[int], data: st.DataObject):
    found = cases()
    if found[0].values[0] is None:
        pytest.skip("no recordings")
    folder, case = data.draw(st.sampled_from([item.values for item in found]), label="recording")
    body = body_of(folder)
    places = sorted({0, *(cut % (len(body) + 1) for cut in cuts), len(body)})
    pieces = [body[start:end] for start, end in itertools.pairwise(places)]

    def outcome(parts: list[bytes]) -> object:
        try:
            response = read(case, parts)[1]
        except ProviderError as error:
            return error.error_kind, str(error)
        return told(response), response.usage, response.stop, response.stop_raw

    assert outcome(pieces) == outcome([body])
