"""The provider against a loopback server: answers, faults, adaptation, keys, lists of models."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from aar.config.schema import Config
from aar.protocol.errors import ErrorKind, ProviderError
from aar.protocol.messages import Message, TextBlock
from aar.providers.base import Provider, ProviderRequest, ProviderResponse
from aar.providers.factory import choose_model, make_provider
from tests.providers.gemini.bodies import answers, call, piece, refusal, sse
from tests.providers.gemini.conversation import conversation
from tests.support.model_server import ModelServer, Reply

KEY = "AIzaSeeded-0123456789abcdefghij"
HI = sse(piece({"text": "hello"}, finish="STOP"))
ASK = ProviderRequest(model="gemini-2.5-flash", system="s", messages=[
    Message(role="user", content=(TextBlock(text="hi"),))
])  # fmt: skip


def make(base_url: str | None, environ: dict[str, str] | None = None, **settings: Any) -> Provider:
    config = Config.model_validate({
        "model": settings.pop("model", {}), "providers": {"gemini": {"timeout": 60, **settings}}
    })  # fmt: skip
    folder = Path("/nonexistent")
    return make_provider(
        "gemini/gemini-2.5-flash", config, data_dir=folder, runtime_dir=folder, base_url=base_url,
        environ={"GEMINI_API_KEY": KEY} if environ is None else environ,
    )  # fmt: skip


async def ask(
    server: ModelServer, request: ProviderRequest = ASK, path: str = "", **settings: Any
) -> ProviderResponse:
    provider = make(f"http://127.0.0.1:{server.port}{path}", **settings)
    try:
        return await provider.complete(request)
    finally:
        await provider.aclose()


async def failure(reply: Reply, **settings: Any) -> ProviderError:
    async with ModelServer([reply]) as server:
        with pytest.raises(ProviderError) as caught:
            await ask(server, **settings)
    assert "\n" not in str(caught.value)
    assert KEY not in f"{caught.value!r} {caught.value.detail}"
    return caught.value


@pytest.mark.parametrize(
    ("path", "expected"),
    [("", "/v1beta/models"), ("/", "/v1beta/models"), ("/v1", "/v1/models"), ("/proxy", "/proxy/v1beta/models"),
     ("/v1beta1/projects/p/locations/l/publishers/google", "/v1beta1/projects/p/locations/l/publishers/google/models")],
)  # fmt: skip
async def test_requests_go_to_the_models_own_address_with_the_key_in_a_header(path: str, expected: str):
    async with ModelServer(answers(HI)) as server:
        assert (await ask(server, path=path)).text == "hello"
        sent = server.requests[0]
    assert sent.path == f"{expected}/gemini-2.5-flash:streamGenerateContent?alt=sse"
    assert sent.headers["x-goog-api-key"] == KEY
    assert KEY not in sent.path
    assert "google.genai" not in sys.modules or "google-genai-sdk" not in sent.headers["user-agent"]


async def test_without_streaming_the_whole_answer_is_asked_for_and_is_the_same():
    whole = Reply(body=json.dumps(piece({"text": "hello"}, finish="STOP")).encode())
    async with ModelServer([whole, *answers(HI)]) as server:
        plain = await ask(server, model={"stream": False})
        streamed = await ask(server)
        assert server.requests[0].path == "/v1beta/models/gemini-2.5-flash:generateContent"
    assert plain == streamed


async def test_a_json_answer_to_a_question_for_a_stream_is_read_all_the_same():
    async with ModelServer(
        [Reply(body=json.dumps(piece({"text": "hello"}, finish="STOP")).encode())]
    ) as server:
        assert (await ask(server)).text == "hello"


async def test_calls_thinking_and_their_results_go_round():
    first = sse(
        piece({"text": "hm", "thought": True}), piece(call("f", "c2ln", args={"a": 1}), finish="STOP")
    )
    async with ModelServer(answers(first, HI)) as server:
        provider = make(f"http://127.0.0.1:{server.port}")
        answer = await provider.complete(ASK)
        follow = [*ASK.messages, Message(role="assistant", content=answer.blocks), conversation()[4]]
        assert (
            await provider.complete(ProviderRequest(model="m", system="s", messages=follow))
        ).text == "hello"
        await provider.aclose()
        assert server.connections == 1
        assert server.requests[1].body["contents"][1]["parts"] == [
            {"text": "hm", "thought": True},
            {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "c2ln"},
        ]


def told(code: int, message: str, status: str = "INVALID_ARGUMENT") -> Reply:
    return refusal(code, {"error": {"code": code, "message": message, "status": status}})


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (told(500, "An internal error has occurred", "INTERNAL"), ErrorKind.PROVIDER_INTERNAL),
        (refusal(502, b"<html><title>Bad Gateway</title></html>"), ErrorKind.PROVIDER_INTERNAL),
        (refusal(307, b"", location="https://elsewhere.example/"), ErrorKind.INVALID_REQUEST),
        (told(400, f"API key not valid: {KEY}"), ErrorKind.AUTH),
        (Reply(body=HI, content_type="text/event-stream", cut_after=60), ErrorKind.INCOMPLETE_STREAM),
        (
            Reply(body=HI, content_type="text/event-stream", cut_after=len(HI) - 1),
            ErrorKind.INCOMPLETE_STREAM,
        ),
        (Reply(body=b"", content_type="text/event-stream"), ErrorKind.INCOMPLETE_STREAM),
        (Reply(body=b"\x1f\x8bnot gzip", headers={"content-encoding": "gzip"}), ErrorKind.MALFORMED_RESPONSE),
    ],
)
async def test_faults_are_told_by_kind(reply: Reply, kind: ErrorKind):
    assert (await failure(reply)).error_kind is kind


async def test_an_answer_that_stalls_is_given_up():
    reply = Reply(body=HI, content_type="text/event-stream", stall_after=30)
    error = await failure(reply, idle_timeout=0.2)
    assert error.error_kind is ErrorKind.TIMEOUT


async def test_nobody_at_the_address_is_a_network_error():
    provider = make("http://127.0.0.1:9")
    with pytest.raises(ProviderError, match="Nothing answers") as caught:
        await provider.complete(ASK)
    await provider.aclose()
    assert caught.value.error_kind is ErrorKind.NETWORK


async def test_a_setting_that_the_model_refuses_is_left_out_with_a_notice_and_not_sent_again():
    no_thinking = told(400, "Thinking level is not supported for this model.")
    async with ModelServer([no_thinking, *answers(HI)]) as server:
        provider = make(f"http://127.0.0.1:{server.port}")
        notices = [delta.progress async for delta in provider.stream(ASK) if delta.progress]
        await provider.complete(ASK)
        await provider.aclose()
        sent = [request.body.get("generationConfig") for request in server.requests]
    assert sent == [{"thinkingConfig": {"includeThoughts": True}}, None, None]
    assert len(notices) == 1
    assert "thinkingConfig" in notices[0]


async def test_a_level_that_the_model_refuses_is_given_up_before_thinking_is():
    level = told(
        400, "Thinking level MINIMAL is not supported for this model. Please retry with other level."
    )
    asked = dataclasses.replace(ASK, model="gemini-3-flash-preview", reasoning="minimal")
    async with ModelServer([level, *answers(HI)]) as server:
        assert (await ask(server, asked)).text == "hello"
        sent = [request.body["generationConfig"]["thinkingConfig"] for request in server.requests]
    assert sent == [{"includeThoughts": True, "thinkingLevel": "MINIMAL"}, {"includeThoughts": True}]


async def test_a_refusal_of_what_must_be_sent_is_final():
    async with ModelServer(
        [told(400, "Invalid value at 'contents': temperature of the conversation")]
    ) as server:
        with pytest.raises(ProviderError) as caught:
            await ask(server)
        assert len(server.requests) == 1
    assert caught.value.error_kind is ErrorKind.INVALID_REQUEST


async def test_models_that_answer_prompts_are_listed():
    listed = {
        "models": [
            {
                "name": "models/gemini-2.5-flash",
                "supportedGenerationMethods": ["generateContent", "countTokens"],
            },
            {"name": "models/embedding-001", "supportedGenerationMethods": ["embedContent"]},
        ]
    }
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        body = json.dumps(listed).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        provider = make(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        assert await provider.list_models() == ["gemini-2.5-flash"]
        await provider.aclose()
    assert asked[0].startswith(b"GET /v1beta/models?")


async def test_without_a_key_google_is_not_asked_and_the_sentence_says_what_to_do():
    provider = make(None, environ={})
    with pytest.raises(ProviderError, match="GEMINI_API_KEY") as caught:
        await provider.complete(ASK)
    await provider.aclose()
    assert caught.value.error_kind is ErrorKind.AUTH


@pytest.mark.parametrize(
    ("base_url", "settings", "sent"),
    [
        (None, {}, KEY),
        ("https://gemini.example.org", {}, None),
        ("https://gemini.example.org", {"api_key_env": "GEMINI_API_KEY"}, KEY),
        ("http://127.0.0.1:9", {}, KEY),
    ],
)
def test_a_key_goes_to_google_and_to_whom_it_was_given(base_url: str | None, settings: Any, sent: str | None):
    provider: Any = make(base_url, **settings)
    assert provider._wire._http._headers.get("x-goog-api-key") == sent
    assert KEY not in repr(provider._endpoint)


def test_a_key_in_the_environment_is_reason_enough_to_take_gemini():
    choice = choose_model(Config(), {"GOOGLE_API_KEY": "k"}, lambda: True, lambda: True)
    assert choice.name.startswith("gemini/")
    assert "GOOGLE_API_KEY" in choice.why
