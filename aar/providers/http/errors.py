"""From what a server or the network did wrong to a `ProviderError` of the right kind.

Servers disagree about statuses: a wrong key may be a 400, an empty purse a 429, a long prompt a 413. So
the words and codes of the body are read first, and the status only where they say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic_core import from_json

from aar.protocol.errors import RETRYABLE_KINDS, ErrorKind, ProviderError
from aar.protocol.text import clean_text
from aar.providers.http.wait_hints import wait_hint

_MESSAGE_LIMIT = 400
_DETAIL_LIMIT = 2000
_KEY_LIKE = (
    r"\b(?:sk|pk|rk|gsk|xai|nvapi|hf|pplx|fw|tgp|csk|AIza|AKIA|ghp|gho)[-_][A-Za-z0-9_*.\-]{6,}|\bAIza[\w\-]{20,}"
    r"|(?i:bearer)\s+[A-Za-z0-9_.~+/=\-]{8,}"
)


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """What a body tells about an error.

    Attributes:
        message: In the server's words.
        words: Everything that may tell the kind, in lower case: type, code, status, message, cause.
        codes: Type, code and status alone, in lower case.
        status: HTTP status told inside of the body.
    """

    message: str
    words: str
    codes: frozenset[str]
    status: int | None


def _any(*patterns: str) -> str:
    """Return one pattern; it is compiled on first use, as most runs meet no error."""
    return "|".join(patterns)


_AUTH = _any(
    r"(?:invalid|incorrect|missing|wrong|expired|no|bad|malformed|provide an?) "
    r"(?:api|subscription|access|auth)[ _-]?(?:key|token)",
    r"api[ _-]?key (?:not|is not|is invalid|was not|required|is missing|expired)",
    r"(?:invalid|no|missing) (?:auth|authentication|authorization|credentials|bearer)",
    r"invalid_api_key|api_key_invalid|authentication_error|authentication_failed|unauthenticated|unauthorized",
    r"user not found\.?$",
)
_QUOTA = _any(
    r"insufficient[ _](?:quota|balance|credit|fund)",
    r"credit balance is too low|out of credits|no credits|(?:add|purchase|buy|requires?) more credits",
    r"billing_(?:hard_limit|not_active)|payment[ _]required|spending limit|billing hard limit",
    r"account (?:is )?(?:overdue|in arrears)|arrearage|余额不足",
)
_QUOTA_OR_RATE = _any(r"exceeded your current quota", r"quota exceeded", r"usage limit")
_OVERFLOW = _any(
    r"context[ _](?:length|window|size|limit)",
    r"context_length_exceeded|exceed_context_size|model_context_window_exceeded",
    r"(?:maximum|max) (?:context|prompt)(?! caching)",
    r"prompt (?:is )?(?:too long|exceeds)|prompt token count .*exceed",
    r"input (?:is )?too long|input token count .*exceed|inputs? tokens? .*must be",
    r"too large for (?:the )?model|request too large|request_too_large|prompt contains .* tokens",
    r"tokens in request more than|exceeded model token limit|too many (?:input|total) tokens",
    r"reduce the length of|when context the overflows|string_above_max_length",
)
_FILTER = _any(
    r"content[ _](?:filter|policy|management policy)|responsibleaipolicy|data_inspection_failed",
    r"flagged|moderation|inappropriate content|safety (?:system|policy)|usage policy|prohibited_content",
    r"bio_policy|policy_violation",
)
_UNKNOWN_MODEL = _any(
    r"model_not_found|model_decommissioned|model_not_available|invalid_model|no such model",
    r"no endpoints found",
    r"models?\b\S*(?: \S+){0,4}? (?:not found|(?:does not|doesn't|not) exist|not supported for)",
    r"models?\b\S*(?: \S+){0,4}? is not (?:a )?(?:valid|supported|found|available)",
    r"models?\b\S*(?: \S+){0,4}? has been (?:decommissioned|deprecated|retired)",
    r"(?:unknown|invalid|unsupported|unrecognized) model(?!'s)\b|not a valid model",
    r"does not exist.{0,40}\bmodel",
)
_RATE = _any(
    r"rate[ _-]?limit", r"too many requests", r"resource[ _]exhausted", r"tokens per min", r"throttl"
)
_OVERLOADED = _any(
    r"overload",
    r"at capacity|capacity exceeded|no capacity|over capacity",
    r"server is busy|too busy",
    r"service[ _]unavailable|temporarily unavailable",
    r"insufficient_system_resource",
    r"loading model",
)
_TIMEOUT = _any(r"timed? ?out", r"deadline[ _]exceeded", r"timeout")
_BAD_GENERATION = _any(r"tool_use_failed|output_parse_failed|json_validate_failed|failed_generation")
_SERVER = _any(r"internal[ _]?(?:server)?[ _]?error|server_error|api_error|upstream|provider returned error")
_INVALID = _any(
    r"invalid_request|invalid_argument|bad_request|validation|unsupported_value|unsupported_parameter",
    r"invalid_prompt|data_residency_mismatch|(?:invalid|unsupported|empty)_image|image_(?:parse|file|too|url)",
    r"invalid_base64|failed_to_download",
)

_BY_STATUS = {
    400: ErrorKind.INVALID_REQUEST,
    401: ErrorKind.AUTH,
    402: ErrorKind.QUOTA,
    403: ErrorKind.AUTH,
    404: ErrorKind.INVALID_REQUEST,
    408: ErrorKind.TIMEOUT,
    409: ErrorKind.OVERLOADED,
    413: ErrorKind.CONTEXT_OVERFLOW,
    425: ErrorKind.OVERLOADED,
    429: ErrorKind.RATE_LIMIT,
    498: ErrorKind.OVERLOADED,
    503: ErrorKind.OVERLOADED,
    504: ErrorKind.TIMEOUT,
    524: ErrorKind.TIMEOUT,
    529: ErrorKind.OVERLOADED,
}


def scrub(text: str, secrets: Iterable[str] = ()) -> str:
    """Return ``text`` without the given secrets and without anything that looks like a key."""
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, "***")
    return re.sub(_KEY_LIKE, "***", text)


def read_error(body: Any) -> ErrorInfo:
    """Return what ``body`` (parsed JSON, or text) tells about an error."""
    found = _Found()
    found.visit(body, 0)
    message = " ".join(found.message.split())[:_MESSAGE_LIMIT]
    words = " ".join([*found.codes, found.message, *found.causes]).lower()
    return ErrorInfo(message, words, frozenset(code.lower() for code in found.codes), found.status)


class _Found:
    """Collects the parts of an error from the many shapes in which servers wrap them."""

    def __init__(self) -> None:
        self.message = ""
        self.codes: list[str] = []
        self.causes: list[str] = []
        self.status: int | None = None

    def visit(self, value: Any, depth: int) -> None:
        if depth > 4:
            return
        if isinstance(value, str):
            self._say(_plain(value))
        elif isinstance(value, list):
            for item in cast("list[Any]", value)[:5]:
                self.visit(item, depth + 1)
        elif isinstance(value, dict):
            self._fields(cast("dict[str, Any]", value), depth)

    def _say(self, text: str) -> None:
        if not self.message:
            self.message = text
        elif text not in self.message:
            self.causes.append(text)

    def _fields(self, fields: dict[str, Any], depth: int) -> None:
        for name in ("type", "code", "status", "reason", "failed_generation"):
            self._code(name, fields.get(name))
        for name in ("error", "message", "msg", "detail", "errors", "error_message", "details", "innererror"):
            if fields.get(name):
                self.visit(fields[name], depth + 1)
        metadata = fields.get("metadata")
        if isinstance(metadata, dict):
            raw = cast("dict[str, Any]", metadata).get("raw")
            if isinstance(raw, str):
                self.causes.append(raw[:_DETAIL_LIMIT])

    def _code(self, name: str, value: Any) -> None:
        if name == "failed_generation":
            if value is not None:
                self.codes.append(name)
            return
        if isinstance(value, str) and value:
            self.codes.append(value)
            if value.isascii() and value.isdigit() and 400 <= int(value) <= 599:
                self.status = self.status or int(value)
        elif isinstance(value, int) and 400 <= value <= 599:
            self.status = self.status or value


def _plain(text: str) -> str:
    """Return the readable part of ``text``: a web page is reduced to its title."""
    stripped = text.strip()
    if stripped[:1] == "<":
        title = re.search(r"<title[^>]*>(.*?)</title>", stripped, re.IGNORECASE | re.DOTALL)
        return f"a web page titled {title.group(1).strip()!r}" if title else "a web page"
    return stripped


def error_kind_of(status: int | None, info: ErrorInfo, retry_after_s: float | None = None) -> ErrorKind:
    """Return the kind of an error from its body and, where that says nothing, its status."""
    told = info.status or status
    if status is None or status < 400:
        status = info.status
    words = info.words
    by_words = _from_words(words, status, retry_after_s)
    if by_words is not None:
        return by_words
    if told is not None and told in _BY_STATUS:
        return _BY_STATUS[told]
    if told is not None and told >= 500:
        return ErrorKind.PROVIDER_INTERNAL
    if told is not None and 300 <= told < 500:
        return ErrorKind.INVALID_REQUEST
    return _from_weak_words(words)


def _from_words(words: str, status: int | None, retry_after_s: float | None) -> ErrorKind | None:
    if re.search(_BAD_GENERATION, words):
        return ErrorKind.PROVIDER_INTERNAL
    if re.search(_QUOTA, words):
        return ErrorKind.QUOTA
    if re.search(_QUOTA_OR_RATE, words):
        return ErrorKind.QUOTA if retry_after_s is None else ErrorKind.RATE_LIMIT
    if re.search(_FILTER, words) and status in {None, 400, 403, 422, 451}:
        return ErrorKind.CONTENT_FILTER
    if re.search(_AUTH, words) and status not in {429, 503, 529}:
        return ErrorKind.AUTH
    if re.search(_OVERFLOW, words) and status not in {401, 402, 403, 404}:
        return ErrorKind.CONTEXT_OVERFLOW
    if re.search(_UNKNOWN_MODEL, words) and status in {None, 400, 403, 404, 410, 422}:
        return ErrorKind.UNKNOWN_MODEL
    if status in {429, 500, 502} and re.search(_OVERLOADED, words):
        return ErrorKind.OVERLOADED
    return None


def _from_weak_words(words: str) -> ErrorKind:
    for pattern, kind in (
        (_RATE, ErrorKind.RATE_LIMIT),
        (_OVERLOADED, ErrorKind.OVERLOADED),
        (_TIMEOUT, ErrorKind.TIMEOUT),
        (_SERVER, ErrorKind.PROVIDER_INTERNAL),
        (_INVALID, ErrorKind.INVALID_REQUEST),
    ):
        if re.search(pattern, words):
            return kind
    return ErrorKind.PROVIDER_INTERNAL


_ADVICE = {
    ErrorKind.AUTH: "{server} did not accept the key: {said}. Check the key (api_key_env).",
    ErrorKind.QUOTA: "{server} says that no money or quota is left: {said}. Top it up, or use another model.",
    ErrorKind.RATE_LIMIT: "{server} limits how often it may be asked: {said}. Wait, or use another model.",
    ErrorKind.OVERLOADED: "{server} is overloaded: {said}. Try again later, or use another model.",
    ErrorKind.CONTEXT_OVERFLOW: "The conversation is too long for {model}: {said}. Compact it first.",
    ErrorKind.INVALID_REQUEST: "{server} refused the request: {said}. Check base_url and [model].",
    ErrorKind.CONTENT_FILTER: "A content filter of {server} stopped the request: {said}. Rephrase it.",
    ErrorKind.TIMEOUT: "{server} took too long: {said}. Try again, or raise the provider's timeout.",
    ErrorKind.PROVIDER_INTERNAL: "{server} failed: {said}. Try again later, or use another model.",
    ErrorKind.UNKNOWN_MODEL: "{server} does not know the model {model}: {said}. Check its name.",
    ErrorKind.MALFORMED_RESPONSE: "{server} sent something that is no answer: {said}. Check base_url.",
}


def sentence(kind: ErrorKind, server: str, model: str, said: str) -> str:
    """Return the one sentence (and what to do) for an error that a server told."""
    said = said.strip().rstrip(".") or "it gave no reason"
    return _ADVICE[kind].format(server=server, model=model or "that was asked for", said=said)


def server_error(
    status: int | None,
    headers: Mapping[str, str],
    body: bytes | str | Mapping[str, Any] | list[Any],
    *,
    server: str,
    model: str,
    secrets: Iterable[str] = (),
    default: ErrorKind | None = None,
) -> ProviderError:
    """Return the error that a server's answer means.

    Args:
        status: HTTP status; ``None`` or 200 for an error told inside of an answer.
        headers: Of the response, names in lower case.
        body: As received, or the parsed part that tells the error.
        server: Host, for the sentence.
        model: Name of the model, for the sentence.
        secrets: Texts that must not be in the sentence.
        default: Kind to use when neither the words nor the status say anything.
    """
    parsed = parse_body(body)
    info = read_error(parsed)
    wait = wait_hint(headers, parsed, info.message)
    kind = error_kind_of(status, info, wait)
    if (
        default is not None
        and status in {None, 200}
        and info.status is None
        and kind is ErrorKind.PROVIDER_INTERNAL
    ):
        kind = default
    secrets = tuple(secrets)
    said = scrub(info.message, secrets)
    if status is not None and status != 200 and (not said or len(said) < 4):
        said = f"HTTP {status}"
    return ProviderError(
        kind,
        clean_text(sentence(kind, server, model, said)),
        status=status,
        retry_after_s=wait if kind in RETRYABLE_KINDS else None,
        request_id=request_id(headers),
        detail=clean_text(scrub(_as_text(body), secrets)[:_DETAIL_LIMIT]) or None,
        # What the vendors' own clients heed as well: the server knows that it will say the same again.
        final=headers.get("x-should-retry", "").strip().lower() == "false",
    )


def parse_body(body: bytes | str | Mapping[str, Any] | list[Any]) -> Any:
    """Return the JSON in ``body``, or its text where it is none."""
    if isinstance(body, bytes | str):
        try:
            return from_json(body)
        except ValueError:
            return body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    return body


def _as_text(body: bytes | str | Mapping[str, Any] | list[Any]) -> str:
    if isinstance(body, bytes):
        return body.decode("utf-8", "replace")
    return body if isinstance(body, str) else repr(body)


def request_id(headers: Mapping[str, str]) -> str | None:
    """Return the server's own name for a request."""
    for name in ("x-request-id", "request-id", "x-groq-request-id", "apim-request-id", "cf-ray"):
        if headers.get(name):
            return headers[name]
    return None
