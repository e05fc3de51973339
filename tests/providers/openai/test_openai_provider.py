"""The provider against a loopback server: faults, adaptation, keys, Azure's addresses, cancellation."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from aar.protocol.errors import ErrorKind, ProviderError
from aar.protocol.messages import Message, ReasoningBlock, TextBlock
from aar.providers.openai.seal import seal
from tests.providers.openai.asking import ASK, KEY, ask, notices, provider_at, response_of
from tests.providers.openai.wire import call, events, message, reasoning, response, sse
from tests.support.model_server import ModelServer, Reply
from tests.support.waiting import until

HELLO = Reply(body=sse(events([message("hello")])), content_type="text/event-stream")


def refusal(parameter: str | None, text: str, code: str | None = "unsupported_parameter") -> Reply:
    error = {"message": text, "type": "invalid_request_error", "param": parameter, "code": code}
    return Reply(status=400, error=error)


async def failure(reply: Reply, **more: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await ask([reply], **more)
    assert "\n" not in str(caught.value)
    assert KEY not in f"{caught.value} {caught.value.detail}"
    return caught.value


@pytest.mark.parametrize("stream", [True, False])
async def test_the_responses_api_is_asked_unless_told_otherwise(stream: bool):
    body = HELLO if stream else Reply(body=json.dumps(response([message("hello")])).encode())
    (deltas,), server = await ask([body], api="auto", stream=stream)
    assert response_of(deltas).text == "hello"
    assert server.requests[0].path == "/v1/responses"
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert server.requests[0].body["stream"] is stream


async def test_a_server_that_answers_a_stream_with_json_is_understood():
    (deltas,), _ = await ask([Reply(body=json.dumps(response([message("hello")])).encode())])
    assert [delta.text for delta in deltas if delta.text] == ["hello"]


async def test_chat_completions_are_asked_when_told():
    (deltas,), server = await ask([Reply(text="hello", tool_calls=[("read", {"a": 1})])], api="chat")
    assert response_of(deltas).text == "hello"
    assert response_of(deltas).tool_uses[0].arguments == {"a": 1}
    assert server.requests[0].path == "/v1/chat/completions"


@pytest.mark.parametrize("status", [404, 405])
async def test_a_server_of_others_without_the_responses_api_is_asked_for_chat(status: int):
    replies = [Reply(status=status, error="Not Found"), Reply(text="hello"), Reply(text="again")]
    (first, second), server = await ask(replies, ASK, ASK, api="auto")
    assert (response_of(first).text, response_of(second).text) == ("hello", "again")
    assert [request.path for request in server.requests] == ["/v1/responses", *["/v1/chat/completions"] * 2]
    assert ["no Responses API" in notice for notice in notices(first)] == [True]
    assert notices(second) == []


async def test_requests_side_by_side_find_the_missing_responses_api_together():
    missing = Reply(status=404, error="Not Found", delay_s=0.05)
    async with ModelServer([missing, missing, Reply(text="hello")]) as server:
        provider = provider_at(server.base_url, api="auto")
        answers = await asyncio.gather(provider.complete(ASK), provider.complete(ASK))
        await provider.aclose()
    assert [answer.text for answer in answers] == ["hello", "hello"]


async def test_an_unknown_model_is_no_reason_to_ask_for_chat():
    missing = Reply(status=404, error={"message": "The model `x` does not exist", "code": "model_not_found"})
    error = await failure(missing, api="auto")
    assert error.error_kind is ErrorKind.UNKNOWN_MODEL


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(status=401, error={"message": f"Incorrect API key provided: {KEY}"}), ErrorKind.AUTH),
        (Reply(status=400, error={"message": "no", "code": "invalid_api_key"}), ErrorKind.AUTH),
        (Reply(status=429, error={"message": "You exceeded", "code": "insufficient_quota"}), ErrorKind.QUOTA),
        (Reply(status=429, error="Rate limit reached"), ErrorKind.RATE_LIMIT),
        (
            Reply(status=400, error={"message": "too long", "code": "context_length_exceeded"}),
            ErrorKind.CONTEXT_OVERFLOW,
        ),
        (Reply(status=500, error="The server had an error"), ErrorKind.PROVIDER_INTERNAL),
        (Reply(status=503, error="busy"), ErrorKind.OVERLOADED),
        (Reply(status=302, body=b"", headers={"location": "https://else.where/"}), ErrorKind.INVALID_REQUEST),
        (
            Reply(body=b"<html><title>Proxy</title></html>", content_type="text/html"),
            ErrorKind.MALFORMED_RESPONSE,
        ),
        (Reply(body=b""), ErrorKind.INCOMPLETE_STREAM),
        (replace(HELLO, cut_after=700), ErrorKind.INCOMPLETE_STREAM),
        (
            Reply(body=(HELLO.body or b"")[:900], content_type="text/event-stream"),
            ErrorKind.INCOMPLETE_STREAM,
        ),
    ],
)
@pytest.mark.parametrize("api", ["responses", "chat"])
async def test_faults_have_their_kind_and_are_not_retried_here(reply: Reply, kind: ErrorKind, api: str):
    if api == "chat" and reply.content_type == "text/event-stream":
        reply = replace(Reply(text="hello" * 40), cut_after=200)
    async with ModelServer([reply]) as server:
        provider = provider_at(server.base_url, api=api)
        with pytest.raises(ProviderError) as caught:
            await provider.complete(ASK)
        await provider.aclose()
    assert caught.value.error_kind is kind
    assert KEY not in f"{caught.value} {caught.value.detail}"
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("headers", "wait"), [({"retry-after": "7"}, 7), ({"retry-after-ms": "1500"}, 1.5), ({}, None)]
)
async def test_hints_to_wait_are_told(headers: dict[str, str], wait: float | None):
    error = await failure(Reply(status=429, error="Rate limit reached", headers=headers))
    assert (error.error_kind, error.retry_after_s) == (ErrorKind.RATE_LIMIT, wait)


async def test_a_refused_connection_and_a_stall_have_their_kinds():
    async with ModelServer([HELLO]) as server:
        gone = server.base_url
    provider = provider_at(gone)
    with pytest.raises(ProviderError) as caught:
        await provider.complete(ASK)
    await provider.aclose()
    assert caught.value.error_kind is ErrorKind.NETWORK
    assert "Nothing answers" in str(caught.value)
    stalled = await failure(replace(HELLO, stall_after=700), timeout=0.2)
    assert stalled.error_kind is ErrorKind.TIMEOUT


async def test_an_answer_that_is_left_gives_up_its_connection():
    async with ModelServer([replace(HELLO, stall_after=1100)]) as server:
        provider = provider_at(server.base_url)
        stream = provider.stream(ASK)
        assert (await anext(stream)).text
        await stream.aclose()  # pyright: ignore[reportAttributeAccessIssue] - it is a generator
        await until(lambda: server.cancelled)
        await provider.aclose()
    assert server.cancelled == 1


async def test_a_connection_is_used_again():
    answers, server = await ask([HELLO], ASK, ASK, ASK)
    assert [response_of(deltas).text for deltas in answers] == ["hello"] * 3
    assert server.connections == 1


WANTING = replace(ASK, temperature=0.3, reasoning="max", max_output_tokens=50)


async def test_a_parameter_that_the_model_rejects_is_left_out_from_then_on_with_a_notice():
    no = refusal("temperature", "Unsupported parameter: 'temperature' is not supported with this model.")
    (first, second), server = await ask([no, HELLO], WANTING, WANTING)
    assert response_of(first).text == "hello"
    assert ["temperature" in request.body for request in server.requests] == [True, False, False]
    assert [("temperature" in notice, "left out" in notice) for notice in notices(first)] == [(True, True)]
    assert notices(second) == []


async def test_an_effort_that_the_model_does_not_have_becomes_the_nearest():
    no = refusal(
        "reasoning.effort",
        "Unsupported value: 'max' is not supported with the 'gpt-5' model. "
        "Supported values are: 'minimal', 'low', 'medium', and 'high'.",
        "unsupported_value",
    )
    (deltas,), server = await ask([no, HELLO], WANTING)
    assert [request.body["reasoning"]["effort"] for request in server.requests] == ["max", "high"]
    assert "set to high" in notices(deltas)[0]


async def test_summaries_and_streams_that_an_organisation_may_not_have_are_given_up():
    text = "Your organization must be verified to {}. Please go to the settings."
    replies = [
        refusal("reasoning.summary", text.format("generate reasoning summaries"), "unsupported_value"),
        refusal("stream", text.format("stream this model"), "unsupported_value"),
        Reply(body=json.dumps(response([message("hello")])).encode()),
    ]
    (deltas,), server = await ask(replies, WANTING)
    assert response_of(deltas).text == "hello"
    assert server.requests[-1].body["reasoning"] == {"effort": "max"}
    assert server.requests[-1].body["stream"] is False
    assert len(notices(deltas)) == 2


async def test_a_model_that_does_not_think_is_asked_without_any_of_it():
    replies = [
        refusal("include", "Encrypted content is not supported with this model.", None),
        refusal(
            "reasoning.effort", "Unsupported parameter: 'reasoning.effort' is not supported with this model."
        ),
        refusal(
            "reasoning.summary",
            "Unsupported parameter: 'reasoning.summary' is not supported with this model.",
        ),
        HELLO,
    ]
    (deltas,), server = await ask(replies, replace(WANTING, model="gpt-4o"))
    assert response_of(deltas).text == "hello"
    assert not {"include", "reasoning"} & set(server.requests[-1].body)


async def test_a_refusal_of_something_else_is_final():
    error = await failure(refusal("input[0].content", "Invalid type for 'input[0].content'.", "invalid_type"))
    assert error.error_kind is ErrorKind.INVALID_REQUEST


@pytest.mark.parametrize(
    "no",
    [
        refusal(None, "The encrypted content gAAA could not be verified.", "invalid_encrypted_content"),
        refusal(
            None, "Item 'rs_1' of type 'reasoning' was provided without its required following item.", None
        ),
        refusal("input", "Reasoning input items can only be provided to a reasoning model.", None),
    ],
)
async def test_thinking_that_the_server_cannot_read_is_left_out(no: Reply):
    async with ModelServer([]) as server:
        thought = ReasoningBlock(text="why", data=seal("127.0.0.1", reasoning("why")))
        asked = replace(
            ASK,
            messages=[*ASK.messages, Message(role="assistant", content=(thought, TextBlock(text="x")))],
        )
        server.replies = [no, HELLO]
        provider = provider_at(server.base_url)
        deltas = [delta async for delta in provider.stream(asked)]
        await provider.aclose()
    kinds = [[item["type"] for item in request.body["input"]] for request in server.requests]
    assert kinds == [["message", "reasoning", "message"], ["message", "message"]]
    assert "earlier thinking" in notices(deltas)[0]


async def test_stop_sequences_are_told_to_be_without_effect():
    asked = replace(ASK, stop=("END",))
    (first, second), server = await ask([HELLO], asked, asked)
    assert [len(notices(first)), len(notices(second))] == [1, 0]
    assert "stop" not in server.requests[0].body


CALL = Reply(body=sse(events([call("read", "{}")])), content_type="text/event-stream")


@pytest.mark.parametrize(
    ("base", "version", "api", "path"),
    [
        ("/openai/v1", None, "responses", "/openai/v1/responses"),
        ("/openai/v1/", "preview", "responses", "/openai/v1/responses?api-version=preview"),
        ("/openai/v1", None, "chat", "/openai/v1/chat/completions"),
        ("", "2025-04-01-preview", "responses", "/openai/responses?api-version=2025-04-01-preview"),
        (
            "/openai",
            "2024-10-21",
            "chat",
            "/openai/deployments/my%20gpt/chat/completions?api-version=2024-10-21",
        ),
        (
            "/openai/deployments/mine",
            "2024-10-21",
            "chat",
            "/openai/deployments/mine/chat/completions?api-version=2024-10-21",
        ),
        ("/openai/deployments/mine", "v", "responses", "/openai/responses?api-version=v"),
        ("/team/openai", "v", "responses", "/team/openai/responses?api-version=v"),
    ],
)
async def test_azure_is_reached_in_all_its_forms(base: str, version: str | None, api: str, path: str):
    reply = Reply(text="hello") if api == "chat" else HELLO
    async with ModelServer([reply]) as server:
        extra = {"api_version": version} if version else {}
        provider = provider_at(
            f"http://127.0.0.1:{server.port}{base}", api=api, extra={**extra, "user": "me"}
        )
        answer = await provider.complete(replace(ASK, model="my gpt"))
        await provider.aclose()
    assert answer.text == "hello"
    (request,) = server.requests
    assert request.path == path
    assert (request.body["user"], "api_version" in request.body) == ("me", False)
    v1 = version is None or base.rstrip("/").endswith("/v1")
    assert request.headers.get("authorization") == (f"Bearer {KEY}" if v1 else None)
    assert request.headers.get("api-key") == (None if v1 else KEY)


async def test_a_token_of_azure_goes_as_a_token():
    token = "eyJhbGciOi.eyJzdWIi.c2lnbmF0dXJl"
    async with ModelServer([HELLO]) as server:
        provider = provider_at(
            f"http://127.0.0.1:{server.port}",
            environ={"OPENAI_API_KEY": token},
            extra={"api_version": "2025-04-01-preview"},
        )
        await provider.complete(ASK)
        await provider.aclose()
    assert server.requests[0].headers["authorization"] == f"Bearer {token}"
    assert "api-key" not in server.requests[0].headers


@pytest.mark.parametrize("azure", [False, True])
@pytest.mark.parametrize("key", [None, KEY])
async def test_only_the_key_of_this_host_is_sent_whatever_the_environment_holds(
    monkeypatch: pytest.MonkeyPatch, azure: bool, key: str | None
):
    for name in (
        "OPENAI_API_KEY",
        "OPENAI_ADMIN_KEY",
        "OPENAI_ORG_ID",
        "OPENAI_PROJECT_ID",
        "AZURE_OPENAI_API_KEY",
        "AZURE_OPENAI_AD_TOKEN",
    ):
        monkeypatch.setenv(name, f"leak-{name}")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "x-mine: leak\nAuthorization: Bearer leak\napi-key: leak")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://leak.invalid/v1")
    async with ModelServer([HELLO]) as server:
        provider = provider_at(
            server.base_url.removesuffix("/v1"),
            environ={"OPENAI_API_KEY": key} if key else {},
            extra={"api_version": "v"} if azure else {},
            headers={"X-Own": "mine"},
        )
        await provider.complete(ASK)
        await provider.list_models()
        await provider.aclose()
    (request,) = server.requests
    assert "leak" not in json.dumps(request.headers)
    assert request.headers["x-own"] == "mine"
    sent = [request.headers.get("authorization"), request.headers.get("api-key")]
    expected = [None, key] if azure else [f"Bearer {key}" if key else None, None]
    assert sent == expected


async def test_a_header_of_the_config_wins_over_the_key():
    _, server = await ask([HELLO], headers={"Authorization": "Bearer from-config"})
    assert server.requests[0].headers["authorization"] == "Bearer from-config"


async def test_models_are_listed_and_a_wrong_key_is_told():
    async with ModelServer([HELLO], models=("gpt-5", "gpt-4o")) as server:
        provider = provider_at(server.base_url)
        assert await provider.list_models() == ["gpt-5", "gpt-4o"]
        await provider.aclose()


def test_making_the_provider_imports_no_sdk():
    code = (
        "import sys; from tests.providers.openai.asking import provider_at\n"
        "provider_at('http://127.0.0.1:9/v1'); provider_at('http://127.0.0.1:9/v1', api='chat')\n"
        "print([name for name in ('openai', 'httpx2', 'anthropic') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ}
    )
    assert done.stdout.strip() == "[]"
