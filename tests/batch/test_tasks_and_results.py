"""The file of tasks, the journal, and the tables made from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aar.orchestration.batch_child import ChildOptions, run_words
from aar.orchestration.batch_results import Begun, Journal, TaskResult, markdown
from aar.orchestration.batch_tasks import BatchTask, read_tasks
from aar.protocol.errors import UsageError
from tests.batch.support import done


def tasks_of(folder: Path, *lines: str) -> list[BatchTask]:
    file = folder / "tasks.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    return read_tasks(file)


def test_a_line_is_an_object_or_a_prompt_and_comments_are_left_out(tmp_path: Path) -> None:
    first, second = tasks_of(
        tmp_path, "# notes", '{"id": "a", "prompt": "Do", "verify": "true"}', "", '"Do\\nmore"'
    )
    assert (first.id, first.verify) == ("a", ("true",))
    assert (second.prompt, second.name) == ("Do\nmore", "Do")


def test_a_made_name_stays_when_lines_move_and_changes_with_the_task(tmp_path: Path) -> None:
    one, two = tasks_of(tmp_path, '"Do a"', '"Do b"')
    other, again = tasks_of(tmp_path, '"Do b"', '"Do a"')
    assert (one.id, two.id) == (again.id, other.id)
    same, double = tasks_of(tmp_path, '"Do a"', '"Do a"')
    assert (same.id, double.id) == (one.id, f"{one.id}-2")
    (changed,) = tasks_of(tmp_path, '{"prompt": "Do a", "mode": "plan"}')
    assert changed.digest != one.digest


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (['{"prompt": '], "line 1 is not JSON"),
        (["[1]"], "a task is an object"),
        (['{"prompt": "x", "modell": "y"}'], "a task has no 'modell'; did you mean 'model'?"),
        (['{"id": "../x", "prompt": "x"}'], "may have letters"),
        (['{"prompt": "  "}'], "the prompt is empty"),
        (['{"id": "a"}'], "'prompt': field required"),
        (['{"prompt": "x", "cwd": "../y"}'], "cwd is a folder in the project"),
        (['{"prompt": "x", "mode": "wild"}'], "'mode': input should be"),
        (['{"prompt": "x", "max_cost": 0}'], "'max_cost': input should be greater than 0"),
        (['{"id": "a", "prompt": "x"}', '{"id": "a", "prompt": "y"}'], "lines 1 and 2 have the same id"),
        (["", "#"], "has no tasks"),
    ],
)
def test_a_wrong_line_is_told_in_a_sentence(tmp_path: Path, lines: list[str], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        tasks_of(tmp_path, *lines)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_tasks(tmp_path / "none.jsonl")


def test_a_task_comes_before_the_command_line_and_the_smaller_limit_of_money_counts() -> None:
    task = BatchTask.model_validate(
        {"id": "a", "prompt": "-x", "model": "p/own", "max_cost": 2, "set": {"tools.parallel": False}}
    )
    options = ChildOptions(Path("/"), ("--debug",), model="p/all", mode="edit", verify=("true",))
    words = run_words(task, options, Path("/place"), max_cost=0.5)
    assert {"--model=p/own", "--mode=edit", "--verify=true", "--max-cost=0.500000", "--debug"} <= set(words)
    assert "--set=tools.parallel=false" in words
    assert words[-1] == "-"
    assert "-x" not in words


def test_a_torn_journal_keeps_all_that_was_whole(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "out")
    journal.begin(Begun(id="a", digest="1"))
    journal.end(done("a").model_copy(update={"digest": "1"}))
    journal.begin(Begun(id="b", digest="2", attempt=1, place="/p", cost_usd=0.5))
    journal.close()
    with (tmp_path / "out/journal.jsonl").open("ab") as file:
        file.write(b'{"type": "end", "id": "b", "dig')
    again = Journal(tmp_path / "out")
    assert set(again.ended) == {("a", "1")}
    assert again.begun["b", "2"].place == "/p"
    again.end(done("b").model_copy(update={"digest": "2"}))
    again.close()
    last = Journal(tmp_path / "out")
    assert set(last.ended) == {("a", "1"), ("b", "2")}
    assert last.begun == {}
    last.close()


def test_two_batches_do_not_write_the_same_results(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with pytest.raises(UsageError, match="Another aar batch works in"):
        Journal(tmp_path)
    journal.close()
    Journal(tmp_path).close()


def test_what_was_not_run_is_open_and_what_failed_only_when_asked_for(tmp_path: Path) -> None:
    tasks = [BatchTask(id=name, prompt=name) for name in ("a", "b", "c", "d")]
    journal = Journal(tmp_path)
    for task, status in zip(tasks, ("done", "failed", "not_run"), strict=False):
        journal.end(
            TaskResult.model_validate({**done(task.id).model_dump(), "status": status, "digest": task.digest})
        )
    assert [task.id for task in journal.open_tasks(tasks, again=False)] == ["c", "d"]
    assert [task.id for task in journal.open_tasks(tasks, again=True)] == ["b", "c", "d"]
    journal.write_tables(tasks, "tasks.jsonl")
    journal.close()
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == ["a", "b", "c"]
    assert "1 done, 1 failed, 2 not done of 4" in (tmp_path / "results.md").read_text()


@given(st.text(max_size=200))
def test_no_answer_breaks_out_of_its_cell(text: str) -> None:
    page = markdown([done("a").model_copy(update={"text": text, "title": text})], 1, "tasks")
    row = page.splitlines()[-1]
    assert len(page.splitlines()) == 7
    assert row.replace("\\\\", "").replace("\\|", "").count("|") == 10
