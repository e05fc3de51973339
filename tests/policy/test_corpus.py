"""The bypass corpus and the everyday commands, with their rates."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.policy.corpus import DANGEROUS, HARD_STOPS, HARMLESS
from tests.policy.support import check


@pytest.mark.parametrize("command", [*DANGEROUS, *HARD_STOPS])
def test_no_dangerous_command_passes_unasked_or_at_all_while_planning(tmp_path: Path, command: str) -> None:
    assert check(tmp_path, command, wall="bubblewrap").decision != "allow"
    assert check(tmp_path, command, wall="none").decision != "allow"
    assert check(tmp_path, command, "plan").decision == "deny"


@pytest.mark.parametrize("command", HARD_STOPS)
@pytest.mark.parametrize("mode", ["auto", "unsafe"])
def test_hard_stops_hold_in_every_mode_and_against_every_rule(
    tmp_path: Path, command: str, mode: str
) -> None:
    asked = check(tmp_path, command, mode, allow=["bash", "bash(*)"])
    assert (asked.decision, asked.hard_stop) == ("ask", True)
    assert asked.proposed_rule is None
    assert check(tmp_path, command, mode, allow=["bash"], headless=True).decision == "deny"


@pytest.mark.parametrize("command", HARMLESS)
def test_everyday_commands_do_not_ask_inside_the_wall(tmp_path: Path, command: str) -> None:
    decision = check(tmp_path, command, "auto")
    assert decision.decision == "allow", decision.reasons


def test_the_rates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    passing = [item for item in [*DANGEROUS, *HARD_STOPS] if check(tmp_path, item).decision == "allow"]
    asking = [item for item in HARMLESS if check(tmp_path, item, "auto").decision != "allow"]
    readers = [item for item in HARMLESS if check(tmp_path, item).decision == "allow"]
    print(f"dangerous unasked {len(passing)}/{len(DANGEROUS) + len(HARD_STOPS)}")
    print(
        f"harmless asking {len(asking)}/{len(HARMLESS)}; plainly read-only in ask {len(readers)}/{len(HARMLESS)}"
    )
    assert len(HARMLESS) >= 150
    assert not passing
    assert len(asking) <= len(HARMLESS) * 0.02
    assert len(readers) >= 70
