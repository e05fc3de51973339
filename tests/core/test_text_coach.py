"""A small model that calls tools in text is led from reading over changing to testing."""

from __future__ import annotations

from pathlib import Path

from aar.core.coaching.project_files import ProjectFiles
from aar.core.coaching.text_coach import MEND, NOT_ACTED, REPORT, TEST, TextCoach
from aar.protocol.messages import Message, TextBlock, ToolResultBlock, ToolUseBlock
from aar.providers.dialects.base import ParsedText, make_call
from aar.providers.dialects.grammar import Choices, answer_grammar
from aar.safety.files import WorkspaceFiles

CALC = "def add(a, b):\n    return a - b\n\n\ndef twice(a):\n    return 2 * a\n"


def coach_of(root: Path, words: str, *, grammar: bool = False) -> TextCoach:
    (root / "calc.py").write_text(CALC)
    (root / "test_calc.py").write_text(
        "from calc import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n"
    )
    project = ProjectFiles(WorkspaceFiles(root))
    project.refresh(["calc.py", "test_calc.py"])
    coach = TextCoach(project, 2000, takes_grammar=grammar)
    coach.opening(words, "")
    return coach


def look_over(coach: TextCoach, *calls: ToolUseBlock) -> ParsedText:
    return coach.look_over(ParsedText("", "", calls))


def answered(coach: TextCoach, *calls: ToolUseBlock, output: str = "ok") -> str:
    """Return what the coach says after results of ``calls``."""
    results = tuple(ToolResultBlock(call_id=call.call_id, name=call.name, output=output) for call in calls)
    last = coach.remind([Message(role="user", content=results)])[-1].content[-1]
    assert isinstance(last, TextBlock)
    return last.text


def read_all(coach: TextCoach) -> None:
    calls = look_over(coach, make_call("read_file", {"path": "calc.py"})).calls
    answered(coach, *calls)


def names(parsed: ParsedText) -> list[tuple[str, str]]:
    return [(call.name, str(call.arguments.get("path"))) for call in parsed.calls]


def test_an_edit_of_a_file_that_was_not_read_becomes_a_look_at_it_and_at_what_belongs_to_it(
    tmp_path: Path,
) -> None:
    coach = coach_of(tmp_path, "Fix add.")
    edit = make_call("edit_file", {"path": "calc.py", "old_text": "x", "new_text": "y"})
    assert names(look_over(coach, edit)) == [("read_file", "calc.py"), ("read_file", "test_calc.py")]


def test_a_path_that_does_not_exist_leads_to_the_files_that_matter(tmp_path: Path) -> None:
    coach = coach_of(tmp_path, "Fix add.")
    looks = look_over(coach, make_call("read_file", {"path": "shop/cart.py"}))
    assert set(names(looks)) == {("read_file", "calc.py"), ("read_file", "test_calc.py")}


def test_reading_the_same_again_is_refused_with_the_task(tmp_path: Path) -> None:
    coach = coach_of(tmp_path, "Fix add.")
    read_all(coach)
    again = look_over(coach, make_call("read_file", {"path": "calc.py"}))
    assert again.calls == ()
    assert "calc.py already" in str(again.problem)


def test_words_alone_end_a_task_only_after_a_change_was_checked(tmp_path: Path) -> None:
    coach = coach_of(tmp_path, "Fix add.")
    words = ParsedText("I fixed it.", "")
    assert coach.look_over(words).problem == NOT_ACTED
    read_all(coach)
    edit = make_call("edit_file", {"path": "calc.py", "old_text": "a - b", "new_text": "a + b"})
    (kept,) = look_over(coach, edit).calls
    assert kept == edit
    (tmp_path / "calc.py").write_text(CALC.replace("a - b", "a + b"))
    assert answered(coach, kept).endswith(TEST)
    assert coach.look_over(words).problem == NOT_ACTED
    check = make_call("bash", {"command": "python -m pytest -q"})
    look_over(coach, check)
    assert answered(coach, check, output="1 passed").endswith(REPORT)
    assert coach.look_over(words).problem is None


