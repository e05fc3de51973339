"""The provider against a loopback server: forms, faults, other ways of asking, keys, cancellation."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import Any

import pytest

from aar.protocol.errors import ErrorKind, ProviderError
from aar.protocol.messages import ReasoningBlock
from aar.providers.base import Delta
from tests.providers.anthropic.support import (
    KEY,
    answer,
    ask,
    assistant,
    events,
    message,
    provider_at,
    say,
    stream_of,
    user,
)
from tests.support.model_server import ModelServer, Reply
from tests.support.waiting import until

RICH = message(
    {"type": "thinking", "thinking": "let me\n think", "signature": "S=="},
    {"type": "text", "text": "Café <b>\n done"},
    {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"p": "ä.txt"}},
    {"type": "tool_use", "id": "toolu_2", "name": "read", "input": {}},
    stop="tool_use",
)
SSE = "text/event-stream"
OK = Reply(body=stream_of(RICH), content_type=SSE)


def refusal(text: str, kind: str = "invalid_request_error", status: int = 400) -> Reply:
    body = {"type": "error", "error": {"type": kind, "message": text}, "request_id": "req_1"}
    return Reply(status=status, body=json.dumps(body).encode())


async def failure(reply: Reply, **more: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await answer(reply, **more)
    assert "\n" not in str(caught.value)
    assert KEY not in f"{caught.value} {caught.value.detail}"
    return caught.value


async def test_streamed_and_whole_answers_are_equal():
    streamed, deltas, server = await answer(OK)
    whole, _, other = await answer(Reply(body=json.dumps(RICH).encode()), model={"stream": False})
    assert whole == streamed
    assert (server.requests[0].body["stream"], other.requests[0].body["stream"]) == (True, False)
    assert "".join(delta.text for delta in deltas) == "Café <b>\n done"
    assert [delta.tool_name for delta in deltas if delta.tool_name] == ["read", "read"]
    assert streamed.usage is not None
    assert (streamed.usage.input, streamed.usage.cache_read, streamed.usage.output) == (3, 2, 5)


async def test_one_connection_serves_many_requests_wherever_the_address_ends():
    async with ModelServer([OK]) as server:
        for address in (server.base_url, server.base_url.removesuffix("/v1"), server.base_url + "/messages/"):
            provider = provider_at(address)
            for _ in range(3):
                await provider.complete(ask())
            await provider.aclose()
        assert {request.path for request in server.requests} == {"/v1/messages"}
        assert (len(server.requests), server.connections) == (9, 3)


async def test_deltas_come_while_the_answer_is_still_being_sent_and_leaving_closes_the_connection():
    async with ModelServer([Reply(body=stream_of(RICH), content_type=SSE, stall_after=700)]) as server:
        provider = provider_at(server.base_url)
        stream = provider.stream(ask())
        first = await anext(stream)
        assert first == Delta(reasoning="let")
        await stream.aclose()  # pyright: ignore[reportAttributeAccessIssue] - it is a generator
        await until(lambda: server.cancelled)
        await provider.aclose()
    assert server.cancelled == 1


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (refusal(f"invalid x-api-key {KEY}", "authentication_error", 401), ErrorKind.AUTH),
        (refusal("invalid x-api-key", "authentication_error", 400), ErrorKind.AUTH),
        (refusal("not yours", "permission_error", 403), ErrorKind.AUTH),
        (refusal("Your credit balance is too low to access the Anthropic API."), ErrorKind.QUOTA),
        (refusal("no money", "billing_error", 402), ErrorKind.QUOTA),
        (refusal("slow down", "rate_limit_error", 429), ErrorKind.RATE_LIMIT),
        (refusal("prompt is too long: 213462 tokens > 200000 maximum"), ErrorKind.CONTEXT_OVERFLOW),
        (refusal("Request exceeds the maximum size", "request_too_large", 413), ErrorKind.CONTEXT_OVERFLOW),
        (refusal("model: claude-nope", "not_found_error", 404), ErrorKind.UNKNOWN_MODEL),
        (refusal("messages: roles must alternate"), ErrorKind.INVALID_REQUEST),
        (refusal("Output blocked by content filtering policy"), ErrorKind.CONTENT_FILTER),
        (refusal("Internal server error", "api_error", 500), ErrorKind.PROVIDER_INTERNAL),
        (refusal("Overloaded", "overloaded_error", 529), ErrorKind.OVERLOADED),
        (Reply(status=502, body=b"<html><title>Bad gateway</title></html>"), ErrorKind.PROVIDER_INTERNAL),
        (
            Reply(status=307, body=b"", headers={"location": "https://evil.example/"}),
            ErrorKind.INVALID_REQUEST,
        ),
        (Reply(body=b"", content_type=SSE), ErrorKind.INCOMPLETE_STREAM),
        (Reply(body=b"<html></html>", content_type="text/html"), ErrorKind.MALFORMED_RESPONSE),
        (Reply(body=stream_of(RICH), content_type=SSE, cut_after=600), ErrorKind.INCOMPLETE_STREAM),
        (Reply(body=stream_of(RICH, end=False), content_type=SSE), ErrorKind.INCOMPLETE_STREAM),
        (
            Reply(body=events({"type": "error", "error": {"type": "overloaded_error", "message": "x"}})),
            ErrorKind.OVERLOADED,
        ),
    ],
)
async def test_what_a_server_does_wrong_has_a_kind_and_a_sentence(reply: Reply, kind: ErrorKind):
    error = await failure(reply)
    assert error.error_kind is kind


async def test_a_wait_hint_and_the_name_of_a_request_are_kept_and_the_sdk_tries_only_once():
    reply = refusal("slow down", "rate_limit_error", 429)
    async with ModelServer([Reply(**{**vars(reply), "headers": {"retry-after": "7"}})]) as server:
        provider = provider_at(server.base_url)
        with pytest.raises(ProviderError) as caught:
            await provider.complete(ask())
        await provider.aclose()
        assert len(server.requests) == 1
    assert (caught.value.retry_after_s, caught.value.request_id, caught.value.status) == (7, "req_1", 429)
    told = await answer(Reply(body=stream_of(RICH), content_type=SSE, headers={"request-id": "req_9"}))
    assert told[0].request_id == "req_9"


async def test_a_stalled_answer_is_a_timeout_and_nobody_listening_a_network_error():
    stalled = Reply(body=stream_of(RICH), content_type=SSE, stall_after=300)
    error = await failure(stalled, providers={"anthropic": {"timeout": 0.2}})
    assert error.error_kind is ErrorKind.TIMEOUT
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        provider = provider_at(f"http://127.0.0.1:{free.getsockname()[1]}")
        with pytest.raises(ProviderError) as caught:
            await provider.complete(ask())
        await provider.aclose()
    assert caught.value.error_kind is ErrorKind.NETWORK
    assert "Nothing answers" in str(caught.value)


@pytest.mark.parametrize(
    ("model", "said", "level", "path", "value"),
    [
        (
            "claude-sonnet-4-5",
            '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and '
            '"output_config.effort" to control thinking behavior.',
            "high",
            ("thinking", "type"),
            "adaptive",
        ),
        (
            "claude-opus-4-6",
            "This model does not support effort level 'max'. Supported levels: high, low, medium.",
            "max",
            ("output_config", "effort"),
            "high",
        ),
        (
            "claude-opus-4-6",
            "This model does not support the effort parameter.",
            "max",
            ("output_config",),
            None,
        ),
        (
            "claude-opus-4-6",
            "adaptive thinking is not supported on this model",
            "low",
            ("thinking", "type"),
            "enabled",
        ),
        (
            "claude-opus-5",
            "thinking.type.disabled is not supported for this model",
            "off",
            ("thinking", "type"),
            "adaptive",
        ),
        ("kimi-k3", "max_tokens: 8192 > 4096, which is the maximum allowed", None, ("max_tokens",), 4096),
        ("kimi-k3", "'claude' does not support thinking.", 1024, ("thinking",), None),
        ("kimi-k3", "temperature: not supported", None, ("temperature",), None),
        (
            "kimi-k3",
            "system.0.cache_control: Extra inputs are not permitted",
            None,
            ("system", 0, "cache_control"),
            None,
        ),
        ("kimi-k3", "output_config.format: Extra inputs are not permitted", None, ("output_config",), None),
    ],
)
async def test_a_refused_way_of_asking_is_changed_once_and_remembered(
    model: str, said: str, level: Any, path: tuple[Any, ...], value: Any
):
    schema = {"type": "object", "properties": {}} if "format" in said else None
    request = ask(model=model, reasoning=level, temperature=0.5, output_schema=schema)
    async with ModelServer([refusal(said), OK]) as server:
        provider = provider_at(server.base_url)
        deltas = [delta async for delta in provider.stream(request)]
        await provider.complete(request)
        await provider.aclose()
    assert deltas[0].progress is not None
    assert deltas[-1].response is not None
    assert len(server.requests) == 3
    for sent in server.requests[1:]:
        found = sent.body
        for step in path:
            found = found.get(step) if isinstance(found, dict) else found[step]
        assert found == value


async def test_thinking_whose_signature_is_not_taken_is_left_out():
    said = "messages.1.content.0: Invalid `signature` in `thinking` block"
    request = ask(
        user(say("a")), assistant(ReasoningBlock(text="x", signature="s"), say("b")), user(say("c"))
    )
    async with ModelServer([refusal(said), OK]) as server:
        provider = provider_at(server.base_url)
        await provider.complete(request)
        await provider.aclose()
    before, after = (sent.messages[1]["content"] for sent in server.requests)
    assert [block["type"] for block in before] == ["thinking", "text"]
    assert [block["type"] for block in after] == ["text"]


async def test_a_server_that_refuses_everything_is_not_asked_for_ever():
    async with ModelServer([refusal("temperature: not supported")]) as server:
        provider = provider_at(server.base_url)
        with pytest.raises(ProviderError) as caught:
            await provider.complete(ask(temperature=0.5))
        await provider.aclose()
    assert caught.value.error_kind is ErrorKind.INVALID_REQUEST
    assert len(server.requests) == 2


async def test_the_key_goes_out_in_both_forms_to_this_machine_and_without_one_there_is_none():
    _, _, server = await answer(OK, providers={"anthropic": {"headers": {"X-Team": "blue"}}})
    headers = server.requests[0].headers
    assert (headers["authorization"], headers["x-api-key"]) == (f"Bearer {KEY}", KEY)
    assert (headers["x-team"], headers["anthropic-version"][:2]) == ("blue", "20")
    _, _, server = await answer(OK, key=None)
    assert not {"authorization", "x-api-key"} & set(server.requests[0].headers)


async def test_a_foreign_host_gets_neither_the_key_nor_headers_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
):
    from aar.providers.anthropic.client import open_client, request_headers

    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", KEY)
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", f"X-Secret: {KEY}")
    provider = provider_at("https://llm.example.org")
    client = open_client(provider._endpoint, await provider._http.get())
    headers = request_headers(provider._endpoint, [])
    from anthropic._models import FinalRequestOptions

    built = client._build_request(
        FinalRequestOptions.construct(method="post", url="/v1/messages", content=b"{}", headers=headers)
    )
    await provider.aclose()
    assert built.url.host == "llm.example.org"
    assert KEY not in str(dict(built.headers))
    assert "authorization" not in built.headers


async def test_without_any_key_the_vendor_is_not_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Any):
    for name in [name for name in os.environ if name.startswith("ANTHROPIC_")]:
        monkeypatch.delenv(name)
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    provider = provider_at("https://api.anthropic.com", key=None)
    with pytest.raises(ProviderError, match="Set ANTHROPIC_API_KEY") as caught:
        await provider.complete(ask())
    await provider.aclose()
    assert caught.value.error_kind is ErrorKind.AUTH


async def test_models_are_listed_by_the_server():
    async with ModelServer([], models=["claude-a", "claude-b"]) as server:
        provider = provider_at(server.base_url)
        assert await provider.list_models() == ["claude-a", "claude-b"]
        await provider.aclose()


def test_making_a_provider_and_encoding_a_request_import_no_sdk():
    code = (
        "import sys\n"
        "from tests.providers.anthropic.support import ask, provider_at\n"
        "provider = provider_at('http://127.0.0.1:9')\n"
        "request = ask(reasoning='high')\n"
        "provider._encode(request, provider._fields(request, provider._plan(request)))\n"
        "print('anthropic' in sys.modules)\n"
        "provider.warm()\n"
        "import threading\n"
        "[t.join() for t in threading.enumerate() if t.name == 'aar-anthropic-sdk']\n"
        "print('anthropic' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


@pytest.mark.parametrize("level", ["debug", "info"])
async def test_the_sdks_own_log_never_holds_a_key(level: str, caplog: pytest.LogCaptureFixture):
    for name in ("anthropic", "httpx2"):
        caplog.set_level(level.upper(), logger=name)
    settings = {"anthropic": {"headers": {"X-Gateway-Token": f"{KEY}-gateway"}}}
    await answer(OK, providers=settings)
    with pytest.raises(ProviderError):
        await answer(refusal("no", "authentication_error", 401), providers=settings)
    assert "/v1/messages" in caplog.text
    assert KEY not in caplog.text
