"""Vertex AI and keys through Google's SDK, against loopback servers: addresses, credentials, sentences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aar.config.schema import Config
from aar.protocol.errors import ConfigurationError, ErrorKind, ProviderError
from aar.protocol.messages import Message, TextBlock
from aar.providers.base import Provider, ProviderRequest
from aar.providers.factory import make_provider
from tests.providers.gemini.bodies import answers, call, piece, refusal, sse
from tests.support.model_server import ModelServer, Reply

HI = sse(piece({"text": "hel"}), piece({"text": "lo"}, finish="STOP"))
ASK = ProviderRequest(
    model="gemini-2.5-flash", system="s", messages=[Message(role="user", content=(TextBlock(text="hi"),))]
)
TOKEN = Reply(
    body=json.dumps({"access_token": "cloud-token-1", "expires_in": 3600, "token_type": "Bearer"}).encode()
)


def make(
    base_url: str | None, environ: dict[str, str] | None = None, stream: bool = True, **extra: Any
) -> Provider:
    tables = {"model": {"stream": stream}, "providers": {"gemini": {"timeout": 60, "extra": extra}}}
    folder = Path("/nonexistent")
    return make_provider(
        "gemini/gemini-2.5-flash", Config.model_validate(tables), data_dir=folder, runtime_dir=folder,
        base_url=base_url, environ=environ or {},
    )  # fmt: skip


def service_account(file: Path, token_uri: str) -> None:
    """Write a key file as Google's console gives it, for a sign-in server on this machine."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    told = {"type": "service_account", "project_id": "from-file", "private_key_id": "1", "private_key": key.decode(),
            "client_email": "a@b.iam.gserviceaccount.com", "client_id": "1", "token_uri": token_uri}  # fmt: skip
    file.write_text(json.dumps(told))


@pytest.mark.parametrize("stream", [True, False])
async def test_vertex_is_asked_at_its_own_address_with_a_token_of_googles_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
):
    whole = Reply(body=json.dumps(piece({"text": "hello"}, finish="STOP")).encode())
    async with ModelServer([TOKEN]) as sign_in, ModelServer(answers(HI) if stream else [whole]) as server:
        service_account(tmp_path / "key.json", f"http://127.0.0.1:{sign_in.port}/token")
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
        monkeypatch.setenv("GEMINI_API_KEY", "AIzaMustNotBeSent0123456789abcdef")
        provider = make(
            f"http://127.0.0.1:{server.port}",
            stream=stream,
            vertex=True,
            project="proj",
            location="europe-west4",
        )
        assert (await provider.complete(ASK)).text == "hello"
        assert (await provider.complete(ASK)).text == "hello"
        await provider.aclose()
        sent, again = server.requests
        assert len(sign_in.requests) == 1
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    path = f"/v1beta1/projects/proj/locations/europe-west4/publishers/google/models/gemini-2.5-flash:{method}"
    assert (sent.path, again.path) == (path, path)
    assert sent.headers["authorization"] == "Bearer cloud-token-1"
    assert "x-goog-api-key" not in sent.headers
    assert sent.body["contents"] == [{"role": "user", "parts": [{"text": "hi"}]}]
    assert "vertex" not in sent.body


@pytest.mark.parametrize(
    ("extra", "environ", "path"),
    [
        (
            {"vertex": True},
            {"GOOGLE_API_KEY": "express-key-1"},
            "/v1beta1/publishers/google/models/gemini-2.5-flash",
        ),
        ({"sdk": True}, {"GEMINI_API_KEY": "express-key-1"}, "/v1beta/models/gemini-2.5-flash"),
    ],
)
async def test_a_key_is_enough_for_the_express_mode_and_for_the_sdk_itself(
    extra: Any, environ: dict[str, str], path: str
):
    first = sse(piece(call("f", "c2ln", id="1", args={}), finish="STOP"))
    async with ModelServer(answers(first, HI)) as server:
        provider = make(f"http://127.0.0.1:{server.port}", environ, **extra)
        answer = await provider.complete(ASK)
        follow = [*ASK.messages, Message(role="assistant", content=answer.blocks)]
        await provider.complete(ProviderRequest(model="gemini-2.5-flash", system="s", messages=follow))
        await provider.aclose()
        sent = server.requests[1]
    assert sent.path == f"{path}:streamGenerateContent?alt=sse"
    assert sent.headers["x-goog-api-key"] == "express-key-1"
    assert sent.body["contents"][1]["parts"] == [
        {"functionCall": {"name": "f", "args": {}, "id": "1"}, "thoughtSignature": "c2ln"}
    ]
    endpoint: Any = vars(provider)["_endpoint"]
    assert "express-key-1" not in repr(endpoint)


@pytest.mark.parametrize(
    ("reply", "kind", "wait"),
    [
        (refusal(503, {"error": {"code": 503, "message": "overloaded"}}), ErrorKind.OVERLOADED, None),
        (refusal(429, {"error": {"code": 429, "message": "Resource exhausted."}}, **{"retry-after": "7"}),
         ErrorKind.RATE_LIMIT, 7.0),
        (refusal(502, b"<html><title>Bad Gateway</title></html>"), ErrorKind.PROVIDER_INTERNAL, None),
        (Reply(body=HI, content_type="text/event-stream", cut_after=50), ErrorKind.INCOMPLETE_STREAM, None),
        (Reply(body=sse(piece({"text": "hel"})), content_type="text/event-stream"), ErrorKind.INCOMPLETE_STREAM, None),
        (Reply(body=sse(piece({"text": "hel"}), {"error": {"code": 500, "message": "x"}}),
               content_type="text/event-stream"), ErrorKind.PROVIDER_INTERNAL, None),
    ],
)  # fmt: skip
async def test_faults_are_the_same_as_without_the_sdk_and_each_request_is_sent_once(
    reply: Reply, kind: ErrorKind, wait: float | None
):
    async with ModelServer([reply]) as server:
        provider = make(f"http://127.0.0.1:{server.port}", {"GOOGLE_API_KEY": "express-key-1"}, vertex=True)
        with pytest.raises(ProviderError) as caught:
            await provider.complete(ASK)
        await provider.aclose()
        assert len(server.requests) == 1
    assert (caught.value.error_kind, caught.value.retry_after_s) == (kind, wait)


