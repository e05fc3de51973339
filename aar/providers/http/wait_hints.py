"""How long a server asks to wait, in all the ways in which servers say it."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from aar.protocol.late import late_pattern

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = late_pattern(
    r"(\d+(?:\.\d+)?)\s*"
    r"(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)(?![a-z])"
)
_IN_TEXT = late_pattern(
    r"(?:try again|retry|wait|resets?|available(?: again)?)(?: your request)?(?: after| in| for)?:? +"
    r"((?:about +)?\d+(?:\.\d+)?\s*(?:ms|[smhd]|sec|min|hour|day|milli)[a-z]*"
    r"(?:\s*\d+(?:\.\d+)?\s*(?:ms|[smhd])(?![a-z]))*)",
    re.IGNORECASE,
)
_BARE_IN_TEXT = late_pattern(r"retry[ _-]after:? (\d+(?:\.\d+)?)(?=[.,;)]?(?:\s|$))", re.IGNORECASE)
_COMBINED = late_pattern(r"\b(?:reset|t)\s*=\s*(\d+)")
_NONE_LEFT = late_pattern(r"\b(?:remaining|r)\s*=\s*0\b")
_SECONDS = frozenset(
    {
        *("retrydelay", "retry_delay", "retry_after", "retry_after_seconds", "retryafter", "quotaresetdelay"),
        *("resets_in_seconds", "reset_in_seconds", "estimated_time"),
    }
)


def duration(text: str) -> float | None:
    """Return the seconds in ``text`` such as ``1.5s``, ``6m0s``, ``20ms`` or ``10 seconds``."""
    total, found = 0.0, False
    for number, unit in _DURATION.findall(text.strip().lower()):
        short = "ms" if unit.startswith(("ms", "milli")) else unit[0]
        total += float(number) * _UNITS[short]
        found = True
    return total if found else None


def wait_hint(
    headers: Mapping[str, str], body: Any = None, message: str = "", *, now: float | None = None
) -> float | None:
    """Return the seconds that a server asks to wait; ``None`` when it does not say.

    Args:
        headers: Of the response, names in lower case.
        body: Parsed JSON of the response.
        message: The error's message.
        now: Seconds since the epoch; default: the clock.
    """
    now = time.time() if now is None else now
    for hint in (_from_retry_headers(headers, now), _from_body(body, now, 0), _from_text(message)):
        if hint is not None:
            return max(0.0, hint)
    reset = _from_reset_headers(headers, now)
    return None if reset is None else max(0.0, reset)


def _from_retry_headers(headers: Mapping[str, str], now: float) -> float | None:
    millis = _number(headers.get("retry-after-ms") or headers.get("x-ms-retry-after-ms"))
    if millis is not None:
        return millis / 1000
    value = headers.get("retry-after")
    if not value:
        return None
    seconds = _number(value)
    return _date(value, now) if seconds is None else seconds


def _date(value: str, now: float) -> float | None:
    from email.utils import parsedate_to_datetime

    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            return parse(value.strip()).timestamp() - now
        except (ValueError, TypeError, OverflowError):
            continue
    return duration(value)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if 0 <= number < 1e15 else None


def _from_body(value: Any, now: float, depth: int) -> float | None:
    if depth > 5:
        return None
    inner: list[Any] = []
    if isinstance(value, list):
        inner = cast("list[Any]", value)[:10]
    elif isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        for name, item in fields.items():
            hint = _field(name, item, now)
            if hint is not None:
                return hint
        inner = list(fields.values())
    for item in inner:
        hint = _from_body(item, now, depth + 1)
        if hint is not None:
            return hint
    return None


def _field(name: str, value: Any, now: float) -> float | None:
    key = name.lower().replace("-", "_")
    if key in _SECONDS:
        if isinstance(value, str) and _number(value) is None:
            return duration(value)
        return _number(value)
    if key in {"retry_after_ms", "retryafterms"}:
        millis = _number(value)
        return None if millis is None else millis / 1000
    if key in {"x_ratelimit_reset", "resets_at", "reset_at"} and isinstance(value, str | int | float):
        return _reset(str(value), now)
    return None


def _from_text(message: str) -> float | None:
    match = _IN_TEXT.search(message)
    if match:
        return duration(match.group(1))
    bare = _BARE_IN_TEXT.search(message)
    return float(bare.group(1)) if bare else None


def _from_reset_headers(headers: Mapping[str, str], now: float) -> float | None:
    """Return the wait until the limits that are used up are reset; without such, the shortest one."""
    spent: list[float] = []
    others: list[float] = []
    for name, value in headers.items():
        if name in {"ratelimit", "x-ratelimit"}:
            told = _COMBINED.search(value)
            if told:
                (spent if _NONE_LEFT.search(value) else others).append(float(told.group(1)))
            continue
        if "ratelimit" not in name.replace("-limit", "limit") or "reset" not in name:
            continue
        wait = _reset(value, now)
        if wait is None:
            continue
        remaining = _number(headers.get(name.replace("reset", "remaining")))
        (spent if remaining == 0 else others).append(wait)
    if spent:
        return max(spent)
    return min(others) if others else None


def _reset(value: str, now: float) -> float | None:
    number = _number(value)
    if number is None:
        seconds = duration(value)
        return _date(value, now) if seconds is None else seconds
    if number > 1e11:
        return number / 1000 - now
    return number - now if number > 1e8 else number
