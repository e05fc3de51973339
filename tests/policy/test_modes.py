"""The mode table, paths, and tools other than bash."""

from __future__ import annotations

from pathlib import Path

import pytest

from aar.protocol.errors import ConfigurationError
from aar.protocol.tool import SideEffect
from aar.safety.policy import RuleSet, SafetyPolicy, explain, patch_paths
from tests.policy.support import BASH, FETCH, PATCH, READ, WRITE, check, policy, tool

_TABLE = {
    # mode: reading, edit, build, other, leaving, hard stop
    "plan": ("allow", "deny", "deny", "deny", "deny", "deny"),
    "ask": ("allow", "ask", "ask", "ask", "ask", "ask"),
    "edit": ("allow", "allow", "allow", "ask", "ask", "ask"),
    "auto": ("allow", "allow", "allow", "allow", "ask", "ask"),
    "unsafe": ("allow", "allow", "allow", "allow", "allow", "ask"),
}
_ACTS = ("git status", "echo x > a.txt", "python -m pytest -q", "mkdir x", "sudo ls", "rm -rf .")


@pytest.mark.parametrize("mode", _TABLE)
def test_the_mode_table_holds_for_commands(tmp_path: Path, mode: str) -> None:
    assert tuple(check(tmp_path, act, mode).decision for act in _ACTS) == _TABLE[mode]


@pytest.mark.parametrize("mode", ["auto", "unsafe"])
def test_headless_denies_what_would_ask(tmp_path: Path, mode: str) -> None:
    expected = tuple("deny" if answer == "ask" else answer for answer in _TABLE[mode])
    assert tuple(check(tmp_path, act, mode, headless=True).decision for act in _ACTS) == expected


@pytest.mark.parametrize("mode", _TABLE)
def test_the_mode_table_holds_for_file_tools(tmp_path: Path, mode: str) -> None:
    judge = policy(tmp_path / "ws", mode)
    reading, edit, _, _, leaving, _ = _TABLE[mode]
    assert judge.decide(READ, {"path": "a.py"}).decision == reading
    assert judge.decide(WRITE, {"path": "src/a.py"}).decision == edit
    assert judge.decide(WRITE, {"path": "../a.py"}).decision == leaving
    assert judge.decide(READ, {"path": "../a.py"}).decision == leaving


@pytest.mark.parametrize("mode", _TABLE)
def test_unknown_effects_count_as_destructive(tmp_path: Path, mode: str) -> None:
    judge = policy(tmp_path, mode)
    for spec in (
        tool("mcp__x__list"),
        tool("mcp__x__y", SideEffect.EXTERNAL),
        tool("ext", SideEffect.EXTERNAL),
    ):
        assert judge.decide(spec, {}).decision == _TABLE[mode][4]


def test_auto_without_a_wall_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="aar sandbox status"):
        SafetyPolicy("auto", tmp_path, wall="none")


@pytest.mark.parametrize("mode", ["ask", "edit"])
def test_without_a_wall_commands_ask_even_in_edit_mode(tmp_path: Path, mode: str) -> None:
    assert check(tmp_path, "pytest -q", mode, wall="none").decision == "ask"
    assert check(tmp_path, "grep -r x .", mode, wall="none").decision == "ask"
    assert check(tmp_path, "git status", mode, wall="none").decision == "allow"


@pytest.mark.parametrize(
    "path", ["AGENTS.md", "sub/CLAUDE.md", ".git/hooks/pre-commit", ".envrc", ".github/workflows/x.yml"]
)
def test_protected_paths_ask_in_spite_of_an_allow_rule(tmp_path: Path, path: str) -> None:
    judge = policy(tmp_path, "auto", allow=["write(**)", "write_file"])
    assert judge.decide(WRITE, {"path": path}).decision == "ask"
    assert judge.check_command(f"echo x > {path}").decision == "ask"
    assert policy(tmp_path, "auto", headless=True).decide(WRITE, {"path": path}).decision == "deny"


@pytest.mark.parametrize(
    "path",
    [".env", ".ENV.local", "sub/server.pem", "~/.ssh/id_rsa", "/proc/self/environ", "//proc/self/environ"],
)
@pytest.mark.parametrize("mode", _TABLE)
def test_secrets_are_denied_with_the_way_to_unlock_them(tmp_path: Path, path: str, mode: str) -> None:
    decision = policy(tmp_path, mode, allow=["read(**)", "read_file"]).decide(READ, {"path": path})
    assert decision.decision == "deny"
    assert "readable" in decision.reasons[0]
    assert check(tmp_path, f"cat {path}", mode).decision == "deny"


