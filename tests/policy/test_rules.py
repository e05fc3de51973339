"""Rules: syntax, matching, layers, and what "don't ask again" proposes."""

from __future__ import annotations

from pathlib import Path

import pytest

from aar.protocol.errors import ConfigurationError
from aar.safety.rule_proposals import propose_rule
from aar.safety.rules import RuleSet, parse_rule
from tests.policy.support import READ, WRITE, check, policy, tool


@pytest.mark.parametrize(
    "text",
    ["", "bash(", "bash()", "bash( )", "Bash(ls)", "bash(npm test:*)", "bash(a && b)", "bash(a\nb)", "write", "read",
     "write(!x)", "write(../x)", "grep(x)", "web_fetch(python.org)", "web_fetch(domain:)", "web_fetch(domain:a b)",
     "web_fetch(domain:*)", "mcp__*__x", "a b", "web_fetch(domain:https://x)"],
)  # fmt: skip
def test_a_wrong_rule_is_named_with_what_is_wrong(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_rule(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "command", "covered"),
    [
        ("bash(git status *)", "git status", True),
        ("bash(git status *)", "git status -s", True),
        ("bash(git status *)", "git statusx", False),
        ("bash(git status)", "git status -s", False),
        ("bash(ls *)", "lsof", False),
        ("bash(npm run test:* *)", "npm run test:unit -x", True),
        ("bash(npm run test:* x)", "npm run test:a b x", False),
        ("bash(*)", "anything at all", True),
        ("bash", "anything", True),
        ("bash(a.c)", "abc", False),
    ],
)
def test_command_rules_respect_words(rule: str, command: str, covered: bool) -> None:
    assert parse_rule(rule).matches_command(command) is covered


@pytest.mark.parametrize(
    ("rule", "path", "expected"),
    [
        ("write(src/**)", "src/a/b.py", "allow"),
        ("write(src/**)", "src/../b.py", "ask"),
        ("write(src/**)", "lib/src/b.py", "ask"),
        ("write(*.py)", "a/b.py", "allow"),
        ("write(/a.py)", "b/a.py", "ask"),
        ("write(./a.py)", "a.py", "allow"),
    ],
)
def test_path_rules_are_gitignore_patterns_on_resolved_paths(
    tmp_path: Path, rule: str, path: str, expected: str
) -> None:
    assert policy(tmp_path, allow=[rule]).decide(WRITE, {"path": path}).decision == expected


def test_deny_comes_before_ask_before_allow_in_all_layers(tmp_path: Path) -> None:
    layers = [
        RuleSet.parse("session", allow=["bash(mkdir *)"]),
        RuleSet.parse("managed", deny=["bash(mkdir x)"]),
    ]
    assert check(tmp_path, "mkdir y", layers=layers).decision == "allow"
    denied = check(tmp_path, "mkdir x", "unsafe", layers=layers)
    assert (denied.decision, denied.rule and denied.rule.layer) == ("deny", "managed")
    assert check(tmp_path, "mkdir y", "auto", ask=["bash(mkdir *)"], layers=layers).decision == "ask"


def test_managed_rules_cannot_loosen() -> None:
    with pytest.raises(ConfigurationError, match="tighten"):
        RuleSet.parse("managed", allow=["bash"])


def test_the_strictest_part_of_a_compound_wins(tmp_path: Path) -> None:
    assert check(tmp_path, "mkdir a && touch b", allow=["bash(mkdir *)"]).decision == "ask"
    assert check(tmp_path, "mkdir a && touch b", allow=["bash(mkdir *)", "bash(touch *)"]).decision == "allow"


@pytest.mark.parametrize(
    "command",
    ["PATH=/tmp/x mkdir a", "mkdir $X", "mkdir a > ../b", "mkdir a; rm x", "sudo mkdir a", "mkdir $(rm x)", "mkdir a &",
     "bash -c 'mkdir a; rm x'", "find . -exec mkdir {} +", "xargs mkdir", "env A=b mkdir a", "watch mkdir a"],
)  # fmt: skip
def test_an_allow_rule_does_not_reach_beyond_its_command(tmp_path: Path, command: str) -> None:
    allow = [
        "bash(mkdir *)",
        "bash(find *)",
        "bash(xargs *)",
        "bash(env *)",
        "bash(sudo *)",
        "bash(watch *)",
        "bash(bash *)",
    ]
    assert check(tmp_path, command, allow=allow).decision == "ask"


