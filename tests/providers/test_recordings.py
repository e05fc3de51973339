"""Real traffic, read through the provider's decoder. The recordings lie outside of the repository."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from aar.protocol.errors import RETRYABLE_KINDS, ErrorKind, ProviderError
from aar.protocol.messages import ReasoningBlock
from aar.providers.base import Delta, ProviderResponse
from aar.providers.chat_completions.body import BodyDecoder
from aar.providers.chat_completions.decode import AnswerContext
from aar.providers.http.errors import server_error

ROOT = Path(__file__).parents[2]
RECORDINGS = Path(os.environ.get("AAR_RECORDINGS", ROOT / "../shared/recordings")).resolve()
WIRE = {"openai-compatible", "openai-chat"}
KINDS = {
    "auth": {ErrorKind.AUTH},
    "quota": {ErrorKind.QUOTA},
    "rate_limit": {ErrorKind.RATE_LIMIT},
    "overloaded": {ErrorKind.OVERLOADED},
    "context_length": {ErrorKind.CONTEXT_OVERFLOW},
    "bad_request": {ErrorKind.INVALID_REQUEST},
    "output_limit": {ErrorKind.INVALID_REQUEST},
    "not_found": {ErrorKind.UNKNOWN_MODEL, ErrorKind.INVALID_REQUEST},
    "tool_use_failed": {ErrorKind.PROVIDER_INTERNAL},
    "malformed": {ErrorKind.MALFORMED_RESPONSE},
    "incomplete": {ErrorKind.INCOMPLETE_STREAM},
}


def cases(wanted: Callable[[dict[str, Any]], bool] = lambda case: case["provider"] in WIRE) -> list[Any]:
    found: list[Any] = []
    for path in sorted(RECORDINGS.glob("cases/*/case.json")):
        case = json.loads(path.read_text())
        if wanted(case):
            found.append(pytest.param(path.parent, case, id=path.parent.name))
    if not found:
        skip = pytest.mark.skip(reason=f"no recordings in {RECORDINGS}; set AAR_RECORDINGS to their folder")
        return [pytest.param(None, None, marks=skip)]
    return found


def read(case: dict[str, Any], pieces: Sequence[bytes]) -> tuple[list[Delta], ProviderResponse]:
    headers = {name.lower(): value for name, value in case["headers"].items()}
    if case["status"] != 200:
        raise server_error(case["status"], headers, b"".join(pieces), server="host", model="m")
    decoder = BodyDecoder(AnswerContext(server="host", model="m", headers=headers))
    deltas = [delta for piece in pieces for delta in decoder.feed(piece)] + decoder.finish()
    response = deltas[-1].response
    assert response is not None
    return deltas, response


def body_of(folder: Path) -> bytes:
    return (folder / "body.txt").read_bytes()


@pytest.mark.parametrize(("folder", "case"), cases())
def test_a_recorded_answer_is_read_exactly(folder: Path, case: dict[str, Any]):
    expect = case["expect"]
    if not case["complete"]:
        with pytest.raises(ProviderError) as caught:
            read(case, [body_of(folder)])
        assert caught.value.error_kind in KINDS[expect["error"]["category"]]
        assert (caught.value.error_kind in RETRYABLE_KINDS) == expect["error"]["retryable"]
        assert "\n" not in str(caught.value)
        return
    deltas, response = read(case, [body_of(folder)])
    assert response.text == expect["text"] + (expect.get("refusal") or "")
    assert response.reasoning == expect["reasoning"]
    assert response.refusal == (bool(expect.get("refusal")) or expect["stop_reason_raw"] == "content_filter")
    assert (response.stop_raw or "") == (expect["stop_reason_raw"] or "")
    assert "".join(delta.text for delta in deltas) == response.text
    assert "".join(delta.reasoning for delta in deltas) == response.reasoning
    check_calls(response, expect)
    check_usage(response, expect["usage"])
    sealed = "".join(block.data or "" for block in response.blocks if isinstance(block, ReasoningBlock))
    assert all(json.dumps(signature)[1:-1] in sealed for signature in expect.get("reasoning_signatures", ()))


def check_calls(response: ProviderResponse, expect: dict[str, Any]) -> None:
    runnable = [call for call in response.tool_uses if call.raw_arguments is None]
    assert [(call.name, call.arguments) for call in runnable] == [
        (call["name"], call["arguments"]) for call in expect["tool_calls"]
    ]
    for call, told in zip(runnable, expect["tool_calls"], strict=True):
        assert call.call_id == told["id"] if told["id"] else call.call_id
    assert len({call.call_id for call in response.tool_uses}) == len(response.tool_uses)
    broken = [call for call in response.tool_uses if call.raw_arguments is not None]
    assert [call.raw_arguments for call in broken] == [
        call["arguments_raw"] for call in expect.get("unfinished_tool_calls", ())
    ]


def check_usage(response: ProviderResponse, told: dict[str, Any] | None) -> None:
    if told is None:
        assert response.usage is None
        return
    assert response.usage is not None
    assert response.usage.prompt == told["total_input"]
    assert response.usage.output == told["total_output"]
    assert response.usage.cache_read == (told["cache_read"] or 0)
    assert response.usage.cache_write == (told["cache_write"] or 0)
    assert response.usage.reasoning == (told["reasoning"] or 0)


@pytest.mark.parametrize(("folder", "case"), cases())
def test_a_recorded_answer_does_not_depend_on_how_its_bytes_are_cut(folder: Path, case: dict[str, Any]):
    body = body_of(folder)
    cut = random.Random(case["body_sha256"])
    pieces: list[bytes] = []
    position = 0
    while position < len(body):
        size = cut.randint(1, 11 if len(body) < 20_000 else 97)
        pieces.append(body[position : position + size])
        position += size

    def outcome(parts: Sequence[bytes]) -> object:
        try:
            return read(case, parts)[1]
        except ProviderError as error:
            return error.error_kind, str(error)

    whole, cut_up = outcome([body]), outcome(pieces)
    assert cut_up == whole


def is_stream(case: dict[str, Any]) -> bool:
    return case["provider"] in WIRE and case["status"] == 200 and case["stream"] and case["complete"]


@pytest.mark.parametrize(("folder", "case"), cases(is_stream))
def test_a_recorded_stream_that_is_cut_never_ends_well(folder: Path, case: dict[str, Any]):
    body = body_of(folder)
    stop = body.find(b'"finish_reason":"')
    stop = stop if stop >= 0 else body.find(b"[DONE]")
    chance = random.Random(case["body_sha256"])
    for _ in range(5):
        with pytest.raises(ProviderError) as caught:
            read(case, [body[: chance.randint(0, stop)]])
        assert caught.value.error_kind is ErrorKind.INCOMPLETE_STREAM


@pytest.mark.parametrize(("folder", "case"), cases(lambda case: case["status"] != 200))
def test_a_recorded_http_error_of_any_vendor_has_the_right_kind(folder: Path, case: dict[str, Any]):
    with pytest.raises(ProviderError) as caught:
        read(case, [body_of(folder)])
    told = case["expect"]["error"]
    assert caught.value.error_kind in KINDS[told["category"]]
    assert told["message"] is None or told["message"][:40] in str(caught.value)