def test_u9_ways_around_a_path_do_not_pass(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (workspace / "link").symlink_to("/etc")
    judge = policy(workspace, "auto", headless=True)
    for path in ("link/passwd", "//etc/passwd", "/proc/self/root/etc/passwd", f"{workspace}/link/hosts"):
        assert judge.decide(READ, {"path": path}).decision == "deny", path


def test_a_key_unlocks_one_secret(tmp_path: Path) -> None:
    judge = policy(tmp_path, allow=["read(/.env)"])
    assert judge.decide(READ, {"path": ".env"}).decision == "allow"
    assert judge.decide(READ, {"path": ".env.local"}).decision == "deny"
    project = policy(tmp_path, layers=[RuleSet.parse("project", ["read(/.env)"])])
    assert project.decide(READ, {"path": ".env"}).decision == "deny"


def test_every_path_of_a_patch_is_judged(tmp_path: Path) -> None:
    patch = "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** Add File: ../b.py\n+z\n*** End Patch"
    assert patch_paths(patch) == ["a.py", "../b.py"]
    judge = policy(tmp_path, "edit")
    assert judge.decide(PATCH, {"patch": patch}).decision == "ask"
    assert judge.decide(PATCH, {"patch": patch.replace("../b.py", "b.py")}).decision == "allow"
    assert judge.decide(PATCH, {"patch": "--- a/x\n+++ b/AGENTS.md\n"}).decision == "ask"
    assert judge.decide(PATCH, {"patch": "nothing"}).decision == "ask"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://docs.python.org/3/", "allow"),
        ("https://DOCS.python.org./", "allow"),
        ("https://docs.python.org.evil.com/", "ask"),
        ("https://evil.com/docs.python.org", "ask"),
        ("https://docs.python.org@evil.com/", "deny"),
        ("https://evil.com\x00.docs.python.org/", "deny"),
        ("https://a.example.com", "allow"),
        ("https://example.com", "ask"),
        ("https://notexample.com", "ask"),
        ("https://bad.example.com", "deny"),
        ("file:///etc/passwd", "deny"),
    ],
)
def test_t12_hosts_are_compared_label_by_label(tmp_path: Path, url: str, expected: str) -> None:
    judge = policy(
        tmp_path,
        allow=["web_fetch(domain:docs.python.org)", "web_fetch(domain:*.example.com)"],
        deny=["web_fetch(domain:bad.example.com)"],
    )
    assert judge.decide(FETCH, {"url": url}).decision == expected


@pytest.mark.parametrize(
    "command",
    [
        "echo asphalt",
        "rm -rf ./build",
        "git commit -m 'fix shutdown race'",
        "echo 'rm -rf /'",
        "grep reboot x",
    ],
)
def test_u14_dangerous_words_do_not_stop_harmless_commands(tmp_path: Path, command: str) -> None:
    assert check(tmp_path, command, "auto", headless=True).decision == "allow"


def test_explain_has_the_shape_that_policy_check_prints(tmp_path: Path) -> None:
    found = explain(check(tmp_path, "git status && rm x", deny=["bash(rm *)"]))
    assert found == {
        "decision": "deny",
        "rule": {"text": "bash(rm *)", "layer": "user"},
        "reasons": ["rule bash(rm *)"],
        "commands": [
            {"argv": ["git", "status"], "decision": "allow", "reasons": []},
            {"argv": ["rm", "x"], "decision": "deny", "reasons": ["rule bash(rm *)"]},
        ],
    }
    assert policy(tmp_path).decide(BASH, {"command": "git status"}).by == "mode"


def test_a_policy_below_is_as_strict_as_the_one_above_at_any_time(tmp_path: Path) -> None:
    above = policy(tmp_path, "ask")
    below = above.narrowed("edit").narrowed()
    assert below.mode == "ask"
    above.change_mode("plan", "none")
    assert (below.mode, below.wall) == ("plan", "none")
    above.change_mode("unsafe", "bubblewrap")
    assert (below.mode, below.wall) == ("edit", "bubblewrap")
    below.rules = (RuleSet.parse("session", deny=("write_file",)),)
    assert above.decide(WRITE, {"path": "a"}).decision == "deny"
