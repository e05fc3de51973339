"""The provider against a loopback server: answers, faults, adaptation, keys, cancellation."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from aar.config.schema import Config
from aar.protocol.errors import ErrorKind, ProviderError
from aar.protocol.messages import Message, TextBlock
from aar.providers.base import Delta, ProviderCapabilities, ProviderRequest, ProviderResponse
from aar.providers.factory import make_provider
from aar.providers.openai_compatible import Endpoint, OpenAICompatibleProvider
from tests.support.model_server import ModelServer, Reply
from tests.support.waiting import until

KEY = "sk-seeded-0123456789abcdef"
ASK = ProviderRequest(
    model="m", system="be brief", messages=[Message(role="user", content=(TextBlock(text="hi"),))]
)


def provider_at(base_url: str, **more: Any) -> OpenAICompatibleProvider:
    endpoint = Endpoint(name="openai-compatible", base_url=base_url, **{"timeout": 60, **more})
    return OpenAICompatibleProvider(endpoint, lambda model: ProviderCapabilities())


async def ask(reply: Reply | list[Reply], request: ProviderRequest = ASK, **more: Any) -> ProviderResponse:
    replies = reply if isinstance(reply, list) else [reply]
    async with ModelServer(replies) as server:
        provider = provider_at(server.base_url, **more)
        try:
            return await provider.complete(request)
        finally:
            await provider.aclose()


async def failure(reply: Reply, **more: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await ask(reply, **more)
    assert "\n" not in str(caught.value)
    assert KEY not in f"{caught.value} {caught.value.detail}"
    return caught.value


RICH = Reply(
    text="Café <b>\n done",
    reasoning="let me\n think",
    tool_calls=[("read", {"path": "ä.txt"}), ("read", {}), ("bash", '{"command": "ec')],
    usage={"prompt_tokens": 30, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 20}},
)


async def test_streamed_and_whole_answers_are_equal():
    streamed = await ask(RICH, stream=True)
    whole = await ask(RICH, stream=False)
    unasked = await ask(Reply(**{**vars(RICH), "stream": False}), stream=True)
    assert [block.model_dump() for block in streamed.blocks] == [block.model_dump() for block in whole.blocks]
    assert unasked.blocks == whole.blocks
    assert (streamed.usage, streamed.stop, streamed.stop_raw) == (whole.usage, whole.stop, whole.stop_raw)
    assert streamed.text == RICH.text
    assert streamed.usage is not None
    assert (streamed.usage.input, streamed.usage.cache_read) == (10, 20)
    assert [call.raw_arguments for call in streamed.tool_uses] == [None, None, '{"command": "ec']


async def test_deltas_come_while_the_answer_is_still_being_sent():
    async with ModelServer([Reply(text="abcdefgh" * 4, stall_after=450)]) as server:
        provider = provider_at(server.base_url)
        stream = provider.stream(ASK)
        first = await anext(stream)
        assert first == Delta(text="abcdefgh")
        await stream.aclose()  # pyright: ignore[reportAttributeAccessIssue] - it is a generator
        await provider.aclose()


async def test_one_connection_serves_many_requests():
    async with ModelServer([Reply(text="a")]) as server:
        provider = provider_at(server.base_url)
        for _ in range(5):
            await provider.complete(ASK)
        await provider.aclose()
        assert (len(server.requests), server.connections) == (5, 1)


async def test_the_key_goes_out_as_a_bearer_token_and_without_one_there_is_no_header():
    async with ModelServer([Reply(text="a")]) as server:
        for key in (SecretStr(KEY), None):
            provider = provider_at(server.base_url, key=key, headers={"X-Team": "blue"})
            await provider.complete(ASK)
            await provider.aclose()
        sent = [request.headers for request in server.requests]
    assert sent[0]["authorization"] == f"Bearer {KEY}"
    assert "authorization" not in sent[1]
    assert sent[1]["x-team"] == "blue"


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(status=401, error=f"Incorrect API key provided: {KEY}."), ErrorKind.AUTH),
        (Reply(status=429, error={"message": "no", "code": "insufficient_quota"}), ErrorKind.QUOTA),
        (Reply(status=500, error="boom"), ErrorKind.PROVIDER_INTERNAL),
        (Reply(status=529, error="Overloaded"), ErrorKind.OVERLOADED),
        (Reply(status=502, body=b"<html><title>Bad gateway</title></html>"), ErrorKind.PROVIDER_INTERNAL),
        (Reply(status=307, headers={"location": "https://evil.example/"}), ErrorKind.INVALID_REQUEST),
        (
            Reply(body=b"<html><title>Welcome</title></html>", content_type="text/html"),
            ErrorKind.MALFORMED_RESPONSE,
        ),
        (Reply(body=b""), ErrorKind.INCOMPLETE_STREAM),
        (Reply(body=b'{"choices": [{"mess'), ErrorKind.INCOMPLETE_STREAM),
        (Reply(body=b'{"choices"; []}'), ErrorKind.MALFORMED_RESPONSE),
        (Reply(body=b'{"error": {"message": "Overloaded"}}'), ErrorKind.OVERLOADED),
        (Reply(body=b'data: {"error": {"message": "rate limit", "code": 429}}\n\n'), ErrorKind.RATE_LIMIT),
        (Reply(body=b'event: error\ndata: {"message": "boom"}\n\n'), ErrorKind.PROVIDER_INTERNAL),
        (Reply(body=b'error: {"message": "maximum context length"}\n\n'), ErrorKind.CONTEXT_OVERFLOW),
        (Reply(body=b"upstream connect error"), ErrorKind.MALFORMED_RESPONSE),
        (Reply(body=b"data: {broken\n\n"), ErrorKind.MALFORMED_RESPONSE),
        (Reply(body=b"data: [DONE]\n\n"), ErrorKind.INCOMPLETE_STREAM),
        (Reply(text="cut", cut_after=150), ErrorKind.INCOMPLETE_STREAM),
        (Reply(text="cut", done=False, finish=""), ErrorKind.INCOMPLETE_STREAM),
    ],
)
async def test_what_a_server_does_wrong_has_a_kind_and_a_sentence(reply: Reply, kind: ErrorKind):
    error = await failure(reply, key=SecretStr(KEY))
    assert error.error_kind is kind


async def test_a_stalled_answer_is_a_timeout():
    error = await failure(Reply(text="x" * 100, stall_after=300), timeout=0.2)
    assert error.error_kind is ErrorKind.TIMEOUT


async def test_a_slow_answer_that_keeps_coming_is_no_timeout():
    response = await ask(Reply(text="x" * 40, chunk_delay_s=0.2), timeout=1)
    assert response.text == "x" * 40


async def test_nobody_listening_is_a_network_error_that_says_so():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        provider = provider_at(f"http://127.0.0.1:{free.getsockname()[1]}/v1")
        with pytest.raises(ProviderError) as caught:
            await provider.complete(ASK)
    await provider.aclose()
    assert caught.value.error_kind is ErrorKind.NETWORK
    assert "Nothing answers at 127.0.0.1" in str(caught.value)


async def test_broken_tls_is_a_network_error_that_says_so():
    async def plain(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 X\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        provider = provider_at(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        with pytest.raises(ProviderError) as caught:
            await provider.complete(ASK)
        await provider.aclose()
    assert caught.value.error_kind is ErrorKind.NETWORK
    assert "TLS" in str(caught.value)


async def test_cancelling_closes_the_connection():
    async with ModelServer([Reply(text="x" * 100, stall_after=200)]) as server:
        provider = provider_at(server.base_url)
        task = asyncio.create_task(provider.complete(ASK))
        await until(lambda: server.requests)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: server.cancelled)
        await provider.aclose()


async def test_a_field_that_the_server_refuses_is_left_out_from_then_on():
    refusal = Reply(
        status=400, error={"message": "Unsupported parameter: stream_options", "param": "stream_options"}
    )
    async with ModelServer([refusal, Reply(text="ok")]) as server:
        provider = provider_at(server.base_url)
        deltas = [delta async for delta in provider.stream(ASK)]
        await provider.complete(ASK)
        await provider.aclose()
        sent = [set(request.body) for request in server.requests]
    assert ["stream_options" in fields for fields in sent] == [True, False, False]
    assert "stream_options" in (deltas[0].progress or "")
    assert deltas[-1].response is not None
    assert deltas[-1].response.text == "ok"


async def test_a_field_that_the_server_calls_otherwise_is_renamed():
    said = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    request = ProviderRequest("m", "", ASK.messages, max_output_tokens=50)
    async with ModelServer([Reply(status=400, error=said), Reply(text="ok")]) as server:
        provider = provider_at(server.base_url)
        await provider.complete(request)
        await provider.aclose()
        assert server.requests[0].body["max_tokens"] == 50
        assert "max_tokens" not in server.requests[1].body
        assert server.requests[1].body["max_completion_tokens"] == 50


async def test_a_server_that_always_refuses_is_asked_four_times_at_most():
    said = "unsupported: stream_options temperature max_tokens response_format"
    request = ProviderRequest("m", "", ASK.messages, max_output_tokens=5, temperature=1, output_schema={})
    async with ModelServer([Reply(status=400, error=said)]) as server:
        provider = provider_at(server.base_url)
        with pytest.raises(ProviderError) as caught:
            await provider.complete(request)
        await provider.aclose()
        assert len(server.requests) == 4
    assert caught.value.error_kind is ErrorKind.INVALID_REQUEST


async def test_a_wait_hint_of_the_server_is_passed_on():
    error = await failure(Reply(status=429, error="slow down", headers={"retry-after": "7"}))
    assert (error.error_kind, error.retry_after_s, error.retryable) == (ErrorKind.RATE_LIMIT, 7, True)


async def test_models_are_listed():
    async with ModelServer([], models=["a", "b"]) as server:
        provider = provider_at(server.base_url)
        assert await provider.list_models() == ["a", "b"]
        await provider.aclose()


async def test_ids_that_came_before_in_the_conversation_are_replaced():
    reply = Reply(tool_calls=[("read", {})])
    first = await ask(reply)
    again = Message(role="assistant", content=first.tool_uses)
    second = await ask(reply, ProviderRequest("m", "", [*ASK.messages, again]))
    assert second.tool_uses[0].call_id != first.tool_uses[0].call_id


async def test_the_factory_makes_a_provider_that_answers(tmp_path: Path):
    async with ModelServer([Reply(text="hello")]) as server:
        config = Config.model_validate(
            {"providers": {"openai-compatible": {"headers": {"x-a": "b"}, "extra": {"seed": 7}}}}
        )
        provider = make_provider(
            "generic/m", config, data_dir=tmp_path, runtime_dir=tmp_path, base_url=server.base_url, environ={}
        )
        response = await provider.complete(ASK)
        await provider.aclose()
        body = server.requests[0].body
        assert server.requests[0].path == "/v1/chat/completions"
    assert response.text == "hello"
    assert (body["model"], body["seed"], body["stream_options"]) == ("m", 7, {"include_usage": True})
    assert json.dumps(body["messages"][0]) == json.dumps({"role": "system", "content": "be brief"})
