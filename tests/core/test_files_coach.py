"""Help for a small model: what is shown, what is put back, what is said about its slips."""

from __future__ import annotations

import ast
from pathlib import Path
from threading import Event as StopEvent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aar.core.coaching.files_coach import FilesCoach
from aar.core.coaching.project_files import ProjectFile, ProjectFiles, score
from aar.core.coaching.python_check import check_python, lost_definitions
from aar.core.coaching.python_merge import restore_lost
from aar.core.verify.verifier import essential
from aar.core.view import without_dead_ends
from aar.protocol.events import ContextEvent, Event, ToolResult
from aar.protocol.messages import Message, TextBlock, ToolUseBlock
from aar.protocol.tool import FileChange
from aar.providers.text_tools import make_parser
from aar.safety.files import WorkspaceFiles
from aar.tools.builtin.walk import walk

ORDERS = (
    "def proc(order):\n    return order\n\n\ndef total(orders):\n    return sum(proc(o) for o in orders)\n"
)


def coach(root: Path, files: dict[str, str], words: str) -> FilesCoach:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    project = ProjectFiles(WorkspaceFiles(root))
    project.refresh(list(walk(root, StopEvent())))
    made = FilesCoach(project, 3000)
    made.opening(words, "")
    return made


def answer(made: FilesCoach, text: str) -> dict[str, str]:
    parser = made.guard(make_parser("files", lambda name: name, made.project))
    parser.feed(text)
    calls = parser.finish().calls
    return {str(call.arguments["path"]): str(call.arguments.get("content")) for call in calls}


def problem(made: FilesCoach, text: str) -> str | None:
    parser = made.guard(make_parser("files", lambda name: name, made.project))
    parser.feed(text)
    return parser.finish().problem


def said(event: Event | None) -> str:
    assert isinstance(event, ContextEvent)
    return "".join(block.text for block in event.content if isinstance(block, TextBlock))


def wrote(root: Path, **files: str) -> list[ToolResult]:
    results: list[ToolResult] = []
    for stem, text in files.items():
        (root / f"{stem}.py").write_text(text)
        change = FileChange(path=f"{stem}.py", action="modify")
        results.append(ToolResult(call_id=stem, tool_name="write_file", output="ok", file_changes=(change,)))
    return results


def test_a_function_that_the_answer_left_out_is_put_back(tmp_path: Path) -> None:
    made = coach(tmp_path, {"orders.py": ORDERS}, "proc must return a copy of the order")
    written = answer(made, "orders.py\n```python\ndef proc(order):\n    return dict(order)\n```")
    assert "def total(orders):" in written["orders.py"]
    assert "return dict(order)" in written["orders.py"]
    assert made.take_notes() == ["orders.py: kept total, which the answer had left out."]
    assert made.take_notes() == []


def test_what_is_put_back_follows_the_renaming_that_was_asked_for(tmp_path: Path) -> None:
    made = coach(tmp_path, {"orders.py": ORDERS}, "Rename the function `proc` to `process_order` everywhere.")
    written = answer(made, "orders.py\n```python\ndef process_order(order):\n    return order\n```")
    assert "sum(process_order(o) for o in orders)" in written["orders.py"]
    assert "def proc(" not in written["orders.py"]


def test_a_function_may_go_when_removal_was_asked_for(tmp_path: Path) -> None:
    made = coach(tmp_path, {"orders.py": ORDERS}, "Remove the function total, it is unused.")
    written = answer(made, "orders.py\n```python\ndef proc(order):\n    return order\n```")
    assert "total" not in written["orders.py"]