def test_a_failed_check_asks_for_a_change_and_the_third_lets_the_model_report(tmp_path: Path) -> None:
    coach = coach_of(tmp_path, "Fix add.", grammar=True)
    read_all(coach)
    coach.changed = True
    for number in range(3):
        check = make_call("bash", {"command": f"python -m pytest -q # {number}"})
        look_over(coach, check)
        assert coach.look_over(ParsedText("I am done.", "")).problem == NOT_ACTED
        look_over(coach, check)
        assert answered(coach, check, output="1 failed\nexit code: 1").endswith(MEND)
        assert '"bash' not in coach.extra()["grammar"]
    assert coach.look_over(ParsedText("It still fails.", "")).problem is None


def test_a_question_may_be_answered_in_words_at_once(tmp_path: Path) -> None:
    coach = coach_of(tmp_path, "What does calc.py do?")
    assert coach.look_over(ParsedText("It adds.", "")).problem is None


def test_an_edit_that_would_drop_a_definition_keeps_it(tmp_path: Path) -> None:
    coach = coach_of(tmp_path, "Add a function `half(a)` to calc.py.")
    read_all(coach)
    new = "def half(a):\n    return a / 2\n"
    edit = make_call(
        "edit_file",
        {"path": "calc.py", "old_text": "def twice(a):\n    return 2 * a\n", "new_text": new},
    )
    (kept,) = look_over(coach, edit).calls
    assert kept.name == "write_file"
    assert "def half" in kept.arguments["content"]
    assert "def twice" in kept.arguments["content"]
    assert any("twice" in note for note in coach.take_notes())


def test_an_edit_that_names_a_definition_only_as_a_place_is_put_before_it(tmp_path: Path) -> None:
    coach = coach_of(tmp_path, "Add a function `half(a)` to calc.py.")
    read_all(coach)
    new = "def half(a):\n    return a / 2\n"
    edit = make_call("edit_file", {"path": "calc.py", "old_text": "def twice(a):", "new_text": new})
    (kept,) = look_over(coach, edit).calls
    assert kept.arguments["content"] == CALC.replace("def twice", f"{new}\n\ndef twice")


def test_a_check_without_any_tests_has_not_failed(tmp_path: Path) -> None:
    coach = coach_of(tmp_path, "Fix add.")
    coach.changed = True
    check = make_call("bash", {"command": "python -m pytest -q"})
    look_over(coach, check)
    assert answered(coach, check, output="no tests ran in 0.01s\nexit code: 5").endswith(REPORT)


def test_a_renaming_edit_changes_whole_names_in_the_whole_file_once(tmp_path: Path) -> None:
    coach = coach_of(tmp_path, "Rename the function `add` to `add_up` everywhere.")
    (tmp_path / "calc.py").write_text(CALC + "\n\npadded = add(1, 2)\n")
    read_all(coach)
    edit = make_call("edit_file", {"path": "calc.py", "old_text": "add", "new_text": "add_up"})
    (kept,) = look_over(coach, edit).calls
    renamed = str(kept.arguments["content"])
    assert renamed == CALC.replace("add", "add_up") + "\n\npadded = add_up(1, 2)\n"
    (tmp_path / "calc.py").write_text(renamed)
    again = look_over(coach, edit)
    assert again.calls == ()
    assert "does not hold the name `add` any more. It still stands in test_calc.py" in str(again.problem)


def test_the_grammar_offers_only_what_makes_sense_now(tmp_path: Path) -> None:
    coach = coach_of(tmp_path, "Fix add.", grammar=True)
    first = str(coach.extra()["grammar"])
    assert '"\\"calc.py\\""' in first
    assert "edit_file" not in first
    assert "words" not in first.splitlines()[0]
    read_all(coach)
    second = str(coach.extra()["grammar"])
    assert "read_file" not in second
    assert "edit_file" in second
    assert "test_calc.py" not in second
    assert coach_of(tmp_path, "Fix add.").extra() == {}


def test_without_a_call_to_offer_the_grammar_is_words() -> None:
    grammar = answer_grammar(Choices(new_files=False, bash=False))
    assert grammar.startswith("root ::= words\n")
    assert "call ::=" not in grammar
