"""Real traffic of OpenAI's two wires, through the provider. The recordings lie outside of the repository."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from aar.protocol.errors import RETRYABLE_KINDS, ErrorKind, ProviderError
from aar.protocol.messages import ReasoningBlock
from aar.providers.openai.seal import unsealed
from tests.providers.openai.asking import ask, response_of
from tests.providers.openai.wire import read
from tests.providers.test_recordings import KINDS, body_of, cases, check_calls, check_usage
from tests.support.model_server import Reply

WIRES = {"openai-responses", "openai-chat"}


def reply_of(folder: Path, case: dict[str, Any]) -> Reply:
    return Reply(
        body=body_of(folder),
        status=case["status"],
        content_type=case["content_type"],
        headers=case["headers"],
    )


def of_openai(case: dict[str, Any]) -> bool:
    return case["provider"] in WIRES


@pytest.mark.parametrize(("folder", "case"), cases(of_openai))
async def test_a_recorded_answer_passes_the_provider_exactly(folder: Path, case: dict[str, Any]):
    expect = case["expect"]
    chat = case["provider"] == "openai-chat"
    reply = reply_of(folder, case)
    asked = ask([reply], api="chat" if chat else "responses")
    if not case["complete"]:
        with pytest.raises(ProviderError) as caught:
            await asked
        assert caught.value.error_kind in KINDS[expect["error"]["category"]]
        assert (caught.value.error_kind in RETRYABLE_KINDS) == expect["error"]["retryable"]
        return
    (deltas,), server = await asked
    response = response_of(deltas)
    assert server.requests[0].path == ("/v1/chat/completions" if chat else "/v1/responses")
    assert response.text == expect["text"] + (expect.get("refusal") or "")
    assert response.reasoning == expect["reasoning"]
    assert (response.stop_raw or "") == (expect["stop_reason_raw"] or "")
    assert "".join(delta.text for delta in deltas) == response.text
    assert "".join(delta.reasoning for delta in deltas) == response.reasoning
    check_calls(response, expect)
    check_usage(response, expect["usage"])
    sealed = [
        unsealed(block, "127.0.0.1")[0] or {}
        for block in response.blocks
        if isinstance(block, ReasoningBlock)
    ]
    kept = [
        {"id": item.get("id"), "encrypted_content": item["encrypted_content"]}
        for item in sealed
        if item.get("encrypted_content")
    ]
    assert kept == expect.get("encrypted_reasoning", [])


def is_stream(case: dict[str, Any]) -> bool:
    return case["provider"] == "openai-responses" and case["stream"] and case["complete"]


@pytest.mark.parametrize(("folder", "case"), cases(is_stream))
def test_the_whole_response_inside_a_recorded_stream_reads_the_same(folder: Path, case: dict[str, Any]):
    body = body_of(folder)
    events = [json.loads(line[5:]) for line in body.splitlines() if line.startswith(b"data: {")]
    _, streamed = read(body)
    _, whole = read(json.dumps(events[-1]["response"]).encode())
    assert streamed == whole


def is_read_in_pieces(case: dict[str, Any]) -> bool:
    return case["provider"] == "openai-responses" and case["status"] == 200


@pytest.mark.parametrize(("folder", "case"), cases(is_read_in_pieces))
def test_a_recorded_body_does_not_depend_on_how_its_bytes_are_cut(folder: Path, case: dict[str, Any]):
    body = body_of(folder)
    chance = random.Random(case["body_sha256"])

    def outcome(*pieces: bytes) -> object:
        try:
            return read(*pieces)[1]
        except ProviderError as error:
            return error.error_kind, str(error)

    whole = outcome(body)
    for largest in (3, 40, 900):
        places = [0]
        while places[-1] < len(body):
            places.append(places[-1] + chance.randint(1, largest))
        assert outcome(*(body[a:b] for a, b in pairwise(places))) == whole


@pytest.mark.parametrize(("folder", "case"), cases(is_stream))
def test_a_recorded_stream_that_is_cut_never_ends_well(folder: Path, case: dict[str, Any]):
    body = body_of(folder)
    stop = body.rindex(b'"type":"response.completed"')
    stop = body.rindex(b"data:", 0, stop)
    chance = random.Random(case["body_sha256"])
    for _ in range(5):
        with pytest.raises(ProviderError) as caught:
            read(body[: chance.randint(0, stop)])
        assert caught.value.error_kind is ErrorKind.INCOMPLETE_STREAM
