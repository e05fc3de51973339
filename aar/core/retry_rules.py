"""When a failed request is sent again, and after how long."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from aar.protocol.errors import ProviderError

MAX_DELAY_S = 60.0
"""Longest wait that aar chooses by itself."""
MAX_TOLD_DELAY_S = 900.0
"""Longer waits that a server asks for are not waited for: nobody sits before a screen that long."""


def retry_delay(
    error: ProviderError,
    attempt: int,
    attempts: int,
    *,
    remaining_s: float | None = None,
    chance: Callable[[], float] = random.random,
) -> float | None:
    """Return the seconds to wait before the next attempt, or ``None`` when there is none.

    A server's own hint is followed. Without one, or with one that has passed, the wait is chosen by chance up
    to min(1·2ⁿ, 60) s (n counts from 0), so that many clients do not come back at the same moment.

    Args:
        error: What the attempt failed with.
        attempt: Its number, from 1.
        attempts: How many there may be in all.
        remaining_s: Seconds until the run's deadline; a wait that passes it is not begun.
        chance: Uniform numbers in [0, 1).
    """
    if not error.retryable or attempt >= attempts:
        return None
    delay = error.retry_after_s
    if delay is not None and delay > MAX_TOLD_DELAY_S:
        return None
    if not delay:
        delay = chance() * min(2.0 ** (attempt - 1), MAX_DELAY_S)
    return None if remaining_s is not None and delay >= remaining_s else delay


def with_told_wait(error: ProviderError) -> ProviderError:
    """Return ``error``, whose sentence now ends with how long the server asks to wait, if it does."""
    wait = error.retry_after_s
    if wait is not None and wait >= 1 and error.retryable:
        error.args = (f"{error} It asks to wait {_for_people(wait)}.",)
    return error


def _for_people(seconds: float) -> str:
    if seconds < 120:
        return f"{math.ceil(seconds)} s"
    return f"{math.ceil(seconds / 60)} min" if seconds < 7200 else f"{math.ceil(seconds / 3600)} h"
