"""A model of the files dialect, from the command line to the changed file, with told answers."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.cli.support import aar, events, of_type, script, stored

CALC = "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return add(a, a)\n"
CHECK = "from calc import add, double\nassert add(2, 3) == 5 and double(2) == 4\n"
WHOLE = "calc.py\n```python\ndef add(a, b):\n    return a + b\n```"


def repository(root: Path) -> None:
    (root / "calc.py").write_text(CALC)
    (root / "check.py").write_text(CHECK)


def test_a_whole_file_answer_becomes_a_verified_change(project: Path) -> None:
    repository(project)
    model = script(project.parent / "s.json", WHOLE, dialect="files")
    ran = aar("run", "add is wrong", "--model", model, "--verify", "python check.py", cwd=project)
    assert ran.code == 0, ran.err
    assert (project / "calc.py").read_text() == CALC.replace("a - b", "a + b")
    assert "+    return a + b" in ran.err
    assert "Verified: the check passes." in ran.err
    assert "kept double" in ran.err
    assert ran.out == "Changed calc.py (+1 -1)\n"


def test_the_failing_check_and_the_files_are_in_the_session_before_the_task(project: Path) -> None:
    repository(project)
    model = script(project.parent / "s.json", WHOLE, dialect="files")
    aar("run", "add is wrong", "--model", model, "--verify", "python check.py", cwd=project)
    found = events(stored()[0])
    texts = [event["content"][0]["text"] for event in found if event["type"] in ("context", "user_message")]
    assert "calc.py\n```python\ndef add(a, b):\n    return a - b" in texts[0]
    assert "AssertionError" in texts[1]
    assert texts.index("add is wrong") < len(texts) - 1
    assert [call["tool_name"] for call in of_type(found, "tool_call")] == ["write_file"]


def test_an_answer_that_fails_the_check_is_followed_by_another(project: Path) -> None:
    repository(project)
    wrong = WHOLE.replace("a + b", "a * b")
    model = script(project.parent / "s.json", wrong, WHOLE, dialect="files")
    ran = aar(
        "run",
        "add is wrong",
        "--model",
        model,
        "--verify",
        "python check.py",
        "--output",
        "json",
        cwd=project,
    )
    assert ran.code == 0
    assert (ran.json["stop_reason"], ran.json["steps"]) == ("verified", 2)


def test_a_command_of_a_small_model_runs_and_its_output_goes_back(project: Path) -> None:
    repository(project)
    model = script(
        project.parent / "s.json", "RUN: echo from-the-shell", "It prints from-the-shell.", dialect="files"
    )
    ran = aar("run", "run echo", "--model", model, cwd=project)
    assert ran.out == "It prints from-the-shell.\n"
    assert [result["exit_code"] for result in of_type(events(stored()[0]), "tool_result")] == [0]


def test_requests_and_answers_are_traced_when_that_is_wanted(project: Path, hello: str) -> None:
    aar("run", "say hi", "--model", hello, "--set", 'log.trace=["llm"]', cwd=project)
    log = "\n".join(file.read_text() for file in (Path(os.environ["AAR_HOME"]) / "logs").iterdir())
    assert "say hi" in log
    assert "answer scripted/" in log
    assert json.dumps("say hi")[1:-1] in log


def test_the_dialect_of_a_model_can_be_set(project: Path) -> None:
    repository(project)
    model = script(project.parent / "s.json", WHOLE)
    ran = aar("run", "add is wrong", "--model", model, "--set", 'model.dialect="files"', cwd=project)
    assert ran.out == "Changed calc.py (+1 -1)\n"
    assert "a + b" in (project / "calc.py").read_text()
