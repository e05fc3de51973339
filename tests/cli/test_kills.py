"""``kill -9`` at any moment loses nothing that was shown, and the session goes on."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli.kill_runs import Outcome, kill_once


def kills(folder: Path, count: int, seed: int) -> list[Outcome]:
    chance = random.Random(seed)
    places = [(folder / str(number), random.Random(chance.random())) for number in range(count)]
    for place, _ in places:
        place.mkdir()
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda place: kill_once(*place), places))


def test_three_kills_lose_nothing_that_was_printed_and_the_session_goes_on(tmp_path: Path) -> None:
    outcomes = kills(tmp_path, 3, seed=20261121)
    assert [outcome for outcome in outcomes if not outcome.good] == []
    assert sum(not outcome.finished for outcome in outcomes) >= 2


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_fifty_kills_lose_nothing_that_was_printed_and_the_session_goes_on(tmp_path: Path) -> None:
    outcomes = kills(tmp_path, 50, seed=50)
    assert [outcome for outcome in outcomes if not outcome.good] == []
    assert sum(not outcome.finished for outcome in outcomes) >= 35
