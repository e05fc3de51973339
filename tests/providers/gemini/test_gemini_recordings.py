"""Google's real traffic, read through the provider's decoder and sent back by its encoder."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from aar.protocol.errors import RETRYABLE_KINDS, ErrorKind, ProviderError
from aar.protocol.messages import Message, TextBlock
from aar.providers.base import ProviderRequest
from aar.providers.gemini.encode import RequestEncoder
from aar.providers.gemini.seal import seal_name
from tests.providers.gemini.bodies import outcome, read
from tests.providers.test_recordings import KINDS, body_of, cases, check_calls, check_usage


def of_gemini(case: dict[str, Any]) -> bool:
    return case["provider"] == "gemini"


def context(case: dict[str, Any]) -> dict[str, Any]:
    headers = {name.lower(): value for name, value in case["headers"].items()}
    return {"status": case["status"], "headers": headers}


@pytest.mark.parametrize(("folder", "case"), cases(of_gemini))
def test_a_recorded_answer_is_read_exactly(folder: Path, case: dict[str, Any]):
    expect = case["expect"]
    if not case["complete"]:
        with pytest.raises(ProviderError) as caught:
            read([body_of(folder)], **context(case))
        assert caught.value.error_kind in KINDS[expect["error"]["category"]]
        assert (caught.value.error_kind in RETRYABLE_KINDS) == expect["error"]["retryable"]
        assert "\n" not in str(caught.value)
        return
    deltas, response = read([body_of(folder)], **context(case))
    assert response.text == expect["text"]
    assert response.reasoning == expect["reasoning"]
    assert (response.stop_raw or "") == (expect["stop_reason_raw"] or "")
    assert "".join(delta.text for delta in deltas) == response.text
    assert "".join(delta.reasoning for delta in deltas) == response.reasoning
    assert response.refusal == (response.stop == "refusal")
    check_calls(response, expect)
    check_usage(response, expect["usage"])


@pytest.mark.parametrize(("folder", "case"), cases(lambda case: of_gemini(case) and case["complete"]))
def test_every_recorded_signature_goes_back_on_the_part_it_came_on(folder: Path, case: dict[str, Any]):
    _, response = read([body_of(folder)], **context(case))
    messages = [
        Message(role="user", content=(TextBlock(text="hi"),)),
        Message(role="assistant", content=response.blocks),
    ]
    request = ProviderRequest(model="m", system="", messages=messages)
    body = json.loads(RequestEncoder(seal_name("host")).encode(request, "budget").body)
    found: list[dict[str, str]] = []
    for part in body["contents"][1]["parts"]:
        if "thoughtSignature" in part:
            kind = next(name for name in part if name != "thoughtSignature")
            kind = "empty-text" if kind == "text" and not part["text"] else kind
            found.append({"on": kind, "signature": part["thoughtSignature"]})
    assert found == case["expect"].get("thought_signatures", [])
    assert all(
        "id" not in part["functionCall"] for part in body["contents"][1]["parts"] if "functionCall" in part
    )


@pytest.mark.parametrize(("folder", "case"), cases(of_gemini))
def test_a_recorded_answer_does_not_depend_on_how_its_bytes_are_cut(folder: Path, case: dict[str, Any]):
    body = body_of(folder)
    chance = random.Random(case["body_sha256"])
    pieces: list[bytes] = []
    while body:
        size = chance.randint(1, 23)
        pieces.append(body[:size])
        body = body[size:]
    assert outcome(pieces, **context(case)) == outcome([body_of(folder)], **context(case))


def is_stream(case: dict[str, Any]) -> bool:
    return of_gemini(case) and case["status"] == 200 and case["stream"] and case["complete"]


@pytest.mark.parametrize(("folder", "case"), cases(is_stream))
def test_a_recorded_stream_gives_the_same_as_one_json_list(folder: Path, case: dict[str, Any]):
    events = body_of(folder).decode().split("\r\n\r\n")
    listed = "[" + ",\r\n".join(event.removeprefix("data: ") for event in events if event.strip()) + "]"
    assert outcome([listed.encode()], **context(case)) == outcome([body_of(folder)], **context(case))


@pytest.mark.parametrize(("folder", "case"), cases(is_stream))
def test_a_recorded_stream_that_is_cut_never_ends_well(folder: Path, case: dict[str, Any]):
    body = body_of(folder)
    stop = body.find(b'"finishReason"')
    chance = random.Random(case["body_sha256"])
    for _ in range(5):
        with pytest.raises(ProviderError) as caught:
            read([body[: chance.randint(0, stop)]])
        assert caught.value.error_kind is ErrorKind.INCOMPLETE_STREAM


def test_the_body_of_a_stream_without_any_event_is_an_error_of_its_own():
    with pytest.raises(ProviderError) as caught:
        read([b"upstream connect error\n"])
    assert caught.value.error_kind is ErrorKind.MALFORMED_RESPONSE
