from __future__ import annotations

import itertools

import pytest

from aar.protocol.errors import (
    ErrorKind,
    ProviderError,
    ToolCategory,
    UsageError,
    error_kind,
    tool_error_text,
)
from aar.protocol.ids import new_id, now
from aar.protocol.state import (
    TRANSITIONS,
    AgentState,
    ExitCode,
    StopReason,
    end_state,
    exit_code,
    is_working,
    may_follow,
)
from aar.protocol.usage import Price, Usage


def test_every_stop_reason_ends_in_a_state_that_running_may_reach() -> None:
    for reason in StopReason:
        assert may_follow(AgentState.RUNNING, end_state(reason))
        assert not is_working(end_state(reason))


def test_every_state_has_transitions_and_none_follows_itself() -> None:
    assert set(TRANSITIONS) == set(AgentState)
    for state in AgentState:
        assert not may_follow(state, state)


def test_a_run_starts_only_from_rest_or_from_a_wait() -> None:
    assert may_follow(AgentState.IDLE, AgentState.RUNNING)
    assert not may_follow(AgentState.IDLE, AgentState.WAITING_FOR_TOOL)
    assert not may_follow(AgentState.COMPLETED, AgentState.WAITING_FOR_INPUT)


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("end_turn", 0), ("verified", 0), ("stopped", 0), ("refusal", 1), ("repetition", 1), ("max_tokens", 1),
        ("empty", 1), ("error", 4), ("max_steps", 5), ("timeout", 5), ("budget", 5), ("denied", 6), ("cancelled", 130),
    ],
)  # fmt: skip
def test_exit_codes_are_those_of_the_contract(reason: str, code: int) -> None:
    assert exit_code(StopReason(reason)) == code


def test_error_kinds_are_told_for_any_exception() -> None:
    assert error_kind(ProviderError(ErrorKind.QUOTA, "no money")) is ErrorKind.QUOTA
    assert error_kind(ValueError()) is ErrorKind.INTERNAL
    assert UsageError("x").exit_code is ExitCode.USAGE
    assert tool_error_text(ToolCategory.DENIED, "No.") == "Error [denied]: No."


def test_ids_are_ulids_that_sort_by_creation() -> None:
    ids = [new_id() for _ in range(2000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)
    assert {len(one) for one in ids} == {26}
    assert not set("".join(ids)) & set("ILOU")


def test_time_stamps_are_rfc_3339_in_utc() -> None:
    stamp = now()
    assert stamp.endswith("Z")
    assert len(stamp) == len("2026-11-21T22:29:53.123Z")


def test_usage_adds_up_and_price_counts_cache() -> None:
    usage = Usage(input=1_000_000, output=10, cache_read=5) + Usage(output=5, cache_write=7, estimated=True)
    assert (usage.total, usage.prompt, usage.estimated) == (1_000_027, 1_000_012, True)
    assert Price(input=3, output=0, cache_read=0, cache_write=0).cost(usage) == pytest.approx(3)
    price = Price(input=2, output=2)
    for cached, written in itertools.product((0, 10), repeat=2):
        whole = Usage(input=100, output=1, cache_read=cached, cache_write=written)
        assert price.cost(whole) == pytest.approx(whole.total * 2 / 1e6)