async def test_credentials_that_google_refuses_are_an_error_of_authentication(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    denied = refusal(400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
    async with ModelServer([denied]) as sign_in:
        service_account(tmp_path / "key.json", f"http://127.0.0.1:{sign_in.port}/token")
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
        provider = make("http://127.0.0.1:9", vertex=True, project="p")
        with pytest.raises(ProviderError, match="application-default login") as caught:
            await provider.complete(ASK)
        await provider.aclose()
    assert caught.value.error_kind is ErrorKind.AUTH
    assert "\n" not in str(caught.value)


async def test_a_key_file_that_is_not_there_is_said_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    provider = make("http://127.0.0.1:9", vertex=True, project="p")
    with pytest.raises(ProviderError, match=r"none\.json") as caught:
        await provider.complete(ASK)
    await provider.aclose()
    assert caught.value.error_kind is ErrorKind.AUTH


async def test_the_sdk_does_not_find_a_key_that_was_not_meant_for_the_address(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("GEMINI_API_KEY", "AIzaMustNotBeSent0123456789abcdef")
    provider = make(
        "https://gemini.example.org", {"GEMINI_API_KEY": "AIzaMustNotBeSent0123456789abcdef"}, sdk=True
    )
    with pytest.raises(ProviderError, match="There is no key for Gemini") as caught:
        await provider.complete(ASK)
    await provider.aclose()
    assert caught.value.error_kind is ErrorKind.AUTH


async def test_the_sdks_own_variables_do_not_lead_a_key_elsewhere(monkeypatch: pytest.MonkeyPatch):
    async with ModelServer(answers(HI)) as elsewhere, ModelServer(answers(HI)) as server:
        for name in ("GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{elsewhere.port}")
        provider: Any = make(None, {"GOOGLE_API_KEY": "express-key-1"}, vertex=True)
        assert provider._wire._open(None)._http_options.base_url == "https://aiplatform.googleapis.com"
        near = make(f"http://127.0.0.1:{server.port}", {"GOOGLE_API_KEY": "express-key-1"}, sdk=True)
        assert (await near.complete(ASK)).text == "hello"
        await near.aclose()
        assert (len(elsewhere.requests), len(server.requests)) == (0, 1)


@pytest.mark.parametrize(
    ("base_url", "extra", "environ", "words"),
    [
        (None, {"vertex": True}, {}, "GOOGLE_CLOUD_PROJECT"),
        (None, {}, {"GOOGLE_GENAI_USE_VERTEXAI": "true"}, "GOOGLE_CLOUD_PROJECT"),
        (
            None,
            {"vertex": True, "project": "p", "location": "evil.example/x"},
            {},
            "no location of Google Cloud",
        ),
        (None, {"vertex": True}, {"GOOGLE_CLOUD_PROJECT": "p/../q"}, "GOOGLE_CLOUD_PROJECT"),
        (
            "https://gemini.example.org",
            {"vertex": True, "project": "p"},
            {},
            "do not go to gemini.example.org",
        ),
    ],
)
def test_what_vertex_lacks_is_said_before_any_request(base_url: Any, extra: Any, environ: Any, words: str):
    with pytest.raises(ConfigurationError, match=words):
        make(base_url, environ, **extra)


@pytest.mark.parametrize(
    ("extra", "environ", "server"),
    [
        ({}, {"GOOGLE_GENAI_USE_VERTEXAI": "1", "GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "us-east5"},
         "us-east5-aiplatform.googleapis.com"),
        ({"vertex": True, "project": "p"}, {}, "aiplatform.googleapis.com"),
        ({"vertex": True, "project": "p", "location": "eu"}, {}, "aiplatform.eu.rep.googleapis.com"),
        ({"vertex": True}, {"GOOGLE_API_KEY": "express-key-1"}, "aiplatform.googleapis.com"),
        ({"vertex": False}, {"GOOGLE_GENAI_USE_VERTEXAI": "1"}, "generativelanguage.googleapis.com"),
        ({"sdk": True}, {"GOOGLE_API_KEY": "k"}, "generativelanguage.googleapis.com"),
    ],
)  # fmt: skip
def test_the_server_is_told_before_the_sdk_is_imported_and_is_the_one_that_the_sdk_takes(
    extra: Any, environ: dict[str, str], server: str
):
    provider: Any = make(None, environ, **extra)
    assert provider.server == server
    if provider._endpoint.sdk is None:
        return
    assert provider._wire._api is None
    from google import genai

    access = provider._endpoint.sdk
    key = access.key.get_secret_value() if access.key else None
    client: Any = genai.Client(
        vertexai=access.vertex, project=access.project, location=access.location, api_key=key
    )
    assert client._api_client._http_options.base_url == f"https://{server}/"
