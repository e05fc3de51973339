"""Kinds of errors, wait hints, and that no key is ever told."""

from __future__ import annotations

import json
import socket
from email.utils import formatdate
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aar.protocol.errors import ConfigurationError, ErrorKind
from aar.providers.http.client import host_of, is_loopback, network_error
from aar.providers.http.errors import scrub, server_error
from aar.providers.http.wait_hints import duration, wait_hint

E = ErrorKind


def openai(message: str, code: Any = None, kind: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": code}}


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, openai("no"), E.AUTH),
        (400, openai("API key not valid. Please pass a valid API key.", kind="INVALID_ARGUMENT"), E.AUTH),
        (400, {"code": "Client specified an invalid argument", "error": "Incorrect API key provided: x"}, E.AUTH),
        (403, {"detail": "Unauthorized"}, E.AUTH),
        (429, openai("You exceeded your current quota", "insufficient_quota"), E.QUOTA),
        (402, openai("Insufficient Balance"), E.QUOTA),
        (400, openai("Your credit balance is too low to access the API."), E.QUOTA),
        (429, openai("Rate limit reached for requests"), E.RATE_LIMIT),
        (429, [{"error": {"code": 429, "message": "You exceeded your current quota.", "status": "RESOURCE_EXHAUSTED",
                          "details": [{"retryDelay": "48s"}]}}], E.RATE_LIMIT),
        (400, openai("This model's maximum context length is 8192 tokens. However, you requested 9000"), E.CONTEXT_OVERFLOW),
        (400, openai("x", "context_length_exceeded"), E.CONTEXT_OVERFLOW),
        (500, openai("the request exceeds the available context size", kind="exceed_context_size_error"), E.CONTEXT_OVERFLOW),
        (413, openai("Request too large for model `x` on tokens per minute (TPM)", "rate_limit_exceeded"), E.CONTEXT_OVERFLOW),
        (400, {"message": "prompt is too long: 300000 tokens > 200000 maximum"}, E.CONTEXT_OVERFLOW),
        (400, openai("max_tokens is too large: 99. This model supports at most 16384 completion tokens"), E.INVALID_REQUEST),
        (404, openai("The model `x` does not exist or you do not have access to it.", "model_not_found"), E.UNKNOWN_MODEL),
        (404, openai("model 'x' not found, try pulling it first"), E.UNKNOWN_MODEL),
        (400, openai("x is not a valid model ID"), E.UNKNOWN_MODEL),
        (404, openai("No endpoints found for x/y."), E.UNKNOWN_MODEL),
        (404, "404 page not found", E.INVALID_REQUEST),
        (400, openai("The response was filtered", "content_filter"), E.CONTENT_FILTER),
        (403, openai("x requires moderation. Your input was flagged"), E.CONTENT_FILTER),
        (400, openai("Unsupported value: 'temperature' does not support 0.2 with this model."), E.INVALID_REQUEST),
        (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, E.INVALID_REQUEST),
        (408, "", E.TIMEOUT),
        (409, "", E.OVERLOADED),
        (500, openai("The server is overloaded"), E.OVERLOADED),
        (503, "<html><title>Service Unavailable</title></html>", E.OVERLOADED),
        (504, "", E.TIMEOUT),
        (529, openai("Overloaded", kind="overloaded_error"), E.OVERLOADED),
        (520, "", E.PROVIDER_INTERNAL),
        (400, openai("Failed to call a function", "tool_use_failed"), E.PROVIDER_INTERNAL),
        (200, openai("Provider returned error", 502), E.PROVIDER_INTERNAL),
        (200, openai("", "rate_limit_exceeded"), E.RATE_LIMIT),
        (502, {"error": {"message": "Provider returned error", "metadata": {"raw": '{"error":"context length exceeded"}'}}},
         E.CONTEXT_OVERFLOW),
    ],
)  # fmt: skip
def test_errors_have_the_kind_that_their_words_or_status_tell(status: int, body: Any, kind: ErrorKind):
    raw = body if isinstance(body, str) else json.dumps(body)
    error = server_error(status, {}, raw, server="api.host", model="m")
    assert error.error_kind is kind
    assert str(error)[-1] == "."
    assert "\n" not in str(error)


@given(st.integers(100, 599), st.one_of(st.text(max_size=50), st.recursive(
    st.none() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["error", "message", "code", "type", "detail", "metadata", "retry_after"]), inner),
    max_leaves=8)))  # fmt: skip
def test_any_body_becomes_a_sentence(status: int, body: Any):
    raw = body if isinstance(body, str) else json.dumps(body)
    error = server_error(status, {}, raw.encode("utf-8", "replace"), server="api.host", model="m")
    assert str(error).encode()
    assert error.retry_after_s is None or error.retry_after_s >= 0


NOW = 1_780_000_000.0