def test_existing_tests_are_left_alone_unless_the_task_is_about_them(tmp_path: Path) -> None:
    files = {
        "calc.py": "def add(a, b):\n    return a - b\n",
        "test_calc.py": "def test_add():\n    assert True\n",
    }
    both = "calc.py\n```python\ndef add(a, b):\n    return a + b\n```\n\ntest_calc.py\n```python\ndef test_add():\n    assert 1\n```"
    made = coach(tmp_path, files, "add() is wrong. Fix it.")
    assert list(answer(made, both)) == ["calc.py"]
    assert "the task is not about tests" in made.take_notes()[0]
    made = coach(tmp_path, files, "Fix add() and write more tests for it.")
    assert list(answer(made, both)) == ["calc.py", "test_calc.py"]


def test_an_answer_that_changes_nothing_hears_the_task_again(tmp_path: Path) -> None:
    made = coach(tmp_path, {"orders.py": ORDERS}, "Make total ignore empty orders")
    text = problem(made, f"orders.py\n```python\n{ORDERS}```")
    assert text is not None
    assert "Make total ignore empty orders" in text


def test_asking_for_a_file_that_was_shown_is_answered_with_the_task(tmp_path: Path) -> None:
    made = coach(tmp_path, {"orders.py": ORDERS}, "Make total ignore empty orders")
    assert "shown above" in (problem(made, "READ: orders.py") or "")


def test_slips_in_what_was_written_are_told_once_more_than_none(tmp_path: Path) -> None:
    made = coach(
        tmp_path,
        {"a.py": "def f(x):\n    return x\n", "b.py": "from a import f\n\nprint(f(1))\n"},
        "change f",
    )
    assert made.review(wrote(tmp_path, a="def f(x):\n    return x + 1\n")) is None
    text = said(made.review(wrote(tmp_path, a="def g(x):\n    return x\n")))
    assert "b.py imports `f` from a.py" in text
    for _ in range(2):
        assert made.review(wrote(tmp_path, a="def g(x:\n")) is not None
    assert made.review(wrote(tmp_path, a="def g(x:\n")) is None, "the model is not sent back for ever"


def test_slips_that_were_there_before_are_not_held_against_the_model(tmp_path: Path) -> None:
    made = coach(
        tmp_path, {"old.py": "import nothing_here\nprint(undefined)\n", "a.py": "x = 1\n"}, "set x to 2"
    )
    assert made.review(wrote(tmp_path, a="x = 2\n")) is None


def test_the_reminder_speaks_of_new_files_that_the_task_names(tmp_path: Path) -> None:
    made = coach(tmp_path, {"text.py": "x = 1\n"}, "Write tests in test_text.py")
    assert "test_text.py does not exist yet" in said(made.reminder())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f(:\n", "a.py, line 1"),
        ("print(missing)\n", "`missing` is used but not defined"),
        ("from b import nope\n", "imports `nope` from b.py"),
        ("from b import two\n\ntwo(1)\n", "`two` needs the argument `y`"),
        ("from b import two\n\ntwo(1, 2, 3)\n", "takes 2 arguments and not 3"),
        ("from b import two\n\ntwo(1, z=2)\n", "has no argument `z`"),
        ("from b import two\n\ntwo(1, y=2)\ntwo(*[1, 2])\ntwo(**{})\n", ""),
        ("from b import *\nprint(anything)\n", ""),
        (
            "try:\n    pass\nexcept ValueError as e:\n    print(e)\nmatch 1:\n    case n:\n        print(n)\n",
            "",
        ),
        (
            "def f(a, *b, c=1, **d):\n    global g\n    g = [x for x in (a, b, c, d)]\n    return lambda y: y\n",
            "",
        ),
        ("import os.path as p, sys\n\nclass A:\n    z = 1\n    def m(self): return __class__, p, sys\n", ""),
        ("from . import b\nfrom .b import two\n", ""),
    ],
)
def test_python_is_checked_without_false_alarms(text: str, expected: str) -> None:
    files = {"a.py": text, "b.py": "def two(x, y):\n    return x\n"}
    found = check_python(["a.py"], files.get, frozenset(files))
    assert expected in "\n".join(found)
    assert bool(found) == bool(expected)


