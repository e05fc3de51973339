"""The text of Seatbelt profiles. Nothing here runs on macOS: whether they hold there is not tested."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aar.safety.sandbox.base import Limits, Plan
from aar.safety.sandbox.seatbelt import SeatbeltWall, make_profile, quote
from aar.safety.sandbox.secrets import protected_paths


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    root = tmp_path / 'ro"ot'
    (root / ".git").mkdir(parents=True)
    (root / "main.py").touch()
    home = tmp_path / "home"
    return Plan(
        root,
        (tmp_path / "added",),
        tmp_path / "temp",
        home,
        (home / ".ssh",),
        protected_paths(root, home, ()),
    )


def rules(profile: str) -> list[str]:
    return [line for line in profile.splitlines() if line.startswith("(")]


def last_that_names(profile: str, path: Path) -> str:
    return [rule for rule in rules(profile) if quote(str(path)) in rule][-1]


def test_strings_are_quoted() -> None:
    assert quote('a"b\\c') == '"a\\"b\\\\c"'


def test_everything_is_denied_first_and_parentheses_are_balanced(plan: Plan) -> None:
    profile = make_profile(plan, Limits())
    assert profile.startswith("(version 1)\n(deny default)\n")
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', "", profile)
    assert bare.count("(") == bare.count(")")
    assert bare.count('"') == 0


def test_the_workspace_is_written_what_is_protected_comes_after_it(plan: Plan) -> None:
    profile = make_profile(plan, Limits())
    lines = rules(profile)
    allowed = f"(allow file-write* (subpath {quote(str(plan.workspace))}))"
    for name in ("AGENTS.md", ".aar", ".vscode/tasks.json", ".git/hooks", ".git/config"):
        denied = f"(deny file-write* (subpath {quote(str(plan.workspace / name))}))"
        assert lines.index(allowed) < lines.index(denied)
    assert f"(deny file-write-unlink (literal {quote(str(plan.workspace / '.vscode'))}))" in lines


def test_secrets_are_hidden_last(plan: Plan) -> None:
    profile = make_profile(plan, Limits())
    assert last_that_names(profile, plan.home / ".ssh").startswith("(deny file-read* file-write* ")
    assert any("\\.env" in rule and rule.startswith("(deny file-read*") for rule in rules(profile))


def test_limits_show_in_the_profile(plan: Plan) -> None:
    profile = make_profile(plan, Limits(read_only=True))
    assert f"(allow file-write* (subpath {quote(str(plan.workspace))}))" not in profile
    assert f"(allow file-write* (subpath {quote(str(plan.temp))}))" in profile
    assert "(allow network*)" not in profile
    assert "(allow network*)" in make_profile(plan, Limits(network=True))


def test_a_granted_folder_is_writable_and_unlocks_what_it_holds(plan: Plan) -> None:
    granted = plan.workspace / ".aar"
    profile = make_profile(plan, Limits(writable=(granted,)))
    assert last_that_names(profile, granted) == f"(allow file-write* (subpath {quote(str(granted))}))"


def test_the_wall_is_refused_elsewhere_and_says_that_it_is_not_tested(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall = SeatbeltWall(plan)
    monkeypatch.setattr("sys.platform", "linux")
    assert "needs macOS" in (wall.missing() or "")
    assert any("not been tested" in gap for gap in wall.gaps)
    assert wall.fence(Limits()).prefix[1] == "-p"