@pytest.mark.parametrize(
    "command",
    ["curl x", "/usr/bin/curl x", "A=b curl x", "env -i curl x", "timeout 5 curl x", "bash -c 'curl x'", "ls | xargs curl x",
     "find . -exec curl x \\;", "echo $(curl x)", "(curl x)", "if true; then curl x; fi", "eval curl x", "c'ur'l x",
     "curl > /dev/null x", "c\\\nurl x", "uv run curl x", "sudo -u a curl x", "echo \"`curl x`\"", "cat <<E\n$(curl x)\nE"],
)  # fmt: skip
def test_a_deny_rule_sees_every_part(tmp_path: Path, command: str) -> None:
    assert check(tmp_path, command, "unsafe", allow=["bash"], deny=["bash(curl *)"]).decision == "deny"


def test_git_options_do_not_hide_the_subcommand_from_a_deny_rule(tmp_path: Path) -> None:
    assert check(tmp_path, "git -C x --no-pager push a", "auto", deny=["bash(git push *)"]).decision == "deny"


def test_redirections_are_judged_as_writes_and_reads(tmp_path: Path) -> None:
    assert check(tmp_path, "echo x > out/a", allow=["write(out/**)"]).decision == "allow"
    assert check(tmp_path, "echo x > b", "auto", deny=["write(/b)"]).decision == "deny"
    assert check(tmp_path, "cat < .env", "auto").decision == "deny"
    assert check(tmp_path, "cat s/a", "auto", deny=["read(s/**)"]).decision == "deny"
    assert policy(tmp_path, deny=["read(s/**)"]).decide(READ, {"path": "x/../s/a"}).decision == "deny"


def test_tool_rules_cover_mcp_servers(tmp_path: Path) -> None:
    judge = policy(tmp_path, allow=["mcp__good__*"], deny=["mcp__good__drop"])
    answers = [
        judge.decide(tool(f"mcp__{name}"), {}).decision for name in ("good__list", "good__drop", "bad__list")
    ]
    assert answers == ["allow", "deny", "ask"]


def test_a_deny_of_bash_covers_a_command_without_words(tmp_path: Path) -> None:
    assert check(tmp_path, "> a", "unsafe", deny=["bash"]).decision == "deny"


@pytest.mark.parametrize(
    ("argv", "rule"),
    [
        ("git commit -m x", "bash(git commit *)"),
        ("git push origin", "bash(git push origin)"),
        ("npm run build -- x", "bash(npm run build *)"),
        ("python -m pytest -q", "bash(python -m pytest *)"),
        ("mkdir a", "bash(mkdir *)"),
        ("rm -rf build", "bash(rm -rf build)"),
        ("python3 a.py", "bash(python3 a.py)"),
        ("python3", None),
        ("python3 -c x", None),
        ("bash", None),
        ("bash -c x", None),
        ("sudo ls", None),
        ("env A=b", None),
        ("rm *", None),
    ],
)
def test_proposed_rules_are_narrow(argv: str, rule: str | None) -> None:
    assert propose_rule(argv.split()) == rule


@pytest.mark.parametrize(
    "command", ["mkdir a", "git commit -m 'a b'", "npm run build", "timeout 9 touch a", "python3 x.py"]
)
def test_u16_a_proposed_rule_allows_that_call_and_not_everything(tmp_path: Path, command: str) -> None:
    rule = check(tmp_path, command).proposed_rule
    assert rule is not None
    assert check(tmp_path, command, allow=[rule]).decision == "allow"
    for other in ("rm x", "python3 -c x", "curl x", f"{command}; rm x"):
        assert check(tmp_path, other, allow=[rule]).decision == "ask"


def test_a_proposed_path_rule_covers_exactly_that_file(tmp_path: Path) -> None:
    for path in ("a.py", "src/b [x].py", "../c.py"):
        rule = policy(tmp_path / "w").decide(WRITE, {"path": path}).proposed_rule
        assert rule is not None
        judge = policy(tmp_path / "w", allow=[rule])
        assert judge.decide(WRITE, {"path": path}).decision == "allow"
        assert judge.decide(WRITE, {"path": "x/" + path}).decision == "ask"
