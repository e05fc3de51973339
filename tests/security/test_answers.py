"""Answers that last, answers of programs, edited arguments: nothing wider than what was shown."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aar.config.saved_rules import SavedRules
from aar.config.schema import SandboxConfig
from aar.core.approvals import Scope
from aar.protocol.errors import ConfigurationError
from aar.protocol.events import ApprovalRequest
from aar.runtime import make_policy, open_base, open_runtime
from aar.runtime.approve_with import ProgramApprover
from aar.runtime.policy import save_rule
from aar.safety.rule_proposals import propose_rule, too_broad
from aar.safety.rules import check_examples
from aar.safety.spawn import ProcessSpawner
from tests.cli.support import aar, call, events, script, stored


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    return folder


@pytest.fixture
async def spawner(tmp_path: Path) -> AsyncIterator[ProcessSpawner]:
    made = ProcessSpawner(tmp_path, SandboxConfig(mode="none"))
    yield made
    made.close()


def policy_of(project: Path) -> Any:
    return make_policy(open_base(cwd=project), "ask", "bubblewrap")


@pytest.mark.parametrize("scope", ["session", "project", "user"])
def test_a_saved_rule_acts_at_once_and_as_long_as_it_says(
    project: Path, tmp_path: Path, scope: Scope
) -> None:
    base = open_base(cwd=project)
    policy = policy_of(project)
    assert policy.check_command("mkdir a").decision == "ask"
    save_rule(base, policy, "bash(mkdir *)", scope)
    assert policy.check_command("mkdir a").decision == "allow"
    assert policy.check_command("rm a").decision == "ask"
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    later = policy_of(project).check_command("mkdir a").decision
    elsewhere = policy_of(other).check_command("mkdir a").decision
    expected = {"session": ("ask", "ask"), "project": ("allow", "ask"), "user": ("allow", "allow")}
    assert (later, elsewhere) == expected[scope]
    assert [path.name for path in project.iterdir()] == [".git"]


def test_rules_of_a_project_lie_with_the_user_and_belong_to_that_folder_only(project: Path) -> None:
    base = open_base(cwd=project)
    saved = SavedRules(base.paths, project)
    saved.add("bash(mkdir *)")
    assert saved.file.is_relative_to(base.paths.data)
    assert saved.file.stat().st_mode & 0o777 == 0o600
    data = json.loads(saved.file.read_text())
    saved.file.write_text(json.dumps({**data, "root": "/another"}))
    assert saved.load() == ()
    saved.file.write_text("{broken")
    assert saved.load() == ()
    saved.file.write_text(json.dumps({**data, "allow": ["bash(mkdir *)", "not a rule(", 3]}))
    assert policy_of(project).check_command("mkdir a").decision == "allow"


def test_a_user_rule_keeps_the_rest_of_the_config(project: Path) -> None:
    base = open_base(cwd=project)
    base.paths.config.mkdir(parents=True)
    base.paths.user_config.write_text(
        '# mine\n[permissions]\nallow = ["bash(ls *)"]  # keep\n[limits]\nsteps = 3\n'
    )
    save_rule(base, policy_of(project), 'bash(echo "x" *)', "user")
    text = base.paths.user_config.read_text()
    assert "# mine" in text
    assert open_base(cwd=project).config.permissions.allow == ("bash(ls *)", 'bash(echo "x" *)')


@pytest.mark.parametrize(
    "rule",
    ["bash", "bash(*)", "bash(python3 *)", "bash(bash *)", "bash(rm *)", "bash(rm -rf *)", "bash(sudo *)", "bash(env *)",
     "bash(git *)", "bash(git -C *)", "bash(npm exec *)", "bash(docker run *)", "bash(py* *)", "bash(node *)",
     "bash(/usr/bin/python3 *)", "bash(xargs *)", "bash(curl *)", "bash(find *)", "bash(python -m pip *)", "write(**)",
     "write(*)", "read(/**)", "write(~/**)", "read(//**)", "web_fetch", "web_fetch(domain:*.com)", "mcp__*", "write_file"],
)  # fmt: skip
def test_a_rule_as_good_as_everything_is_never_saved(project: Path, rule: str) -> None:
    assert too_broad(rule)
    base, policy = open_base(cwd=project), policy_of(project)
    with pytest.raises(ConfigurationError, match="not saved"):
        save_rule(base, policy, rule, "project")
    assert SavedRules(base.paths, project).load() == ()
    assert policy.check_command("python3 -c x").decision == "ask"


@pytest.mark.parametrize(
    "command",
    ["mkdir a", "git commit -m x", "npm run build", "python -m pytest -q", "cargo build", "pytest", "make test", "rm -rf build",
     "python3 a.py", "git push origin main"],
)  # fmt: skip
def test_what_is_proposed_is_narrow_enough_to_be_saved(command: str) -> None:
    rule = propose_rule(command.split())
    assert rule is not None
    assert too_broad(rule) is None


@pytest.mark.parametrize(
    ("rule", "match", "not_match", "wrong"),
    [
        ("bash(git push *)", ["git push origin", "ls && git push"], ["git pull"], None),
        ("bash(git push *)", ["git pull"], [], "does not cover 'git pull'"),
        ("bash(git *)", [], ["git push"], "covers 'git push'"),
        ("write(src/**)", ["src/a/b.py"], ["lib/a.py"], None),
        ("write(src/**)", ["lib/a.py"], [], "does not cover"),
        (
            "web_fetch(domain:*.python.org)",
            ["docs.python.org", "https://a.python.org/x"],
            ["python.org.evil"],
            None,
        ),
        ("mcp__a__*", ["mcp__a__b"], ["mcp__b__b"], None),
        ("nonsense(", [], [], "not understood"),
    ],
)
def test_examples_of_rules_are_verified(
    rule: str, match: list[str], not_match: list[str], wrong: str | None
) -> None:
    if wrong is None:
        check_examples(rule, match, not_match)
        assert too_broad(rule) is None
        return
    with pytest.raises(ConfigurationError, match=wrong.replace("(", r"\(")):
        check_examples(rule, match, not_match)


def test_a_wrong_example_in_the_config_is_found_at_the_start(project: Path) -> None:
    base = open_base(cwd=project)
    base.paths.config.mkdir(parents=True)
    base.paths.user_config.write_text(
        '[permissions]\ndeny = ["bash(git push)"]\n'
        '[permissions.examples."bash(git push)"]\nmatch = ["git push --force origin"]\n'
    )
    ran = aar("policy", "check", "ls", cwd=project)
    assert ran.code == 3
    assert "git push --force origin" in ran.err


def test_saved_rules_are_listed_and_can_be_taken_back(project: Path) -> None:
    SavedRules(open_base(cwd=project).paths, project).add("bash(mkdir *)")
    assert "saved by you" in aar("policy", "list", cwd=project).out
    assert json.loads(aar("policy", "check", "mkdir a", cwd=project).out)["rule"] == {
        "text": "bash(mkdir *)", "layer": "project",
    }  # fmt: skip
    assert aar("policy", "forget", "bash(mkdir *)", cwd=project).code == 0
    assert aar("policy", "forget", "bash(mkdir *)", cwd=project).code == 3


async def test_an_agent_that_is_made_again_saves_into_the_rules_that_judge(
    project: Path, tmp_path: Path
) -> None:
    model = script(tmp_path / "m.json", "Done.")
    runtime = open_runtime(cwd=project, model=model, mode="ask", interactive=True)
    try:
        session = runtime.open_session()
        first, again = runtime.agent(session), runtime.agent(session)
        again.executor.policy = first.executor.policy
        asked = asyncio.ensure_future(again.approvals.decide(request_for(command="mkdir a")))
        await asyncio.sleep(0)
        again.approvals.answer("r", "allow", scope="session")
        assert (await asked).rule == "bash(mkdir *)"
        assert first.executor.policy.check_command("mkdir b").decision == "allow"
        await session.aclose()
    finally:
        await runtime.aclose()


# --- a program that answers -----------------------------------------------------------------------------------


def program(tmp_path: Path, body: str) -> str:
    file = tmp_path / "approve.py"
    file.write_text(f"import json, sys, time\nrequest = json.load(sys.stdin)\n{body}\n")
    return f"{sys.executable} {file}"


def request_for(**arguments: Any) -> ApprovalRequest:
    scopes = ("once", "session", "project", "user")
    return ApprovalRequest(
        request_id="r", call_id="c", tool_name="bash", arguments=arguments, wall="none",
        why={"rule": None, "reasons": []}, proposed_rule="bash(mkdir *)", scopes=scopes,
    )  # fmt: skip


async def test_a_program_gets_the_request_and_its_answer_counts(
    tmp_path: Path, spawner: ProcessSpawner
) -> None:
    kept: list[tuple[str, str]] = []
    body = (
        "assert request['arguments'] == {'command': 'mkdir \\u202ea'}\n"
        "print(json.dumps({'decision': 'allow', 'scope': 'project', 'edited_arguments': {'command': 'mkdir b'}}))"
    )
    approver = ProgramApprover(
        program(tmp_path, body), spawner, tmp_path, lambda rule, scope: kept.append((rule, scope))
    )
    answer = await approver.decide(request_for(command="mkdir \u202ea"))
    assert (answer.decision, answer.by, answer.edited_arguments) == ("allow", "hook", {"command": "mkdir b"})
    assert kept == [("bash(mkdir *)", "project")]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("sys.exit(3)", "exit code 3"),
        ("print('yes')", "JSON"),
        ("print(json.dumps({'decision': 'maybe'}))", "decision"),
        ("print(json.dumps({'decision': 'allow', 'sudo': True}))", "sudo"),
        ("time.sleep(60)", "none within"),
        ("print(json.dumps({'decision': 'allow', 'scope': 'session', 'rule': 'bash(*)'}))", "not saved"),
    ],
)
async def test_whatever_is_no_sound_answer_is_no(
    tmp_path: Path, project: Path, spawner: ProcessSpawner, body: str, why: str
) -> None:
    base, policy = open_base(cwd=project), policy_of(project)
    approver = ProgramApprover(
        program(tmp_path, body),
        spawner,
        tmp_path,
        lambda rule, scope: save_rule(base, policy, rule, scope),
        timeout_s=2.0 if "sleep" in body else 60.0,
    )
    began = time.monotonic()
    answer = await approver.decide(request_for(command="mkdir a"))
    assert answer.decision == "reject"
    assert why in (answer.feedback or "")
    assert time.monotonic() - began < 50


async def test_a_program_that_is_not_there_is_no(tmp_path: Path, spawner: ProcessSpawner) -> None:
    there = tmp_path / "there"
    there.write_text("#!/bin/sh\necho allow\n")
    there.chmod(0o755)
    approver = ProgramApprover(str(there), spawner, tmp_path, lambda _rule, _scope: None)
    there.unlink()
    assert (await approver.decide(request_for(command="x"))).decision == "reject"
    for wrong in ("/no/such/program", "'unclosed", ""):
        with pytest.raises(ConfigurationError):
            ProgramApprover(wrong, spawner, tmp_path, lambda _rule, _scope: None)


def test_a_run_asks_the_program_and_judges_its_edits_again(project: Path, tmp_path: Path) -> None:
    body = (
        "wanted = request['arguments']['path']\n"
        "edit = {'path': '../out.txt', 'content': 'x'} if wanted == 'evil.txt' else None\n"
        "print(json.dumps({'decision': 'allow', 'edited_arguments': edit}))"
    )
    model = script(
        tmp_path / "m.json",
        call("write_file", path="good.txt", content="x"),
        call("write_file", path="evil.txt", content="x"),
        "Done.",
    )
    ran = aar(
        "run", "hi", "--model", model, "--mode", "ask", "--approve-with", program(tmp_path, body), cwd=project
    )
    assert ran.code in (0, 6)
    assert (project / "good.txt").exists()
    assert not (project / "evil.txt").exists()
    assert not (tmp_path / "out.txt").exists()
    happened = events(stored()[0])
    assert next(event["by"] for event in happened if event["type"] == "approval") == "hook"


def test_headless_auto_denies_what_would_ask_and_goes_on(project: Path, tmp_path: Path) -> None:
    model = script(
        tmp_path / "m.json",
        call("write_file", path="AGENTS.md", content="x"),
        call("list_directory", path="."),
        "Done.",
    )
    status = json.loads(aar("sandbox", "status", "--json", cwd=project).out)
    if not status["enforced"]:
        pytest.skip("no wall holds here")
    ran = aar("run", "hi", "--model", model, "--mode", "auto", "--output", "json", cwd=project)
    assert (ran.code, ran.json["stop_reason"], ran.json["steps"]) == (0, "end_turn", 3)
    assert not (project / "AGENTS.md").exists()
