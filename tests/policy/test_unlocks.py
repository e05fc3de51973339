"""Commands that plainly write a protected path ask, and a yes unlocks that very path for that one call."""

from __future__ import annotations

from pathlib import Path

import pytest

from aar.config.schema import SandboxConfig
from aar.protocol.events import Approval, ApprovalRequest
from aar.safety.spawn import ProcessSpawner
from tests.policy.support import check
from tests.spawn.conftest import WALLS, raise_wall
from tests.support.fakes import Turn, World, call


@pytest.mark.parametrize(
    ("command", "unlocked"),
    [
        ("echo x >> AGENTS.md", ["AGENTS.md"]),
        ("cp a .github/workflows/ci.yml", [".github/workflows/ci.yml"]),
        ("mkdir -p .claude/hooks && touch .envrc", [".claude/hooks", ".envrc"]),
        ("sed -i s/a/b/ CLAUDE.md", ["CLAUDE.md"]),
        ("git status && sudo -n true; tee Jenkinsfile < a", ["Jenkinsfile"]),
        ("env A=b timeout 5 rm -rf .husky", [".husky"]),
        ("install -t .git/hooks a", [".git/hooks"]),
        ("dd if=a of=.git/config", [".git/config"]),
        ("cd sub && mv ../a AGENTS.md", ["sub/AGENTS.md"]),
    ],
)
def test_such_a_command_asks_and_says_what_it_would_unlock(
    tmp_path: Path, command: str, unlocked: list[str]
) -> None:
    decision = check(tmp_path, command, "auto")
    assert decision.decision == "ask"
    assert decision.unlocks == tuple(tmp_path / name for name in unlocked)
    assert all(any(name in reason for reason in decision.reasons) for name in unlocked)
    assert decision.proposed_rule is None
    for mode in ("auto", "unsafe"):
        assert check(tmp_path, command, mode, allow=["bash"], headless=True).decision != "ask"
    assert check(tmp_path, command, "auto", allow=["bash", "write(**)"]).decision == "ask"
    assert check(tmp_path, command, "auto", headless=True).decision == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "git add AGENTS.md .github/workflows/ci.yml",
        "git commit -m 'touch AGENTS.md'",
        "rm -f .git/index.lock",
        "cp AGENTS.md notes.md",
        "sed -n 1p CLAUDE.md",
        "mkdir -p .github/ISSUE_TEMPLATE",
        "ls -la .git/hooks .husky",
    ],
)
def test_whoever_only_names_a_protected_path_is_not_asked(tmp_path: Path, command: str) -> None:
    assert check(tmp_path, command, "auto").decision == "allow"


class Person:
    """Allows everything once, and notes what was asked."""

    def __init__(self) -> None:
        self.asked: list[ApprovalRequest] = []

    async def decide(self, request: ApprovalRequest) -> Approval:
        self.asked.append(request)
        return Approval(call_id=request.call_id, decision="allow", by="user")


@pytest.mark.parametrize("wall", WALLS)
async def test_a_yes_unlocks_the_path_for_that_one_call(tmp_path: Path, wall: str) -> None:
    root = tmp_path / "project"
    (root / ".github/workflows").mkdir(parents=True)
    (root / ".github/workflows/ci.yml").write_text("old\n")
    spawner = raise_wall(ProcessSpawner(root, SandboxConfig(mode=wall)))  # type: ignore[arg-type]
    evil = "python3 -c \"open('.github/workflows/{}', 'w').write('evil')\""
    approved = f"echo new > .github/workflows/ci.yml; {evil.format('x.yml')}; echo done"
    later = evil.format("ci.yml")
    turns = [Turn(calls=[call("bash", command=approved)]), Turn(calls=[call("bash", command=later)]), "Done."]
    person = Person()
    world = World(root, turns, mode="auto", person=person, spawner=spawner, wall=wall)
    try:
        await world.run()
    finally:
        spawner.close()
    assert [request.arguments["command"] for request in person.asked] == [approved]
    assert ".github/workflows/ci.yml" in person.asked[0].why["reasons"][0]
    assert (root / ".github/workflows/ci.yml").read_text() == "new\n"
    assert not (root / ".github/workflows/x.yml").exists()
    assert "x.yml is protected" in world.results[0].output
    assert "protected" in world.results[1].output
