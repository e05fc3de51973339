"""Bedrock and Vertex: by configuration, on loopback; their keys, paths and the binary stream."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aar.config.schema import Config
from aar.protocol.errors import ConfigurationError, ErrorKind, ProviderError
from aar.providers.anthropic.eventstream import EventStreamDecoder
from aar.providers.base import Provider
from aar.providers.factory import make_provider
from tests.providers.anthropic.support import KEY, READ, ask, decode, message, stream_of
from tests.support.model_server import ModelServer, Reply

ANSWER = message(
    {"type": "thinking", "thinking": "hm", "signature": "S=="},
    {"type": "text", "text": "Grüße"},
    {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"p": "x"}},
    stop="tool_use",
)
BINARY = "application/vnd.amazon.eventstream"
ENVIRON = {"CLOUD_KEY": KEY, "ANTHROPIC_API_KEY": "sk-ant-of-the-vendor"}


def frame(payload: bytes, **headers: str) -> bytes:
    """Return one message of the event stream; header names are given without their colon."""
    packed = b"".join(
        bytes([len(name) + 1]) + b":" + name.replace("_", "-").encode() + b"\x07"
        + struct.pack(">H", len(value.encode())) + value.encode()
        for name, value in headers.items()
    )  # fmt: skip
    head = struct.pack(">II", 16 + len(packed) + len(payload), len(packed))
    body = head + struct.pack(">I", zlib.crc32(head)) + packed + payload
    return body + struct.pack(">I", zlib.crc32(body))


def bedrock_stream(whole: dict[str, Any]) -> bytes:
    lines = [line[6:] for line in stream_of(whole).split(b"\n") if line.startswith(b"data: ")]
    return b"".join(
        frame(
            json.dumps({"bytes": base64.b64encode(line).decode(), "p": "abc"}).encode(),
            event_type="chunk",
            content_type="application/json",
            message_type="event",
        )
        for line in lines
    )


def cloud(
    base_url: str | None, environ: dict[str, str] | None = None, key: bool = True, **extra: str
) -> Provider:
    settings: dict[str, Any] = {"extra": extra, **({"api_key_env": "CLOUD_KEY"} if key else {})}
    return make_provider(
        "anthropic/any",
        Config.model_validate({"providers": {"anthropic": settings}}),
        data_dir=Path("."),
        runtime_dir=Path("."),
        base_url=base_url,
        environ=ENVIRON if environ is None else environ,
    )


def address(server: ModelServer) -> str:
    return f"http://127.0.0.1:{server.port}"


async def test_bedrock_is_asked_by_its_path_and_answers_in_its_binary_stream():
    async with ModelServer([Reply(body=bedrock_stream(ANSWER), content_type=BINARY)]) as server:
        provider = cloud(address(server), backend="bedrock", region="eu-west-1")
        model = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
        response = await provider.complete(ask(model=model, reasoning="high", tools=(READ,)))
        await provider.aclose()
    (request,) = server.requests
    assert response == decode([json.dumps(ANSWER).encode()])[1]
    assert request.path == f"/model/{model}/invoke-with-response-stream"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body["anthropic_beta"] == ["interleaved-thinking-2025-05-14"]
    assert request.body["anthropic_version"]
    assert not {"model", "stream"} & set(request.body)
    assert request.body["thinking"]["budget_tokens"] == 20000


async def test_vertex_is_asked_by_its_path_with_a_token():
    async with ModelServer([Reply(body=stream_of(ANSWER), content_type="text/event-stream")]) as server:
        provider = cloud(address(server), backend="vertex", region="us-east5", project="p-1")
        response = await provider.complete(ask(model="claude-opus-4-1@20250805"))
        await provider.aclose()
    (request,) = server.requests
    assert response.tool_uses[0].arguments == {"p": "x"}
    place = "/projects/p-1/locations/us-east5/publishers/anthropic/models"
    assert request.path == f"{place}/claude-opus-4-1@20250805:streamRawPredict"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body["stream"] is True
    assert "model" not in request.body


@pytest.mark.parametrize(
    ("extra", "environ", "base_url", "words"),
    [
        ({"backend": "azure"}, {}, None, "api, bedrock or vertex"),
        ({"backend": "bedrock"}, {}, None, "AWS_REGION"),
        ({"backend": "vertex", "region": "eu"}, {}, None, "GOOGLE_CLOUD_PROJECT"),
        (
            {"backend": "bedrock", "region": "x"},
            {},
            "https://evil.example.org",
            "do not go to evil.example.org",
        ),
        ({"backend": "vertex", "region": "x", "project": "p"}, {}, "https://evil.example.org", "api_key_env"),
    ],
)
def test_what_a_cloud_lacks_is_said_in_one_sentence(
    extra: dict[str, str], environ: dict[str, str], base_url: str | None, words: str
):
    with pytest.raises(ConfigurationError, match=words):
        cloud(base_url, environ, key=False, **extra)


@pytest.mark.parametrize(
    ("extra", "package"),
    [({"backend": "bedrock"}, "boto3"), ({"backend": "vertex", "project": "p"}, "google")],
)
def test_a_package_that_is_missing_is_named_with_what_installs_it(
    extra: dict[str, str], package: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == package else object())
    with pytest.raises(ConfigurationError, match=rf"pip install 'anthropic\[{extra['backend']}\]'"):
        cloud(None, {}, key=False, region="eu", **extra)


def test_the_vendors_own_key_does_not_go_to_a_cloud_and_regions_have_their_addresses():
    provider: Any = cloud(
        None, {**ENVIRON, "AWS_BEARER_TOKEN_BEDROCK": "x"}, key=False, backend="bedrock", region="eu-1"
    )
    assert provider._endpoint.key is None
    assert provider.server == "bedrock-runtime.eu-1.amazonaws.com"
    for region, host in (
        ("global", "aiplatform.googleapis.com"),
        ("eu", "aiplatform.eu.rep.googleapis.com"),
        ("us-east5", "us-east5-aiplatform.googleapis.com"),
    ):
        assert cloud(None, backend="vertex", region=region, project="p").server == host


async def test_an_exception_inside_of_the_binary_stream_has_its_kind():
    throttled = frame(
        b'{"message": "Too many requests"}', message_type="exception", exception_type="throttlingException"
    )
    async with ModelServer([Reply(body=throttled, content_type=BINARY)]) as server:
        provider = cloud(address(server), backend="bedrock", region="eu-west-1")
        with pytest.raises(ProviderError) as caught:
            await provider.complete(ask())
        server.replies = [Reply(body=b"x" * 40, content_type=BINARY)]
        with pytest.raises(ProviderError) as broken:
            await provider.complete(ask())
        server.replies = [Reply(body=bedrock_stream(ANSWER)[:-30], content_type=BINARY)]
        with pytest.raises(ProviderError) as cut:
            await provider.complete(ask())
        await provider.aclose()
    assert caught.value.error_kind is ErrorKind.RATE_LIMIT
    assert broken.value.error_kind is ErrorKind.MALFORMED_RESPONSE
    assert cut.value.error_kind is ErrorKind.INCOMPLETE_STREAM


@given(cuts=st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_the_binary_stream_may_be_cut_anywhere(cuts: list[int]):
    body = bedrock_stream(ANSWER)
    decoder, found, place, turn = EventStreamDecoder(), b"", 0, 0
    while place < len(body):
        size = cuts[turn % len(cuts)]
        found += decoder.feed(body[place : place + size])
        place, turn = place + size, turn + 1
    assert decode([found])[1] == decode([json.dumps(ANSWER).encode()])[1]


def test_a_flipped_bit_of_the_binary_stream_is_noticed():
    body = bytearray(frame(b'{"bytes": "e30="}', message_type="event"))
    assert EventStreamDecoder().feed(bytes(body)) == b"data: {}\n\n"
    for place in (1, 14, len(body) - 6):
        broken = bytes(body[:place]) + bytes([body[place] ^ 1]) + bytes(body[place + 1 :])
        with pytest.raises(ValueError, match="stream"):
            EventStreamDecoder().feed(broken)


def test_headers_of_every_type_and_frames_without_an_event_are_passed_over():
    fixed = b"\x04flag\x00" + b"\x01n\x04\x00\x00\x00\x07" + b"\x01t\x08" + b"\x00" * 8
    kind = b"\x0d:message-type\x07" + struct.pack(">H", 5) + b"event"
    head = struct.pack(">II", 16 + len(fixed + kind) + 2, len(fixed + kind))
    body = head + struct.pack(">I", zlib.crc32(head)) + fixed + kind + b"{}"
    assert EventStreamDecoder().feed(body + struct.pack(">I", zlib.crc32(body))) == b""