@pytest.mark.parametrize(
    "room", ["core", "tools", pytest.param(".", marks=pytest.mark.slow)]
)  # all takes seconds: a few rooms stand for it
def test_this_project_itself_gives_no_alarm(room: str) -> None:
    root = Path(__file__).parents[2]
    paths = [path.relative_to(root).as_posix() for path in (root / "aar").rglob("*.py")]
    read = {path: (root / path).read_text() for path in paths}
    chosen = [path for path in paths if path.startswith(f"aar/{room}".removesuffix("/."))]
    assert len(chosen) > 20
    assert check_python(chosen, read.get, frozenset(paths)) == []


def test_lost_methods_are_told() -> None:
    before = {"a.py": "class A:\n    def m(self): ...\n    def n(self): ...\n"}
    assert lost_definitions(before, {"a.py": "class A:\n    def m(self): ...\n"}.get) == {"a.py": ["A.n"]}


names = st.sampled_from(["alpha", "beta", "gamma", "delta", "epsilon"])


@given(st.lists(names, unique=True, min_size=1), st.sets(names), st.booleans())
def test_nothing_is_ever_lost_and_the_rest_is_the_models(
    defined: list[str], kept: set[str], constant: bool
) -> None:
    head = "LIMIT = 3\n\n\n" if constant else ""
    old = head + "\n\n".join(f"def {name}(x):\n    return {name!r}\n" for name in defined)
    given_back = [name for name in defined if name in kept]
    new = "\n\n".join(f"def {name}(x):\n    return x\n" for name in given_back)
    merged = restore_lost(old, new, lambda name: False)
    tree = ast.parse(merged.text)
    found = {node.name: ast.unparse(node) for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert set(found) == set(defined)
    for name in defined:
        assert ("return x" in found[name]) == (name in kept)
    assert ("LIMIT = 3" in merged.text) == constant


def test_imports_and_the_main_block_come_back_where_they_are_needed() -> None:
    old = '"""Doc."""\nimport math\nimport os\n\n\ndef area(r):\n    return math.pi * r\n\n\nif __name__ == "__main__":\n    print(area(1))\n'
    merged = restore_lost(old, "def area(r):\n    return math.pi * r**2\n", lambda name: False)
    assert "import math" in merged.text
    assert "import os" not in merged.text
    assert merged.text.rstrip().endswith("print(area(1))")


def test_text_that_is_no_python_is_left_alone() -> None:
    assert restore_lost("def f(:", "x = 1", lambda name: False).text == "x = 1"
    assert restore_lost("x = 1\n", "def f(:", lambda name: False).text == "def f(:"


def test_files_named_in_the_prompt_or_the_failure_come_first() -> None:
    files = [ProjectFile(f"m{i}.py", f"def helper_{i}(): pass\n") for i in range(30)]
    files += [
        ProjectFile("weather.py", "def celsius(x): return x\n"),
        ProjectFile("test_weather.py", "from weather import celsius\n"),
    ]
    assert score(files, "celsius gives wrong results", "")[0].path == "weather.py"
    assert {file.path for file in score(files, "celsius is wrong", "")[:2]} == {
        "weather.py",
        "test_weather.py",
    }
    assert score(files, "look at m7.py", "")[0].path == "m7.py"
    assert score(files, "fix it", "m9.py:1: AssertionError")[0].path == "m9.py"


def test_shown_files_are_not_shown_again_until_they_change(tmp_path: Path) -> None:
    made = coach(tmp_path, {"a.py": "x = 1\n"}, "set x")
    assert "```" not in said(made.opening("set x", ""))
    (tmp_path / "a.py").write_text("x = 2\n")
    assert "x = 2" in said(made.opening("set x", ""))


def test_answers_that_led_nowhere_are_not_shown_again() -> None:
    def user(*texts: str) -> Message:
        return Message(role="user", content=tuple(TextBlock(text=text) for text in texts))

    def assistant(text: str, *calls: ToolUseBlock) -> Message:
        return Message(role="assistant", content=(TextBlock(text=text), *calls))

    again = "x. The task is not done yet: do it"
    seen = without_dead_ends(
        [user("task"), assistant("bad"), user(again), assistant("bad"), user(again + " 2")]
    )
    assert [message.text for message in seen] == ["task" + again + " 2"]
    call = ToolUseBlock(call_id="1", name="write_file", arguments={})
    kept = [user("task"), assistant("", call), user("result")]
    assert without_dead_ends(kept) == kept
    assert without_dead_ends([user("task"), assistant("the end")])[-1].text == "the end"


def test_a_checks_output_is_cut_to_what_matters() -> None:
    noisy = (
        "/v/site-packages/p.py:1: SomeWarning: old\nmore words\n\n  warnings.warn(x)\nF.\n\n\n=== FAILURES ===\n"
        "E  assert 1 == 2\n1 failed, 1 passed in 0.20s\n/v/site-packages/q.py:3: OtherWarning: y\n"
    )
    assert essential(noisy) == "F.\n\n=== FAILURES ===\nE  assert 1 == 2\n1 failed, 1 passed in 0.20s"
    assert essential("Traceback\n  File x\n") == "Traceback\n  File x"


def test_after_a_setback_the_model_is_asked_afresh_with_the_files_as_they_are(tmp_path: Path) -> None:
    made = coach(tmp_path, {"a.py": "x = 1\n"}, "set x to 3")
    assert made.fresh() is None, "the conversation serves until something went wrong"
    (tmp_path / "a.py").write_text("x = 2\n")
    made.set_back(failure="assert 2 == 3")
    text = made.fresh().text if made.fresh() is not None else ""
    assert "x = 2" in text
    assert "x = 1" not in text
    assert text.index("assert 2 == 3") < text.index("Task: set x to 3")
    made.set_back(objection="a.py, line 1: bad.")
    assert (made.fresh() or Message(role="user", content=())).text.endswith("a.py, line 1: bad.")


def test_a_model_that_ran_a_command_keeps_its_conversation(tmp_path: Path) -> None:
    made = coach(tmp_path, {"a.py": "x = 1\n"}, "run ls")
    parser = made.guard(make_parser("files", lambda name: name, made.project))
    parser.feed("RUN: ls")
    assert [call.name for call in parser.finish().calls] == ["bash"]
    made.set_back(failure="no")
    assert made.fresh() is None


@pytest.mark.parametrize(
    ("words", "question"),
    [
        ("What does add do?", True),
        ("explain calc.py", True),
        ("Which lines did you change?", True),
        ("Why does add fail? Fix it.", False),
        ("Fix add. What was wrong?", False),
        ("How to sort is documented. Implement it!", False),
        ("add a function", False),
    ],
)
def test_a_question_is_to_be_answered_in_words(tmp_path: Path, words: str, question: bool) -> None:
    made = coach(tmp_path, {"calc.py": "def add(a, b):\n    return a + b\n"}, words)
    assert (said(made.reminder()) == "Answer in words.") == question


def test_commands_beside_written_files_run_only_when_the_task_is_to_run_something(tmp_path: Path) -> None:
    text = "a.py\n```python\nx = 2\n```\nRUN: python a.py"

    def names(words: str) -> list[str]:
        made = coach(tmp_path, {"a.py": "x = 1\n"}, words)
        parser = made.guard(make_parser("files", lambda name: name, made.project))
        parser.feed(text)
        return [call.name for call in parser.finish().calls]

    assert names("an empty list must give 2") == ["write_file"]
    assert names("set x to 2 and run it") == ["write_file", "bash"]


def test_the_form_speaks_of_commands_only_when_the_task_does(tmp_path: Path) -> None:
    assert "RUN:" not in said(
        coach(tmp_path, {"a.py": "x = 1\n"}, "average() fails for an empty list").reminder()
    )
    assert "RUN:" in said(coach(tmp_path, {"a.py": "x = 1\n"}, "run the tests").reminder())
