"""When a failed request is sent again, and after how long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aar.core.retry_rules import MAX_TOLD_DELAY_S, retry_delay, with_told_wait
from aar.protocol.errors import RETRYABLE_KINDS, ErrorKind, ProviderError
from aar.providers.http.errors import server_error
from aar.providers.http.wait_hints import wait_hint

NOW = 1_800_000_000.0


def error(
    retry_after_s: float | None = None, kind: ErrorKind = ErrorKind.OVERLOADED, *, final: bool = False
) -> ProviderError:
    return ProviderError(kind, "No.", retry_after_s=retry_after_s, final=final)


def test_waits_double_up_to_a_minute() -> None:
    longest = [retry_delay(error(), attempt, 10, chance=lambda: 1.0) for attempt in range(1, 10)]
    assert longest == [1, 2, 4, 8, 16, 32, 60, 60, 60]


@given(st.integers(1, 200), st.floats(0, 1, exclude_max=True))
def test_chance_chooses_from_the_whole_width(attempt: int, chance: float) -> None:
    delay = retry_delay(error(), attempt, 1000, chance=lambda: chance)
    assert delay == chance * min(2.0 ** (attempt - 1), 60)


def test_the_last_attempt_is_the_last() -> None:
    assert retry_delay(error(), 5, 5) is None
    assert retry_delay(error(), 1, 1) is None


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_only_what_may_pass_is_tried_again(kind: ErrorKind) -> None:
    assert (retry_delay(error(kind=kind), 1, 5) is not None) == (kind in RETRYABLE_KINDS)
    assert retry_delay(error(kind=kind, final=True), 1, 5) is None


def test_a_hint_is_followed_to_the_letter_unless_it_is_too_long_or_gone() -> None:
    assert retry_delay(error(7.25), 1, 5) == 7.25
    assert retry_delay(error(MAX_TOLD_DELAY_S), 1, 5) == MAX_TOLD_DELAY_S
    assert retry_delay(error(MAX_TOLD_DELAY_S + 1), 1, 5) is None
    assert retry_delay(error(0.0), 3, 5, chance=lambda: 0.5) == 2


def test_a_wait_past_the_deadline_is_not_begun() -> None:
    assert retry_delay(error(7), 1, 5, remaining_s=7) is None
    assert retry_delay(error(7), 1, 5, remaining_s=7.1) == 7


@pytest.mark.parametrize(
    "headers",
    [
        {"retry-after": "7"},
        {"retry-after": "Fri, 15 Jan 2027 08:00:07 GMT"},
        {"retry-after": "2027-01-15T08:00:07Z"},
        {"retry-after-ms": "7000"},
        {"x-ms-retry-after-ms": "7000"},
        {"ratelimit": "limit=100, remaining=0, reset=7"},
        {"ratelimit": '"minute";r=0;t=7'},
        {"ratelimit-reset": "7"},
        {"x-ratelimit-reset-after": "7"},
        {"x-ratelimit-reset": "1800000007"},
        {"x-ratelimit-reset": "1800000007000"},
        {
            "x-ratelimit-reset-tokens": "7s",
            "x-ratelimit-remaining-tokens": "0",
            "x-ratelimit-reset-requests": "1ms",
        },
        {"anthropic-ratelimit-tokens-reset": "2027-01-15T08:00:07Z"},
    ],
)
def test_headers_that_tell_how_long(headers: dict[str, str]) -> None:
    assert wait_hint(headers, now=NOW) == pytest.approx(7)


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"details": [{"retryDelay": "7s"}]}},
        {"error": {"details": [{"metadata": {"quotaResetDelay": "7s"}}]}},
        {"error": {"metadata": {"headers": {"Retry-After": "7"}}}},
        {"error": {"metadata": {"headers": {"X-RateLimit-Reset": "1800000007000"}}}},
        {"error": {"resets_in_seconds": 7}},
        {"retry_after": 7.0},
        {"resets_at": 1800000007},
        {"error": "Model is loading", "estimated_time": 7.0},
    ],
)
def test_bodies_that_tell_how_long(body: object) -> None:
    assert wait_hint({}, body, now=NOW) == pytest.approx(7)


@pytest.mark.parametrize(
    "message",
    [
        "Please try again in 7s.",
        "Please retry in 7.0s",
        "Requests are limited; retry after 7 seconds.",
        "Rate limit reached. Resets in 7s",
        "The model is available again in 7 seconds",
        "retry after: 7",
        "Please wait for 7 seconds",
    ],
)
def test_messages_that_tell_how_long(message: str) -> None:
    assert wait_hint({}, None, message) == pytest.approx(7)


@pytest.mark.parametrize(
    "message", ["try again later", "retry after 70x", "waiting for 3 servers", "model-7s"]
)
def test_messages_that_tell_nothing(message: str) -> None:
    assert wait_hint({}, None, message) is None


def test_a_server_that_says_that_it_is_useless_is_not_asked_again() -> None:
    told = server_error(500, {"x-should-retry": "false"}, b"no", server="s", model="m")
    assert (told.error_kind, told.retryable) == (ErrorKind.PROVIDER_INTERNAL, False)
    assert server_error(500, {}, b"no", server="s", model="m").retryable


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1, "1 s"), (59.2, "60 s"), (119, "119 s"), (121, "3 min"), (7200, "2 h"), (90_000, "25 h")],
)
def test_the_last_word_says_how_long_the_server_asks_to_wait(seconds: float, words: str) -> None:
    assert str(with_told_wait(error(seconds))) == f"No. It asks to wait {words}."


@pytest.mark.parametrize("failure", [error(), error(0.5), error(60, final=True), error(60, ErrorKind.AUTH)])
def test_where_no_wait_helps_none_is_told(failure: ProviderError) -> None:
    assert str(with_told_wait(failure)) == "No."
