"""Real traffic of the Messages wire, read through the decoder and through the provider class."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aar.protocol.errors import RETRYABLE_KINDS, ErrorKind, ProviderError
from aar.protocol.messages import ReasoningBlock, TextBlock, ToolUseBlock
from aar.providers.base import Delta, ProviderResponse
from aar.providers.http.errors import server_error
from tests.providers.anthropic.support import KEY, ask, decode, provider_at
from tests.providers.test_recordings import KINDS, body_of, cases, check_calls, check_usage
from tests.support.model_server import ModelServer, Reply

CASES = cases(lambda case: case["provider"] == "anthropic")


def read(case: dict[str, Any], pieces: Sequence[bytes]) -> tuple[list[Delta], ProviderResponse]:
    headers = {name.lower(): value for name, value in case["headers"].items()}
    if case["status"] != 200:
        raise server_error(case["status"], headers, b"".join(pieces), server="host", model="m")
    return decode(pieces, headers)


def cut_up(case: dict[str, Any], body: bytes) -> list[bytes]:
    chance = random.Random(case["body_sha256"])
    pieces: list[bytes] = []
    place = 0
    while place < len(body):
        size = chance.randint(1, 11 if len(body) < 20_000 else 97)
        pieces.append(body[place : place + size])
        place += size
    return pieces


def check(case: dict[str, Any], deltas: list[Delta], response: ProviderResponse) -> None:
    expect = case["expect"]
    assert response.text == expect["text"]
    assert response.reasoning == expect["reasoning"]
    assert response.stop_raw == expect["stop_reason_raw"]
    assert response.refusal == (expect["stop_reason_raw"] == "refusal")
    assert "".join(delta.text for delta in deltas) == response.text
    assert "".join(delta.reasoning for delta in deltas) == response.reasoning
    check_calls(response, expect)
    check_usage(response, expect["usage"])
    assert [wire_form(block) for block in response.blocks] == [
        expected_form(block) for block in expect["blocks"]
    ]
    explained = (expect.get("stop_details") or {}).get("explanation")
    assert not explained or any(explained in (delta.progress or "") for delta in deltas)


def wire_form(block: Any) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if isinstance(block, ToolUseBlock):
        return {
            "type": "tool_use",
            "id": block.call_id,
            "name": block.name,
            "input": block.arguments if block.raw_arguments is None else None,
        }
    assert isinstance(block, ReasoningBlock)
    if block.redacted:
        return {"type": "redacted_thinking", "data": block.data}
    if block.data is not None:
        return {"type": json.loads(block.data)["block"]["type"]}
    return {"type": "thinking", "thinking": block.text, "signature": block.signature}


def expected_form(block: dict[str, Any]) -> dict[str, Any]:
    known = {"type", "text", "thinking", "signature", "data", "id", "name", "input"}
    return {name: value for name, value in block.items() if name in known}


@pytest.mark.parametrize(("folder", "case"), CASES)
def test_a_recorded_answer_is_read_exactly_however_it_is_cut(folder: Path, case: dict[str, Any]):
    body = body_of(folder)
    for pieces in ([body], cut_up(case, body), [body[place : place + 1] for place in range(len(body))]):
        if case["complete"]:
            check(case, *read(case, pieces))
            continue
        with pytest.raises(ProviderError) as caught:
            read(case, pieces)
        told = case["expect"]["error"]
        assert caught.value.error_kind in KINDS[told["category"]]
        assert (caught.value.error_kind in RETRYABLE_KINDS) == told["retryable"]


@pytest.mark.parametrize(("folder", "case"), CASES)
async def test_a_recorded_answer_passes_through_the_provider(folder: Path, case: dict[str, Any]):
    reply = Reply(
        status=case["status"],
        body=body_of(folder),
        content_type=case["content_type"],
        headers=case["headers"],
    )
    async with ModelServer([reply]) as server:
        provider = provider_at(server.base_url)
        try:
            if case["complete"]:
                deltas = [delta async for delta in provider.stream(ask())]
                response = deltas[-1].response
                assert response is not None
                check(case, deltas, response)
                return
            with pytest.raises(ProviderError) as caught:
                await provider.complete(ask())
        finally:
            await provider.aclose()
    told = case["expect"]["error"]
    assert caught.value.error_kind in KINDS[told["category"]]
    assert KEY not in str(caught.value)
    assert case["status"] == 200 or (caught.value.request_id or "").startswith("req_")


STREAMS = cases(
    lambda case: (
        case["provider"] == "anthropic" and case["stream"] and case["complete"] and case["status"] == 200
    )
)


@pytest.mark.parametrize(("folder", "case"), STREAMS)
def test_a_recorded_stream_that_is_cut_before_its_end_mark_never_ends_well(
    folder: Path, case: dict[str, Any]
):
    body = body_of(folder)
    stop = body.rfind(b'{"type":"message_stop"')
    chance = random.Random(case["body_sha256"])
    for place in [stop, *(chance.randint(0, stop) for _ in range(8))]:
        with pytest.raises(ProviderError) as caught:
            read(case, [body[:place]])
        assert caught.value.error_kind is ErrorKind.INCOMPLETE_STREAM
