"""A server that keeps failing is left alone, then tried carefully; limits of the user's own hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aar.core.active_model import ActiveModel
from aar.core.circuit_breaker import CircuitBreaker, Ticket
from aar.core.provider_runner import ProviderRunner
from aar.core.rate_limits import RateLimits, Slot
from aar.core.server_guards import ServerGuards
from aar.protocol.errors import ErrorKind, ProviderError
from aar.providers.base import ProviderCapabilities
from tests.support.fakes import ToldProvider, Turn, World
from tests.support.waiting import until


class Clock:
    """Time that passes only when somebody waits, or says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def ticket(breaker: CircuitBreaker) -> Ticket:
    answer = breaker.admit()
    assert isinstance(answer, Ticket)
    return answer


def opened(clock: Clock) -> CircuitBreaker:
    breaker = CircuitBreaker(clock)
    for _ in range(5):
        ticket(breaker).failed()
    return breaker


def test_five_failures_in_a_row_open_it_for_a_minute() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    for outcome in (False, False, False, False, True, False, False, False, False):
        told = ticket(breaker)
        told.succeeded() if outcome else told.failed()
    assert isinstance(breaker.admit(), Ticket)
    ticket(breaker).failed()
    assert breaker.admit() == 60
    clock.now += 59.5
    assert breaker.admit() == 0.5


def test_after_a_minute_exactly_one_trial_passes() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 60
    trial = ticket(breaker)
    assert trial.trial
    assert [isinstance(breaker.admit(), Ticket) for _ in range(3)] == [False, False, False]
    trial.succeeded()
    second = ticket(breaker)
    assert second.trial
    assert not isinstance(breaker.admit(), Ticket)
    second.succeeded()
    assert [ticket(breaker).trial for _ in range(3)] == [False, False, False]


def test_a_failed_trial_opens_it_again_and_an_abandoned_one_makes_way() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 60
    ticket(breaker).released()
    ticket(breaker).failed()
    assert breaker.admit() == 60


def test_what_was_sent_before_it_opened_says_nothing_about_the_trial() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    late = ticket(breaker)
    for _ in range(5):
        ticket(breaker).failed()
    late.succeeded()
    assert breaker.admit() == 60
    clock.now += 60
    trial = ticket(breaker)
    late.failed()
    assert not isinstance(breaker.admit(), Ticket)
    trial.succeeded()
    ticket(breaker).succeeded()
    assert not ticket(breaker).trial


@given(st.lists(st.sampled_from(["good", "bad", "none", "minute", "ask"]), max_size=60))
def test_never_more_than_one_request_is_under_way_while_it_is_open(steps: list[str]) -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    trials: list[Ticket] = []
    for step in steps:
        if step == "minute":
            clock.now += 60
        elif step == "ask" or not trials:
            answer = breaker.admit()
            if isinstance(answer, Ticket):
                if answer.trial:
                    assert not any(other.trial for other in trials)
                trials.append(answer)
        else:
            over = trials.pop()
            {"good": over.succeeded, "bad": over.failed, "none": over.released}[step]()
    for told in trials:
        told.succeeded()
    clock.now += 60
    assert isinstance(breaker.admit(), Ticket)


class Server(ToldProvider):
    """A told provider that has an address, as one that asks a server."""

    def __init__(self, turns: Any, server: str = "models.example") -> None:
        super().__init__(turns)
        self.server = server


def failure(kind: ErrorKind = ErrorKind.PROVIDER_INTERNAL) -> Turn:
    return Turn(fail=ProviderError(kind, f"It said {kind}."))


def guarded(world: World, guards: ServerGuards, clock: Clock) -> World:
    settings = world.agent.runner._settings
    world.agent.runner = ProviderRunner(
        world.active, settings, clock=clock, chance=lambda: 0.0, sleep=clock.sleep, guards=guards
    )
    return world


async def test_agents_of_one_process_share_what_is_known_of_a_server(tmp_path: Path) -> None:
    clock = Clock()
    guards = ServerGuards(clock, clock.sleep)
    first = guarded(World(tmp_path, Server([failure()])), guards, clock)
    assert (await first.run()).exit_code == 4
    assert len(first.provider.requests) == 5
    other = guarded(World(tmp_path, Server(["Fine."])), guards, clock)
    elsewhere = guarded(World(tmp_path, Server(["Fine."], "other.example")), guards, clock)
    assert (await elsewhere.run()).exit_code == 0
    assert elsewhere.of("notice") == []
    assert (await other.run()).text == "Fine."
    (told,) = other.of("notice")
    assert told.code == "circuit_open"
    assert told.message == (
        "models.example failed 5 times in a row and is left alone for a minute; aar asks it again in 60 s."
    )
    assert clock.waits[-1] == pytest.approx(60)


