"""Errors of Gemini. Words and statuses are read as everywhere; only its quotas need more.

A 429 names the quotas that were passed. One a day (or one of 0) is final for now, one a minute passes:
both come with the same message and with a ``retryDelay``.
Source: ``google.rpc.QuotaFailure`` in https://github.com/googleapis/googleapis
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from aar.protocol.errors import ErrorKind, ProviderError
from aar.protocol.text import clean_text
from aar.providers.http.errors import parse_body, read_error, scrub, sentence, server_error

_FINAL = re.compile(r"per_?(?:day|month)", re.IGNORECASE)


def gemini_error(
    status: int | None,
    headers: Mapping[str, str],
    body: bytes | str | Mapping[str, Any] | list[Any],
    *,
    server: str,
    model: str,
    secrets: Iterable[str] = (),
    default: ErrorKind | None = None,
) -> ProviderError:
    """Return the error that an answer means; see `aar.providers.http.errors.server_error`."""
    secrets = tuple(secrets)
    parsed = parse_body(body)
    error = server_error(status, headers, body, server=server, model=model, secrets=secrets, default=default)
    if error.error_kind is not ErrorKind.RATE_LIMIT or not any(map(_is_final, _violations(parsed, 0))):
        return error
    said = scrub(read_error(parsed).message, secrets)
    return ProviderError(
        ErrorKind.QUOTA,
        clean_text(sentence(ErrorKind.QUOTA, server, model, said)),
        status=error.status,
        request_id=error.request_id,
        detail=error.detail,
    )


def _is_final(violation: Mapping[str, Any]) -> bool:
    named = " ".join(str(violation.get(name, "")) for name in ("quotaId", "quotaMetric"))
    return _FINAL.search(named) is not None or str(violation.get("quotaValue", "")) == "0"


def _violations(body: Any, depth: int) -> list[dict[str, Any]]:
    """Return the quotas that were passed, wherever the error is wrapped."""
    if depth > 5:
        return []
    found: list[dict[str, Any]] = []
    if isinstance(body, list):
        for item in cast("list[Any]", body)[:20]:
            found += _violations(item, depth + 1)
    elif isinstance(body, dict):
        fields = cast("dict[str, Any]", body)
        if "quotaId" in fields or "quotaMetric" in fields:
            return [fields]
        for name in ("error", "details", "violations"):
            found += _violations(fields.get(name), depth + 1)
    return found
