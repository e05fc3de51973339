"""Checks that end a run: their kinds, what the model reads of a failure, and when it gets nowhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aar.config.schema import VerifyConfig
from aar.core.verify.output import arranged, failing
from aar.core.verify.verifier import Evidence, Senses, Verifier
from aar.core.verify.watch import StuckWatch
from aar.protocol.errors import UsageError
from aar.runtime.judge import read_verdict
from aar.safety.files import WorkspaceFiles
from aar.tools.criteria import Criterion, parse_criterion, settled
from tests.support.fakes import Turn, World, call
from tests.support.plain_spawner import PlainSpawner

PYTEST = """\
=== FAILURES ===
____ test_old ____
old trouble
____ test_new[1] ____
new trouble
=== short test summary info ===
FAILED t.py::test_old - x
FAILED t.py::test_new[1] - y
2 failed in 0.10s
"""


def verifier(folder: Path, *criteria: str, **senses: Any) -> Verifier:
    senses.setdefault("files", WorkspaceFiles(folder))
    return Verifier(criteria, PlainSpawner(), folder, VerifyConfig(), Senses(**senses))


@pytest.mark.parametrize(
    ("text", "kind", "subject", "pattern"),
    [
        ("pytest -q", "command", "pytest -q", ""),
        ("command: file: x", "command", "file: x", ""),
        ("file: a b.txt", "file", "a b.txt", ""),
        ("text: a.txt =~ ^x=~y$", "text", "a.txt", "^x=~y$"),
        ("schema: 's c.json' out.json", "schema", "out.json", "s c.json"),
        ("Judge: it is so", "judge", "it is so", ""),
        ("file://x", "command", "file://x", ""),
    ],
)
def test_a_criterion_is_read_and_written_back(text: str, kind: str, subject: str, pattern: str) -> None:
    read = parse_criterion(text)
    assert (read.kind, read.subject, read.pattern) == (kind, subject, pattern)
    assert parse_criterion(read.text) == read


@given(st.sampled_from(["command", "file", "user", "judge", "changed"]), st.text(min_size=1).map(str.strip))
def test_any_subject_comes_back(kind: Any, subject: str) -> None:
    if subject:
        criterion = parse_criterion(Criterion(kind, subject).text)
        assert (criterion.kind, criterion.subject) == (kind, subject)


@pytest.mark.parametrize(
    "text", ["", "file:", "text: a.txt", "text: a =~ (", "schema: one", "schema: 'x", "answer: ["]
)
def test_a_criterion_that_lacks_something_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(UsageError, match=r"check|pattern"):
        parse_criterion(text)


def test_prose_of_a_model_goes_to_a_judge_and_commands_stay_commands(tmp_path: Path) -> None:
    (tmp_path / "run.sh").touch()
    assert settled("all tests pass", tmp_path) == "judge: all tests pass"
    assert settled("test that it really works", tmp_path) == "judge: test that it really works"
    assert settled("test -e a.txt", tmp_path) == "test -e a.txt"
    assert settled("CI=1 ls -l", tmp_path) == "CI=1 ls -l"
    assert settled("tests/../run.sh", tmp_path).startswith("judge: ")
    assert settled("./run.sh", tmp_path) == "./run.sh"


async def test_files_patterns_and_schemas_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "s.json").write_text('{"type": "object", "required": ["n"]}')
    (tmp_path / "o.json").write_text("{}")
    checks = verifier(
        tmp_path, "file: a.txt", "text: a.txt =~ ^two$", "changed: a.txt", "schema: s.json o.json"
    )
    assert (await checks.run()).output == "a.txt did not change."
    (tmp_path / "a.txt").write_text("two\n")
    wrong = await checks.run()
    assert (wrong.command, "'n' is a required property" in wrong.output) == ("schema: s.json o.json", True)
    (tmp_path / "o.json").write_text('{"n": 1}')
    assert (await checks.run()).passed
    assert (await verifier(tmp_path, "file: none").run()).output == "There is no none."
    assert not (await verifier(tmp_path, "text: /etc/shadow =~ root").run()).passed


async def test_the_answer_the_user_and_a_judge_are_asked(tmp_path: Path) -> None:
    said: list[str | None] = ["yes", "No, the colour.", None]
    seen: list[tuple[str, str]] = []

    async def ask(_question: str, _options: Any) -> str | None:
        return said.pop(0)

    async def judge(criterion: str, evidence: Evidence) -> tuple[bool, str]:
        seen.append((criterion, evidence.text))
        return False, "It is not."

    def evidence() -> Evidence:
        return Evidence("APPROVED", ("+x",), "Do it")

    assert (await verifier(tmp_path, "answer: ^APPROVED$", evidence=evidence).run()).passed
    results = [await verifier(tmp_path, "user: Well?", ask=ask).run() for _ in range(3)]
    assert [each.passed for each in results] == [True, False, False]
    assert results[1].output == "The user says: No, the colour."
    assert results[2].unknown
    judged = await verifier(tmp_path, "judge: good", judge=judge, evidence=evidence).run()
    assert (judged.passed, judged.output) == (False, "It is not.")
    assert seen == [("good", evidence().text)]
    assert "<changes>\n+x\n</changes>" in evidence().text


@pytest.mark.parametrize(
    ("answer", "passed"),
    [
        ("PASS", True),
        ("**PASS**", True),
        ("FAIL: no", False),
        ("PASS\nFAIL", False),
        ("It would PASS", False),
        ("", False),
    ],
)
def test_only_one_clear_verdict_is_a_pass(answer: str, passed: bool) -> None:
    assert read_verdict(answer)[0] is passed


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("FAILED t.py::test_a[x y] - boom", "t.py::test_a[x y]"),
        ("FAIL: test_a (m.C.test_a)", "test_a (m.C.test_a)"),
        ("    --- FAIL: TestA/b (0.00s)", "TestA/b"),
        ("test a::b ... FAILED", "a::b"),
        ("  ● suite › works", "suite › works"),
        ("not ok 3 - works", "works"),
        ("src/a.c:3:5: error: no x", "src/a.c: error: no x"),
        ("src/a.ts(3,5): error TS2304: no x", "src/a.ts: error TS2304: no x"),
    ],
)
def test_names_of_what_fails_are_known_from_many_tools(line: str, name: str) -> None:
    assert failing(f"noise\n{line}\nmore noise") == (name,)


def test_new_failures_come_first_and_the_rest_is_cut() -> None:
    first = arranged(PYTEST, failing(PYTEST), None, 1000)
    assert first == PYTEST
    again = arranged(PYTEST, failing(PYTEST), ("t.py::test_old", "t.py::test_gone"), 1000)
    head = again.splitlines()[:3]
    assert head == [
        "Fails now and did not before: t.py::test_new[1]",
        "Passes now: t.py::test_gone",
        "Still fails: t.py::test_old",
    ]
    assert again.index("new trouble") < again.index("old trouble") < again.index("short test summary")
    assert sorted(again.splitlines()[3:]) == sorted(PYTEST.splitlines())
    assert len(arranged("x" * 9000, (), (), 600)) < 650


@given(st.text(max_size=300), st.integers(10, 200))
def test_what_is_shown_of_any_output_is_bounded(output: str, limit: int) -> None:
    now = failing(output)
    assert len(arranged(output, now, now[:1], limit)) <= 2 * limit + 300 + 220 * len(now)


def test_three_equal_failures_earn_one_nudge_and_then_it_is_stuck() -> None:
    watch = StuckWatch()
    assert [watch.failed("a") for _ in range(4)] == ["go on", "go on", "nudge", "stuck"]
    assert watch.hopeless
    watch.acted()
    assert (watch.failed("a"), watch.hopeless) == ("stuck", False)
    assert [watch.failed("b"), watch.failed("b")] == ["go on", "go on"]


async def test_a_user_who_is_asked_says_how_a_stuck_run_goes_on(tmp_path: Path) -> None:
    turns = ["Done."] * 4 + [Turn(calls=[call("write_file", path="ok", content="")]), "Now."]
    world = World(tmp_path, turns)
    asked: list[str] = []

    async def ask(question: str, _options: Any) -> str:
        asked.append(question)
        return "Write the file ok."

    checks = Verifier(["test -e ok"], PlainSpawner(), tmp_path, VerifyConfig(), Senses(ask=ask))
    world.agent._make_verifier = lambda: checks  # pyright: ignore[reportPrivateUsage]
    result = await world.run()
    assert result.stop_reason == "verified"
    assert len(asked) == 1
    assert re.search(r"`test -e ok` has failed in the same way 4 times", asked[0])
    assert [e.source for e in world.of("user_message")] == ["prompt", "steer"]