async def test_failures_that_show_a_living_server_do_not_open_it(tmp_path: Path) -> None:
    clock = Clock()
    guards = ServerGuards(clock, clock.sleep)
    limited = guarded(World(tmp_path, Server([failure(ErrorKind.RATE_LIMIT)])), guards, clock)
    for _ in range(3):
        assert (await limited.run()).exit_code == 4
    assert limited.of("notice") == []
    assert len(limited.provider.requests) == 15


async def test_a_server_that_fails_its_trial_is_not_waited_for_twice(tmp_path: Path) -> None:
    clock = Clock()
    guards = ServerGuards(clock, clock.sleep)
    world = guarded(World(tmp_path, Server([failure()]), retries=2), guards, clock)
    for _ in range(3):
        await world.run()
    assert len(world.provider.requests) == 5 + 1
    clock.waits.clear()
    await world.run()
    assert len(world.provider.requests) == 5 + 2
    assert sum(clock.waits) == 60
    assert world.of("error")[-1].message == (
        "models.example failed 5 times in a row and is left alone for a minute. "
        "Try again in 60 s, or use another model."
    )


async def test_others_wait_for_the_outcome_of_a_trial_however_long_it_takes(tmp_path: Path) -> None:
    clock = Clock()
    guards = ServerGuards(clock, clock.sleep)
    await guarded(World(tmp_path, Server([failure()])), guards, clock).run()
    clock.now += 60
    gate = asyncio.Event()
    trial = guarded(World(tmp_path, Server([Turn("Fine.", gate=gate)])), guards, clock)
    other = guarded(World(tmp_path, Server(["Fine too."])), guards, clock)
    first = trial.start()
    await until(lambda: trial.provider.requests)
    second = other.start()
    await until(lambda: len(clock.waits) > 250)
    gate.set()
    assert [(await run).text for run in (first, second)] == ["Fine.", "Fine too."]
    assert [notice.message.partition("; ")[2] for notice in other.of("notice")] == [
        "one request tries it now."
    ]


async def test_a_wait_past_the_deadline_is_not_begun(tmp_path: Path) -> None:
    clock = Clock()
    guards = ServerGuards(clock, clock.sleep)
    await guarded(World(tmp_path, Server([failure()])), guards, clock).run()
    clock.waits.clear()
    world = guarded(World(tmp_path, Server(["Fine."]), limits={"seconds": 30}), guards, clock)
    result = await world.run()
    assert (result.exit_code, clock.waits, world.provider.requests) == (4, [], [])
    assert result.error is not None
    assert "left alone for a minute. Try again in 60 s" in result.error["message"]


async def test_a_wait_can_be_cancelled_and_leaves_the_trial_to_others(tmp_path: Path) -> None:
    clock = Clock()
    guards = ServerGuards(clock)
    await guarded(World(tmp_path, Server([failure()])), guards, clock).run()
    world = guarded(World(tmp_path, Server(["Fine."])), guards, clock)
    run = world.start()
    await until(lambda: world.of("notice"))
    world.agent.cancel()
    assert (await run).stop_reason == "cancelled"
    clock.now += 60
    assert (await guarded(World(tmp_path, Server(["Fine."])), guards, clock).run()).text == "Fine."


# --- limits of the user's own


def test_requests_of_the_last_minute_are_counted() -> None:
    clock = Clock()
    limits = RateLimits(requests_per_minute=2, clock=clock)
    assert isinstance(limits.take(0), Slot)
    clock.now += 20
    assert isinstance(limits.take(0), Slot)
    assert limits.take(0) == 40
    clock.now += 40
    assert isinstance(limits.take(0), Slot)
    assert limits.take(0) == 20


def test_tokens_are_corrected_by_what_the_server_told() -> None:
    clock = Clock()
    limits = RateLimits(tokens_per_minute=1000, clock=clock)
    slot = limits.take(900)
    assert isinstance(slot, Slot)
    assert limits.take(200) == 60
    slot.tokens = 700
    assert isinstance(limits.take(200), Slot)


