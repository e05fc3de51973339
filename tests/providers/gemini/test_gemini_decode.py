"""The oddities of Gemini's wire, each on its own, and every cut of the bytes."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aar.protocol.errors import ErrorKind, ProviderError
from aar.protocol.messages import ReasoningBlock, TextBlock, ToolUseBlock
from aar.protocol.usage import Usage
from tests.providers.gemini.bodies import USAGE, call, outcome, piece, read, sse


def failure(body: bytes, **context: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        read([body], **context)
    assert "\n" not in str(caught.value)
    return caught.value


RICH = sse(
    piece({"text": "let me ", "thought": True}),
    piece({"text": "thïnk", "thought": True, "thoughtSignature": "c2ln"}),
    piece({"text": "Café "}),
    piece({"text": "done 🎉", "thoughtSignature": "dHh0"}),
    piece({"executableCode": {"language": "PYTHON", "code": "print(1)"}}),
    piece({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}}),
    piece(call("read", "Y2FsbA==", id="srv1", args={"path": "ä.txt"}), call("read"), call("bash", args=None)),
    piece(
        {"text": "", "thoughtSignature": "ZW1wdHk="}, finish="STOP", responseId="r1", modelVersion="gemini-x"
    ),
)


def test_all_kinds_of_parts_come_out_in_order_and_nothing_of_googles_own_tools_is_run():
    deltas, response = read([RICH])
    assert response.text == "Café done 🎉"
    assert response.reasoning == "let me thïnk"
    assert [(use.name, use.arguments) for use in response.tool_uses] == [
        ("read", {"path": "ä.txt"}), ("read", {}), ("bash", {})
    ]  # fmt: skip
    ids = [use.call_id for use in response.tool_uses]
    assert ids[0] == "srv1"
    assert len(set(ids)) == 3
    assert (response.stop, response.stop_raw) == ("tool_use", "STOP")
    assert (response.request_id, response.model) == ("r1", "gemini-x")
    kinds = [
        type(block) for block in response.blocks if not (isinstance(block, ReasoningBlock) and not block.text)
    ]
    assert kinds == [ReasoningBlock, TextBlock, ToolUseBlock, ToolUseBlock, ToolUseBlock]
    told = [(delta.tool_index, delta.tool_name, delta.tool_arguments) for delta in deltas if delta.tool_name]
    assert told == [(0, "read", '{"path": "ä.txt"}'), (1, "read", "{}"), (2, "bash", "{}")]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_cut_of_the_bytes_gives_the_same_response(data: st.DataObject):
    places = sorted(data.draw(st.sets(st.integers(0, len(RICH)), max_size=30)))
    cuts = [0, *places, len(RICH)]
    assert outcome([RICH[a:b] for a, b in itertools.pairwise(cuts)]) == outcome([RICH])


_PARTS = st.one_of(
    st.builds(lambda text: {"text": text}, st.text(max_size=8)),
    st.builds(lambda text: {"text": text, "thought": True}, st.text(max_size=8)),
    st.builds(
        lambda text, sig: {"text": text, "thoughtSignature": sig}, st.text(max_size=8), st.sampled_from("AB")
    ),
    st.builds(lambda name: call(name, args={"a": 1}), st.sampled_from(["read", "bash"])),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(_PARTS, min_size=1, max_size=6))
def test_streamed_and_whole_answers_are_equal(parts: list[dict[str, Any]]):
    streamed = sse(*(piece(part) for part in parts[:-1]), piece(parts[-1], finish="STOP"))
    whole = json.dumps(piece(*parts, finish="STOP")).encode()
    assert outcome([streamed]) == outcome([whole])


@pytest.mark.parametrize(
    ("reason", "stop", "refused"),
    [
        ("STOP", "end_turn", False),
        ("MAX_TOKENS", "max_tokens", False),
        ("SAFETY", "refusal", True),
        ("RECITATION", "refusal", True),
        ("PROHIBITED_CONTENT", "refusal", True),
        ("MALFORMED_FUNCTION_CALL", "other", False),
        ("UNEXPECTED_TOOL_CALL", "other", False),
        ("SOMETHING_NEW", "other", False),
    ],
)
def test_reasons_for_the_end_are_told_in_one_form_and_in_googles_words(reason: str, stop: str, refused: bool):
    _, response = read([sse(piece({"text": "so far"}, finish=reason))])
    assert (response.stop, response.refusal, response.stop_raw) == (stop, refused, reason)
    assert response.text == "so far"


def test_what_google_says_about_a_failed_answer_is_shown():
    last = piece(finish="MALFORMED_FUNCTION_CALL", candidate={"finishMessage": "Malformed function call: x("})
    deltas, response = read([sse(last)])
    assert "Malformed function call: x(" in (deltas[0].progress or "")
    assert response.blocks == ()


def test_a_blocked_prompt_is_a_refusal_and_says_why():
    body = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 7}}
    for raw in (sse(body), json.dumps(body).encode()):
        deltas, response = read([raw])
        assert (response.refusal, response.stop, response.text) == (True, "refusal", "")
        assert "PROHIBITED_CONTENT" in (deltas[0].progress or "")
        assert response.usage == Usage(input=7)


def test_usage_is_put_into_the_common_form_and_later_pieces_win():
    early = {"promptTokenCount": 90, "thoughtsTokenCount": 4, "trafficType": "ON_DEMAND"}
    late = {"promptTokenCount": 100, "cachedContentTokenCount": 60, "candidatesTokenCount": 7,
            "toolUsePromptTokenCount": 30, "totalTokenCount": 141}  # fmt: skip
    stream = sse(piece({"text": "a"}, usageMetadata=early), piece(finish="STOP", usageMetadata=late))
    _, response = read([stream])
    assert response.usage == Usage(input=70, output=11, cache_read=60, reasoning=4)
    _, untold = read([sse(piece({"text": "a"}, finish="STOP", usageMetadata={"trafficType": "ON_DEMAND"}))])
    assert untold.usage is None


@pytest.mark.parametrize(
    "body",
    [
        sse(piece({"text": "hel"}), piece({"text": "lo"})),
        sse(piece(call("bash", args={"command": "rm"}))),
        sse(piece({"text": "hello"}, finish="STOP"))[:-40],
        sse({"usageMetadata": USAGE}),
        b"",
        b": keep-alive\n\n",
        json.dumps([piece({"text": "hel"}), piece({"text": "lo"})]).encode(),
        json.dumps([piece({"text": "hello"}, finish="STOP")]).encode()[:-9],
        json.dumps(piece({"text": "hello"}, finish="STOP")).encode()[:-9],
    ],
)
def test_an_answer_that_just_ends_is_incomplete(body: bytes):
    assert failure(body).error_kind is ErrorKind.INCOMPLETE_STREAM


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (sse(piece({"text": "a"}), {"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}),
         ErrorKind.OVERLOADED),
        (sse({"error": {"code": 500, "message": "An internal error has occurred", "status": "INTERNAL"}}),
         ErrorKind.PROVIDER_INTERNAL),
        (json.dumps([{"error": {"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED"}}]).encode(),
         ErrorKind.RATE_LIMIT),
        (b"<html><title>Sign in</title></html>", ErrorKind.MALFORMED_RESPONSE),
        (b'"just text"', ErrorKind.MALFORMED_RESPONSE),
        (b'{"detail": "no such route"}', ErrorKind.MALFORMED_RESPONSE),
        (b'{"choices": []}', ErrorKind.MALFORMED_RESPONSE),
        (b'{"usageMetadata": {}}', ErrorKind.MALFORMED_RESPONSE),
        (b"data: {]\n\n", ErrorKind.MALFORMED_RESPONSE),
        (sse(piece({"functionCall": {"args": {}}}, finish="STOP")), ErrorKind.MALFORMED_RESPONSE),
    ],
)  # fmt: skip
def test_errors_inside_a_successful_response_are_told_by_kind(body: bytes, kind: ErrorKind):
    assert failure(body).error_kind is kind


def test_a_call_in_parts_is_put_together_and_one_that_never_ends_is_not_run():
    pieces = [
        piece({"functionCall": {"name": "edit", "willContinue": True}, "thoughtSignature": "c2ln"}),
        piece({"functionCall": {"partialArgs": [
            {"jsonPath": "$.path", "stringValue": "a.", "willContinue": True}], "willContinue": True}}),
        piece({"functionCall": {"partialArgs": [
            {"jsonPath": "$.path", "stringValue": "py"},
            {"jsonPath": "$.edits[1].line", "numberValue": 3},
            {"jsonPath": "$.edits[0]['all']", "boolValue": True}], "willContinue": True}}),
    ]  # fmt: skip
    _, done = read([sse(*pieces, piece({"functionCall": {}}, finish="STOP"))])
    assert [(use.name, use.arguments, use.raw_arguments) for use in done.tool_uses] == [
        ("edit", {"path": "a.py", "edits": [{"all": True}, {"line": 3}]}, None)
    ]
    _, cut = read([sse(*pieces, piece(finish="MAX_TOKENS"))])
    assert cut.tool_uses[0].raw_arguments is not None
    assert (cut.stop, cut.tool_uses[0].arguments) == ("max_tokens", {})


def test_an_id_that_comes_again_is_replaced_and_the_servers_own_goes_back():
    _, response = read([sse(piece(call("a", id="1"), call("b", id="1"), finish="STOP"))], taken_ids={"1"})
    ids = [use.call_id for use in response.tool_uses]
    assert len({"1", *ids}) == 3
    sealed = json.loads(next(b.data for b in response.blocks if isinstance(b, ReasoningBlock) and b.data))
    assert [sealed["calls"][name]["id"] for name in ids] == ["1", "1"]


def quota(message: str, *violations: dict[str, str], delay: str | None = "48s") -> dict[str, Any]:
    details: list[dict[str, Any]] = [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": list(violations)}
    ]
    if delay:
        details.append({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay})
    return {"error": {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": details}}


EXCEEDED = "You exceeded your current quota, please check your plan and billing details."
MINUTE = {"quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests",
          "quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier", "quotaValue": "10"}  # fmt: skip
DAY = {**MINUTE, "quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}


@pytest.mark.parametrize(
    ("status", "body", "kind", "wait"),
    [
        (429, quota(EXCEEDED, MINUTE), ErrorKind.RATE_LIMIT, 48.0),
        (429, quota(EXCEEDED, DAY), ErrorKind.QUOTA, None),
        (429, quota(EXCEEDED, {**MINUTE, "quotaValue": "0"}), ErrorKind.QUOTA, None),
        (429, quota(EXCEEDED, delay=None), ErrorKind.QUOTA, None),
        (429, [quota("Resource has been exhausted (e.g. check quota).", delay=None)], ErrorKind.RATE_LIMIT, None),
        (400, {"error": {"code": 400, "message": "API key not valid. Please pass a valid API key.",
                         "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}},
         ErrorKind.AUTH, None),
        (403, {"error": {"code": 403, "message": "Method doesn't allow unregistered callers.",
                         "status": "PERMISSION_DENIED"}}, ErrorKind.AUTH, None),
        (404, {"error": {"code": 404, "message": "models/gemini-9 is not found for API version v1beta, or is not "
                         "supported for generateContent.", "status": "NOT_FOUND"}}, ErrorKind.UNKNOWN_MODEL, None),
        (400, {"error": {"code": 400, "message": "The input token count (9) exceeds the maximum number of tokens "
                         "allowed (8).", "status": "INVALID_ARGUMENT"}}, ErrorKind.CONTEXT_OVERFLOW, None),
        (400, {"error": {"code": 400, "message": "Request contains an invalid argument.",
                         "status": "INVALID_ARGUMENT"}}, ErrorKind.INVALID_REQUEST, None),
        (503, {"error": {"code": 503, "message": "The model is overloaded. Please try again later.",
                         "status": "UNAVAILABLE"}}, ErrorKind.OVERLOADED, None),
        (500, {"error": {"code": 500, "message": "An internal error has occurred.", "status": "INTERNAL"}},
         ErrorKind.PROVIDER_INTERNAL, None),
        (504, {"error": {"code": 504, "message": "Deadline expired.", "status": "DEADLINE_EXCEEDED"}},
         ErrorKind.TIMEOUT, None),
    ],
)  # fmt: skip
def test_googles_errors_are_told_by_kind(status: int, body: Any, kind: ErrorKind, wait: float | None):
    error = failure(json.dumps(body).encode(), status=status)
    assert error.error_kind is kind
    assert error.retry_after_s == wait
    assert error.status == status
