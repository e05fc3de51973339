"""A shell whose folder, variables and functions last from one command to the next, behind real walls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aar.config.schema import ToolsConfig
from aar.protocol.events import Approval, ApprovalRequest, ToolResult
from aar.safety.policy import RuleSet, SafetyPolicy
from aar.tools.builtin import kept_shell, shell
from tests.support.fakes import Turn, call
from tests.support.minds import Ask, Place, place

pytestmark = pytest.mark.usefixtures("clean_environment")
KEPT = ["tools.bash.persistent=true"]


class Script:
    """A model that sends one command a step."""

    def __init__(self, commands: Sequence[Any]) -> None:
        self.commands: list[dict[str, Any]] = [
            item if isinstance(item, dict) else {"command": item} for item in commands
        ]

    def __call__(self, ask: Ask) -> Turn | str:
        made = len(ask.results)
        if made < len(self.commands):
            return Turn(calls=[call("bash", **self.commands[made])])
        return "Done."


async def results(here: Place) -> list[ToolResult]:
    await here.run()
    return here.of("tool_result", agent="main")


async def outputs(tmp_path: Path, *commands: Any) -> list[str]:
    files = {"sub/deep/a.txt": "one\n"}
    async with place(tmp_path, Script(commands), files=files, sets=KEPT) as here:
        return [result.output for result in await results(here)]


async def test_folder_variables_functions_and_options_last(tmp_path: Path) -> None:
    said = await outputs(
        tmp_path,
        "cd sub; export A='x  y'; B=(1 '2 3'); f() { echo \"f: $1 ${B[1]}\"; }; set -o pipefail; umask 077",
        'cat deep/a.txt; f hi; env | grep ^A=; umask; false | true; echo $?; echo "$# $0"',
        "unset A; unset -f f; cd - >/dev/null; exit 3",
        'pwd -P; echo "[$A]"; f',
    )
    assert said[0] == "(no output)\n[The shell is now in sub.]"
    assert said[1] == "one\nf: hi 2 3\nA=x  y\n0077\n1\n0 bash"
    assert said[2] == "exit code: 3\n[The shell is now in the project folder.]"
    project = (tmp_path / "project").resolve()
    assert said[3].startswith(f"{project}\n[]\n")
    assert "f: command not found" in said[3]


async def test_without_the_setting_each_call_is_a_new_shell(tmp_path: Path) -> None:
    async with place(tmp_path, Script(["cd sub; A=1", "pwd; echo [$A]"]), files={"sub/a": ""}) as here:
        first, second = await results(here)
        [bash] = [spec for spec in here.runtime.registry if spec.name == "bash"]
    assert (first.output, second.output) == ("(no output)", f"{here.root}\n[]")
    assert "Each call is a new shell" in bash.description
    [kept] = [spec for spec in shell.tools(persistent=True) if spec.name == "bash"]
    assert "last until the session ends" in kept.description


async def test_a_command_that_hangs_is_killed_and_takes_nothing_with_it(tmp_path: Path) -> None:
    hanging = {"command": "cd deep; A=2; echo begun; sleep 1000", "timeout_s": 0.5}
    said = await outputs(tmp_path, "cd sub; A=1", hanging, "pwd; echo $A")
    assert "killed after 0.5 s" in said[1]
    assert "begun" in said[1]
    assert said[1].endswith("[The shell's folder and variables are as before this command.]")
    assert said[2] == f"{(tmp_path / 'project').resolve()}/sub\n1"


async def test_a_folder_that_is_gone_lets_no_command_run_somewhere_else(tmp_path: Path) -> None:
    said = await outputs(tmp_path, "cd sub/deep", "rm -r ../deep", "touch made", "ls")
    assert "is gone, so the command did not run" in said[2]
    assert said[3] == "sub"


async def test_the_shell_tells_lines_of_the_command_and_an_error_leaves_the_state(tmp_path: Path) -> None:
    said = await outputs(tmp_path, "A=1", "echo a\nnothing_like_it", "echo $A")
    assert "line 2: nothing_like_it: command not found" in said[1]
    assert "exit code: 127" in said[1]
    assert said[2] == "1"


async def test_what_a_command_leaves_is_bounded_and_no_link_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"/tmp\n\0export STOLEN=1\n\0")
    linking = f"A=2; trap 'cd \"$__aar_folder\"; rm -f after; ln -s {secret} after' EXIT; __aar_saved=1"
    large = "X=$(head -c 30000 /dev/zero | tr '\\0' x)"
    monkeypatch.setattr(kept_shell, "MAX_STATE", 20_000)
    said = await outputs(tmp_path, "A=1", linking, large, 'echo "$A ${#X} [$STOLEN]"; pwd')
    assert said[1].endswith(said[2].removeprefix("(no output)\n"))
    assert "as before this command" in said[2]
    assert said[3] == f"1 0 []\n{(tmp_path / 'project').resolve()}"


async def test_the_wall_and_secrets_of_each_call_stay_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-verysecretvalue")
    outside = tmp_path / "outside.txt"
    said = await outputs(
        tmp_path,
        f"cd {tmp_path} && echo x > {outside}",
        "env | grep -c SOME_API_KEY; declare -p | grep -c __aar",
    )
    assert not outside.exists()
    assert said[1].startswith("0\n")


async def test_a_call_that_was_given_more_runs_without_what_others_defined(tmp_path: Path) -> None:
    class Yes:
        async def decide(self, request: ApprovalRequest) -> Approval:
            return Approval(call_id=request.call_id, decision="allow", by="user")

    commands = [
        'cd sub; echo() { command echo "POISON $*"; }; A=1',
        "echo hi > ../AGENTS.md; A=2",
        "command cat ../AGENTS.md; command echo $A",
    ]
    async with place(tmp_path, Script(commands), mode="auto", sets=KEPT, files={"sub/a": ""}) as here:
        here.agent.executor.approver = Yes()
        here.agent.executor.policy.headless = False
        done = await results(here)
        assert done[1].exit_code == 0, done[1].output
        asked = here.of("approval_request")
        assert asked[0].arguments["command"] == commands[1]
        assert "the shell is in sub" in asked[0].why["reasons"]
    assert done[2].output == "hi\n1"


PLANTED = """
mkdir sub/evil; printf '#!/bin/sh\\necho EVIL' >sub/evil/cat; chmod +x sub/evil/cat; PATH=./evil:$PATH
git() { echo EVIL "$@"; }; cd() { echo EVIL; }; pwd() { echo EVIL; }; export -f git
shopt -s expand_aliases; alias ls='echo EVIL'; export BASH_ENV=./evil/cat GIT_PAGER='echo EVIL'; set -f
trap 'echo EVIL' DEBUG
"""


async def test_a_command_allowed_for_its_words_means_them_whatever_others_have_planted(
    tmp_path: Path,
) -> None:
    asked: list[str] = []

    class Yes:
        async def decide(self, request: ApprovalRequest) -> Approval:
            asked.append(request.arguments["command"])
            return Approval(call_id=request.call_id, decision="allow", by="user")

    readers = ["cd sub && pwd", "cat a; ls *; git --version"]
    script = Script([PLANTED, *readers, "git push"])
    async with place(tmp_path, script, mode="ask", sets=KEPT, files={"sub/a": "one\n"}) as here:
        here.agent.executor.approver = Yes()
        done = [result.output for result in await results(here)]
        assert asked == [PLANTED, "git push"]
    assert done[1].startswith(f"{tmp_path.resolve()}/project/sub\n[")
    assert done[1].endswith("only its folder lasts. The shell is now in sub.]")
    assert done[2].startswith("one\na\n\nevil:\ncat\ngit version")
    assert "EVIL push" in done[3]


@pytest.mark.parametrize(
    ("mode", "wall", "command", "by_words"),
    [
        ("ask", "bubblewrap", "git status", True),
        ("edit", "bubblewrap", "git status", True),
        ("edit", "bubblewrap", "cd sub && pytest -q", False),
        ("edit", "none", "git status", True),
        ("plan", "bubblewrap", "git status", True),
        ("auto", "bubblewrap", "git status", False),
        ("unsafe", "none", "git status", False),
        ("ask", "bubblewrap", "make deploy", True),
        ("ask", "bubblewrap", "make other", False),
    ],
)
def test_words_count_where_other_commands_would_be_asked_about(
    tmp_path: Path, mode: Any, wall: str, command: str, by_words: bool
) -> None:
    rules = (RuleSet.parse("user", ["bash(make deploy)"]),)
    policy = SafetyPolicy(mode, tmp_path, wall=wall, rules=rules)
    assert policy.check_command(command).by_words is by_words


async def test_commands_are_judged_where_the_shell_is(tmp_path: Path) -> None:
    project = tmp_path / "x" / "y" / "project"
    folder = project / "a" / "b"
    folder.mkdir(parents=True)
    policy = SafetyPolicy("ask", project, wall="bubblewrap")
    bash = next(spec for spec in shell.tools() if spec.name == "bash")

    def judged(command: str) -> Any:
        return policy.decide(bash, {"command": command})

    assert judged("rm -rf *").hard_stop
    assert not judged("rm -rf project").hard_stop
    policy.shell_folder = lambda: folder
    assert not judged("rm -rf *").hard_stop
    assert judged("cat x").decision == "allow"
    policy.shell_folder = lambda: project.parent
    assert judged("rm -rf project").hard_stop
    assert judged("cat x").decision == "ask"
    assert policy.narrowed("plan").shell_folder is None


async def test_agents_below_have_shells_of_their_own_and_nothing_is_left(tmp_path: Path) -> None:
    def think(ask: Ask) -> Turn | str:
        if "You work for another agent" in ask.system:
            commands = ["pwd; cd sub/deep; B=2", "pwd"]
            return (
                Turn(calls=[call("bash", command=commands[len(ask.results)])])
                if len(ask.results) < 2
                else "ok"
            )
        steps = [
            call("bash", command="cd sub; A=1"),
            call("task", prompt="go", agent="coder"),
            call("bash", command="pwd; echo $A$B"),
        ]
        return Turn(calls=[steps[len(ask.results)]]) if len(ask.results) < 3 else "Done."

    async with place(tmp_path, think, sets=KEPT, files={"sub/deep/a": ""}) as here:
        await here.run()
        root = here.root
        own = [e.output for e in here.of("tool_result") if e.agent_id != "main"]
        assert own == [f"{root}\n[The shell is now in sub/deep.]", f"{root}/sub/deep"]
        assert here.of("tool_result", agent="main")[-1].output == f"{root}/sub\n1"
        assert len(here.runtime.shells) == 2
        temp = here.runtime.spawner.temp_folder
        assert not list(temp.glob("shell-*"))
    assert not here.runtime.shells
    assert not temp.exists()


async def test_a_session_that_goes_on_is_told_that_its_shell_is_new(tmp_path: Path) -> None:
    script = Script(["cd sub"])
    async with place(tmp_path, script, sets=KEPT, files={"sub/a": ""}) as here:
        await here.run()
        await here.session.aclose()
        assert here.runtime.shells == {}
        script.commands.append({"command": "pwd"})
        here.session = here.runtime.open_session(session_id=here.session.session_id)
        here.agent = here.runtime.agent(here.session)
        said = [result.output for result in await results(here)]
        assert said[1] == f"{here.root}\n[This is a new shell: what earlier ones were left in is gone.]"


def test_only_bash_can_be_persistent() -> None:
    assert ToolsConfig.model_validate({"bash": {"persistent": True}}).persistent_shell
    assert not ToolsConfig.model_validate({}).persistent_shell
    with pytest.raises(ValueError, match="only bash"):
        ToolsConfig.model_validate({"grep": {"persistent": True}})