@pytest.mark.parametrize(
    ("headers", "body", "message", "seconds"),
    [
        ({"retry-after": "7"}, None, "", 7),
        ({"retry-after": "1.5"}, None, "", 1.5),
        ({"retry-after": formatdate(NOW + 30, usegmt=True)}, None, "", 30),
        ({"retry-after-ms": "250", "retry-after": "1"}, None, "", 0.25),
        ({}, {"error": {"details": [{"x": 1}, {"retryDelay": "48s"}]}}, "", 48),
        ({}, {"error": {"metadata": {"headers": {"X-RateLimit-Reset": str(int((NOW + 12) * 1000))}}}}, "", 12),
        ({}, None, "Rate limit reached. Please try again in 1.5s. Visit", 1.5),
        ({}, None, "Please try again in 6m0s.", 360),
        ({}, None, "try again in 20ms", 0.02),
        ({}, None, "Please retry after 10 seconds", 10),
        ({}, None, "Try again later", None),
        ({"x-ratelimit-reset-requests": "1m2s", "x-ratelimit-reset-tokens": "7.5s",
          "x-ratelimit-remaining-requests": "0", "x-ratelimit-remaining-tokens": "9"}, None, "", 62),
        ({"x-ratelimit-reset": str(NOW + 9)}, None, "", 9),
        ({"anthropic-ratelimit-requests-reset": "2026-05-28T20:26:45Z"}, None, "", 5),
        ({"retry-after": "soon"}, None, "", None),
        ({"retry-after": "-3"}, None, "", None),
        ({"retry-after": formatdate(NOW - 30, usegmt=True)}, None, "", 0),
        ({}, None, "", None),
    ],
)  # fmt: skip
def test_wait_hints_are_read_in_every_form(headers: Any, body: Any, message: str, seconds: float | None):
    hint = wait_hint(headers, body, message, now=NOW)
    assert hint == (None if seconds is None else pytest.approx(seconds, abs=0.01))


def test_durations_are_read():
    assert [duration(text) for text in ("2m59.56s", "17ms", "1h", "none")] == [179.56, 0.017, 3600, None]


def test_nothing_that_looks_like_a_key_is_told():
    text = "Incorrect API key provided: sk-proj-abc123****xyz9, gsk_abcdefgh12345, Bearer abcdefghijkl and s3cr3t-value"
    clean = scrub(text, ["s3cr3t-value"])
    assert not any(part in clean for part in ("abc123", "abcdefgh", "s3cr3t"))
    assert clean.startswith("Incorrect API key provided: ***")


def chained(outer: Exception, cause: Exception) -> Exception:
    outer.__cause__ = cause
    return outer


@pytest.mark.parametrize(
    ("error", "answering", "kind", "words"),
    [
        (
            chained(httpx2.ConnectError("x"), socket.gaierror(-2, "unknown")),
            False,
            E.NETWORK,
            "was not found",
        ),
        (chained(httpx2.ConnectError("x"), ConnectionRefusedError()), False, E.NETWORK, "Nothing answers"),
        (httpx2.ConnectTimeout("x"), False, E.TIMEOUT, "within 10 s"),
        (httpx2.ReadTimeout("x"), True, E.TIMEOUT, "stopped in the middle"),
        (httpx2.ReadError("x"), True, E.INCOMPLETE_STREAM, "cut off"),
        (httpx2.ReadError("x"), False, E.NETWORK, "failed"),
        (httpx2.RemoteProtocolError("peer closed"), True, E.INCOMPLETE_STREAM, "cut off"),
        (httpx2.DecodingError("x"), True, E.MALFORMED_RESPONSE, "unpacked"),
        (httpx2.ProxyError("x"), False, E.NETWORK, "HTTPS_PROXY"),
        (httpx2.LocalProtocolError("bad header"), False, E.INVALID_REQUEST, "headers"),
    ],
)
def test_failures_of_the_network_have_a_kind(error: Exception, answering: bool, kind: ErrorKind, words: str):
    told = network_error(error, server="api.host", answering=answering)
    assert told.error_kind is kind
    assert words in str(told)


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "127.8.8.8", "::1", "[::1]", "LOCALHOST.", "a.localhost"]
)
def test_this_machine_is_known(host: str):
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["127.0.0.1.evil.com", "localhost.evil.com", "10.0.0.1", "0.0.0.0", "", "evil.com"]
)
def test_no_other_host_passes_for_this_machine(host: str):
    assert not is_loopback(host)


@pytest.mark.parametrize(
    "address",
    ["ftp://h/v1", "h:80", "http://", "https://api.openai.com@evil.com/v1", "http://h\\@evil.com", "http://h:99999/",
     "http://h/v1?key=1", "http://h /v1", "", "http://h\n.com"],
)  # fmt: skip
def test_addresses_that_can_mislead_are_refused(address: str):
    with pytest.raises(ConfigurationError, match="cannot be used"):
        host_of(address)


def test_the_host_of_an_address_is_found():
    assert host_of("https://API.OpenAI.com./v1") == "api.openai.com"
    assert host_of("http://[::1]:8080/v1") == "::1"