def test_a_request_larger_than_the_limit_waits_for_an_empty_minute() -> None:
    clock = Clock()
    limits = RateLimits(tokens_per_minute=100, clock=clock)
    assert isinstance(limits.take(5000), Slot)
    assert limits.take(5000) == 60
    clock.now += 60
    assert isinstance(limits.take(5000), Slot)


@given(
    st.lists(st.tuples(st.integers(0, 400), st.floats(0, 30)), max_size=40),
    st.integers(1, 5),
    st.integers(100, 800),
)
def test_no_minute_ever_holds_more_than_is_allowed(
    asks: list[tuple[int, float]], requests: int, tokens: int
) -> None:
    clock = Clock()
    limits = RateLimits(requests, tokens, clock)
    sent: list[tuple[float, int]] = []
    for size, pause in asks:
        clock.now += pause
        while not isinstance(answer := limits.take(size), Slot):
            assert 0 < answer < 60.001
            clock.now += answer
        sent.append((clock.now, size))
    for at, _ in sent:
        window = [size for when, size in sent if at - 60 + 1e-6 < when <= at]
        assert len(window) <= requests
        assert sum(window) <= tokens or len(window) == 1


def limit(guards: ServerGuards, world: World, **limits: int | None) -> None:
    guards.set_limits(world.active, limits.get("requests"), limits.get("tokens"))


async def test_waits_for_the_users_limits_are_told(tmp_path: Path) -> None:
    clock = Clock()
    guards = ServerGuards(clock, clock.sleep)
    world = guarded(World(tmp_path, Server(["Fine."])), guards, clock)
    limit(guards, world, requests=1)
    assert (await world.run()).exit_code == 0
    clock.now += 18
    assert (await world.run()).exit_code == 0
    (told,) = world.of("notice")
    assert (told.code, told.level) == ("rate_limit_wait", "info")
    assert told.message == "[providers.told] requests_per_minute = 1 allow the next request in 42.0 s."
    assert clock.waits == [42]


async def test_tokens_that_were_used_hold_the_next_request_back(tmp_path: Path) -> None:
    clock = Clock()
    guards = ServerGuards(clock, clock.sleep)
    world = guarded(World(tmp_path, Server(["word " * 4000])), guards, clock)
    limit(guards, world, tokens=20_000)
    assert (await world.run("word " * 10_000)).exit_code == 0
    assert (await world.run("word " * 10_000)).exit_code == 0
    assert [notice.code for notice in world.of("notice")] == ["rate_limit_wait"]
    assert clock.waits == [60]


@pytest.mark.parametrize("cancels", [True, False])
async def test_a_limit_can_be_cancelled_and_ends_a_run_whose_time_is_too_short(
    tmp_path: Path, cancels: bool
) -> None:
    clock = Clock()
    guards = ServerGuards(clock, clock.sleep)
    first = guarded(World(tmp_path, Server(["Fine."])), guards, clock)
    limit(guards, first, requests=1)
    await first.run()
    real = ServerGuards(clock)
    real._limits = guards._limits
    world = guarded(World(tmp_path, Server(["Fine."]), limits={} if cancels else {"seconds": 5}), real, clock)
    run = world.start()
    if cancels:
        await until(lambda: world.of("notice"))
        world.agent.cancel()
        assert (await run).stop_reason == "cancelled"
    else:
        result = await run
        assert (result.exit_code, result.error and result.error["kind"]) == (4, "rate_limit")
        assert "after the end of this run" in world.of("error")[0].message


def test_a_model_knows_whether_it_is_on_this_machine() -> None:
    def remote(server: str, name: str = "told") -> bool:
        provider = Server([], server)
        provider.name = name
        return ActiveModel(f"{name}/m", provider, "m", ProviderCapabilities()).remote

    here: Callable[[str], bool] = remote
    assert [here(server) for server in ("127.0.0.1:8080", "localhost", "[::1]:9", "127.9.9.9")] == [False] * 4
    assert [here(server) for server in ("models.example", "192.168.1.9:11434", "localhost.example")] == [
        True
    ] * 3
    assert not remote("", "local")
    assert not remote("", "scripted")
    assert remote("", "anthropic")
