"""One rule for exit codes: 2 what the command line itself shows to be wrong, 3 what it names and is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from aar.transports.cli.main import run_cli
from tests.cli.support import aar, script, stored

NOT_THERE = """
agents show nobody
skills show nobody
extensions inspect nobody
extensions validate nobody
mcp test nobody
mcp remove nobody
mcp login nobody
mcp logout nobody
schedule show nobody
schedule run nobody
schedule remove nobody
schedule add x "0 6 * * *" task --zone Nowhere/Here
sessions show nobody
sessions export nobody
sessions resample nobody --step 1
trace nobody
undo --session nobody
checkpoints show nobody
plan show nobody
memory show nobody
memory delete nobody
memory accept nobody
models show nobody/model
models pull nobody
config get nobody
config set nobody 1
auth remove nobody
policy forget nobody
prompt dump --session nobody
audit verify nobody
batch nobody.jsonl
sandbox exec -- nobody
run --model nobody/model hi
run --profile nobody hi
run --agent nobody hi
run --session nobody hi
run --config nobody.toml hi
run --cwd nobody hi
run --add-dir nobody hi
run --mcp-config nobody hi
run --image nobody.png hi
run --output-schema nobody.json hi
run --system-prompt nobody.md hi
run --output-last-message nobody/x hi
run --model scripted/nobody.json hi
run --model local/nobody hi
run --set nobody.key=1 hi
acp --cwd nobody
acp --http --allow-dir nobody
doctor --bundle nobody/file
"""
WRONG = """
nobody
agents nobody
run --nobody hi
run --max-steps 0 hi
run --mode nobody hi
run --timeout nan hi
run --max-cost nan hi
run --set nothing hi
run --image notes.txt hi
run --at 3 hi
sessions show
sessions prune --older-than nobody
stats --by nobody
completion nobody
sandbox exec
schedule add x "every day" task
auth set local
acp --allow-dir .
chat
"""


def rows(text: str) -> list[str]:
    return text.strip().splitlines()


@pytest.mark.parametrize(
    ("line", "code"), [*((line, 3) for line in rows(NOT_THERE)), *((line, 2) for line in rows(WRONG))]
)
def test_what_is_not_there_ends_with_3_and_a_wrong_command_line_with_2(
    line: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import shlex

    monkeypatch.chdir(tmp_path)
    assert run_cli(shlex.split(line)) == code
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1, told.err
    assert told.err.startswith("aar: ")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("run --set limits.steps=abc hi", "--set limits.steps: expected a whole number."),
        ("run --set 'limits={steps=\"abc\"}' hi", "--set limits: limits.steps: expected a whole number."),
        ("run --model antropic/x hi", "Did you mean anthropic?"),
        ("models show antropic/x", "Did you mean anthropic?"),
        ("run --model claud-sonnet hi", "Did you mean anthropic/claude-sonnet-4-6?"),
        ("run --model openaii hi", "Did you mean openai/NAME?"),
        (
            "run --approve-with no-such-program --model MODEL hi",
            "--approve-with no-such-program: there is no",
        ),
    ],
)
def test_what_was_meant_is_told(
    line: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import shlex

    monkeypatch.chdir(tmp_path)
    model = script(tmp_path / "m.json", "Hi.")
    assert run_cli([model if word == "MODEL" else word for word in shlex.split(line)]) == 3
    assert told in capsys.readouterr().err


def test_a_task_without_its_command_is_told_which_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["fix the bug"]) == 2
    assert 'aar run "fix the bug"' in capsys.readouterr().err


def test_nothing_is_deleted_or_copied_that_nobody_can_mean(project: Path, hello: str) -> None:
    session = aar("run", "--output", "json", "--model", hello, "hi", cwd=project).json["session_id"]
    silent = aar("sessions", "delete", session, cwd=project, stdin="")
    assert (silent.code, "--yes" in silent.err) == (2, True)
    assert aar("sessions", "delete", session, cwd=project, stdin="n\n").code == 2
    beyond = aar("sessions", "fork", session, "--at", "999", cwd=project)
    assert (beyond.code, "there is no 999" in beyond.err) == (3, True)
    assert len(stored()) == 1
    assert aar("sessions", "delete", session, cwd=project, stdin="y\n").code == 0
    assert stored() == []
