"""Identifiers and time stamps: ULIDs (https://github.com/ulid/spec) and RFC 3339 in UTC."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RANDOM_BITS = 80
_RANDOM_LIMIT = 1 << _RANDOM_BITS


class _Clock:
    """Makes ULIDs of one process strictly increasing, also when the wall clock goes back."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        value = (time.time_ns() // 1_000_000 << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS)
        if value <= self._last:
            value = self._last + 1
        self._last = value
        return value


_clock = _Clock()


def new_id() -> str:
    """Return a new ULID: 26 characters of Crockford base 32 that sort by time of creation."""
    value = _clock.next()
    return "".join(_ALPHABET[(value >> shift) & 31] for shift in range(125, -1, -5))


def now() -> str:
    """Return the present time as RFC 3339 in UTC with milliseconds, such as 2026-11-21T22:29:53.123Z."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
