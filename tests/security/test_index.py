"""Where each attack of the list is tried: every name here is a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_TESTS = Path(__file__).parent.parent

ATTACKS: dict[str, tuple[str, list[str]]] = {
    "T1": ("hooks, servers and settings of a repository before trust", ["security/test_before_trust.py::test_t1_"]),
    "T2": ("a project sends requests and keys elsewhere", ["config/test_project_and_managed.py::test_t2_"]),
    "T3": ("a project's .env steers aar", ["config/test_project_and_managed.py::test_t3_"]),
    "T4": ("an absent protected file is made", ["sandbox/test_escapes.py::test_protected_paths_stay_as_they_are"]),
    "T5": ("settings change after trust", ["security/test_before_trust.py::test_t5_", "config/test_trust.py::test_t5_", "security/test_doors_http.py::test_t5_", "security/test_doors_agents.py::test_t5_"]),
    "T6": ("git runs what .git/config names", ["security/test_before_trust.py::test_t6_", "security/test_doors_git.py::test_t6_"]),
    "T7": ("a pull request configures a headless run", ["security/test_before_trust.py::test_t7_"]),
    "T8": ("a web page talks to a local server", ["security/test_attacks.py::test_t8_", "serve/test_guard.py::test_pages_of_other_sites_may_not_call", "serve/test_guard.py::test_a_name_that_was_made_to_lead_here", "security/test_doors_http.py::test_u12_", "security/test_doors_http.py::test_a_client_over_http_"]),
    "T9": ("flags smuggled in as text", ["security/test_attacks.py::test_t9_"]),
    "T10": ("a command is read otherwise than it runs", ["policy/test_corpus.py::test_", "policy/test_properties.py::test_"]),
    "T11": ("built-ins poison later commands", ["security/test_attacks.py::test_t11_"]),
    "T12": ("a host that looks like an allowed one", ["security/test_attacks.py::test_t12_", "policy/test_modes.py::test_t12_"]),
    "T13": ("control characters in host names", ["security/test_attacks.py::test_t13_"]),
    "T14": ("names as a way out", ["security/test_attacks.py::test_t14_", "sandbox/test_escapes.py::test_no_way_into_the_network"]),
    "T15": ("links swapped between check and use", ["security/test_paths.py::test_t15_"]),
    "T16": ("folders planted in /tmp", ["config/test_paths.py::test_t16_"]),
    "T17": ("escape sequences in what is shown", ["text_safety/test_sanitize.py::test_", "security/test_doors_http.py::test_t17_"]),
    "T18": ("keys in logs and sessions", ["security/test_secrets.py::test_t18_", "observability/test_diagnostics_log.py::test_t18_"]),
    "T19": ("a model's host as a way out", ["security/test_attacks.py::test_t19_"]),
    "T20": ("tools without annotations", ["policy/test_modes.py::test_unknown_effects_count_as_destructive", "mcp/test_odd_servers.py::test_a_command_that_changes_is_not_started_until", "mcp/test_odd_servers.py::test_a_tool_that_changes_asks_again"]),
    "T21": ("a second way to start processes", ["spawn/test_environment.py::test_processes_start_in_one_place_only"]),
    "T22": ("the wall is lost or left silently", ["security/test_attacks.py::test_t22_", "spawn/test_choose.py::test_a_demanded_wall"]),
    "T23": ("settings that run commands", ["config/test_project_and_managed.py::test_t23_"]),
    "T24": ("text that gives orders", ["security/test_outside_text.py::test_t24_"]),
    "T25": ("orders planted in memory files", ["security/test_outside_text.py::test_t25_", "security/test_doors_services.py::test_t25_"]),
    "T26": ("file names that reach a shell", ["security/test_paths.py::test_t26_"]),
    "T27": ("files that others run later", ["policy/test_unlocks.py::test_such_a_command_asks", "security/test_outside_text.py::test_t25_t27_", "sandbox/test_escapes.py::test_protected_paths_stay_as_they_are"]),
}  # fmt: skip


def test_every_attack_has_its_place() -> None:
    assert list(ATTACKS) == [f"T{number}" for number in range(1, 28)]


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_place_holds_a_test_of_that_name(attack: str) -> None:
    for place in ATTACKS[attack][1]:
        file, _, name = place.partition("::")
        text = (_TESTS / file).read_text(encoding="utf-8")
        assert re.search(rf"def {name}\w*\(", text), place
