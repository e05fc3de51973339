"""How tasks are done: some at a time, within a budget, once; in places that come from one state of the project."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from aar.config.paths import paths
from aar.memory.file_lock import try_lock
from aar.orchestration.batch import Batch, LocalDoer, open_project
from aar.orchestration.batch_child import ChildOptions, let_go, result_of_session
from aar.orchestration.batch_results import Begun, Journal, TaskResult
from aar.orchestration.batch_tasks import BatchTask
from aar.orchestration.work_places import Places, Project
from aar.protocol.errors import UsageError
from tests.batch.support import ToldDoer, done, git, repository, spawner
from tests.cli.support import aar, call, events, of_type, script, start, stored
from tests.support.waiting import wait_until

TASKS = [BatchTask(id=f"t{number}", prompt=f"Task {number}") for number in range(6)]


async def work(folder: Path, doer: ToldDoer, **more: Any) -> tuple[Batch, list[TaskResult]]:
    journal = Journal(folder)
    batch = Batch(TASKS, journal, doer, **more)
    try:
        return batch, await batch.run()
    finally:
        journal.close()


async def test_some_run_at_a_time_and_results_are_in_order(tmp_path: Path) -> None:
    doer = ToldDoer()
    _, results = await work(tmp_path, doer, jobs=3)
    assert doer.most == 3
    assert [item.id for item in results] == [task.id for task in TASKS]
    assert {item.attempts for item in results} == {1}


async def test_a_second_start_does_only_what_is_not_done(tmp_path: Path) -> None:
    gate = asyncio.Event()
    first = ToldDoer(gates={"t3": gate, "t4": gate})
    going = asyncio.create_task(work(tmp_path, first, jobs=2))
    while len(first.did) < 5:
        await asyncio.sleep(0)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    second = ToldDoer(seen={"t3": (done("t3"), 1.0), "t4": (None, 0.25)})
    _, results = await work(tmp_path, second, jobs=2)
    assert sorted(second.did) == [("t4", 2, None), ("t5", 1, None)]
    assert [item.attempts for item in results] == [1, 1, 1, 1, 2, 1]
    # What the attempt cost that was cut off is told too.
    assert results[4].cost_usd == 1.25
    third = ToldDoer()
    await work(tmp_path, third)
    assert third.did == []


async def test_all_together_stay_within_the_budget(tmp_path: Path) -> None:
    doer = ToldDoer()
    batch, results = await work(tmp_path, doer, jobs=2, budget=3.0)
    assert batch.out_of_money
    assert 3 <= len(results) < 6
    assert sum(item.cost_usd or 0 for item in results) <= 3.0
    later, results = await work(tmp_path, ToldDoer(), jobs=1, budget=100.0)
    assert not later.out_of_money
    assert len(results) == 6


async def test_a_failed_task_is_done_again_only_when_asked_for(tmp_path: Path) -> None:
    failed = done("t1").model_copy(update={"status": "failed", "exit_code": 1})
    await work(tmp_path, ToldDoer(results={"t1": failed}))
    quiet, loud = ToldDoer(), ToldDoer()
    await work(tmp_path, quiet)
    assert quiet.did == []
    _, results = await work(tmp_path, loud, again=True)
    assert loud.did == [("t1", 2, None)]
    assert (results[1].status, results[1].cost_usd) == ("done", 2.0)


async def test_a_work_tree_has_what_is_not_committed_and_leaves_the_project_alone(tmp_path: Path) -> None:
    root = repository(tmp_path / "project")
    before = git(root, "status", "--porcelain"), git(root, "log", "--oneline")
    (tmp_path / "work").mkdir()
    journal = Journal(root / "tasks.results")
    with spawner(root) as started:
        project = await open_project(started, journal, root / "pkg", tmp_path / "work", copy=False)
        (root / "new.txt").write_text("later\n")
        again = await open_project(started, journal, root / "pkg", tmp_path / "work", copy=False)
        assert again == project
        places = Places(started, project, tmp_path / "work")
        place = await places.make("a-1", "")
        assert place.cwd == place.folder / "pkg"
        assert (place.folder / "a.txt").read_text() == "one\nchanged\n"
        assert (place.folder / "new.txt").read_text() == "new\n"
        assert not (place.folder / "ignored.txt").exists()
        assert not (place.folder / "tasks.results").exists()
        assert (await places.changes(place)).files == ()
        (place.folder / "a.txt").unlink()
        (place.folder / "pkg/c.bin").write_bytes(b"\0\1")
        git(place.folder, "add", "-A")
        git(place.folder, "commit", "-qm", "the model commits")
        changes = await places.changes(place)
        await places.remove(place)
    journal.close()
    assert changes.files == ("a.txt", "pkg/c.bin")
    assert (changes.added, changes.removed) == (0, 2)
    assert (git(root, "status", "--porcelain"), git(root, "log", "--oneline")) == before
    assert len(git(root, "worktree", "list").splitlines()) == 1
    (tmp_path / "a.patch").write_bytes(changes.patch)
    git(root, "apply", str(tmp_path / "a.patch"))
    assert (root / "pkg/c.bin").read_bytes() == b"\0\1"


async def test_a_copy_has_ignored_files_but_not_the_results(tmp_path: Path) -> None:
    root = repository(tmp_path / "project")
    (tmp_path / "work").mkdir()
    out = root / "out"
    out.mkdir()
    with spawner(root) as started:
        places = Places(started, Project(root, "", "copy"), tmp_path / "work", out)
        place = await places.make("a-1", "")
        assert (place.folder / "ignored.txt").exists()
        assert not (place.folder / "out").exists()
        (place.folder / "ignored.txt").write_text("still ignored\n")
        (place.folder / "a.txt").write_text("two\n")
        changes = await places.changes(place)
        await places.remove(place)
        with pytest.raises(UsageError, match="no folder nowhere"):
            await places.make("b-1", "nowhere")
    assert changes.files == ("a.txt",)
    assert list((tmp_path / "work").iterdir()) == []
    assert (root / "a.txt").read_text() == "one\nchanged\n"


async def test_results_of_another_project_are_not_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    journal = Journal(tmp_path / "out")
    with spawner(tmp_path) as started:
        await open_project(started, journal, tmp_path / "one", tmp_path, copy=True)
        with pytest.raises(UsageError, match=r"has results of .*one"):
            await open_project(started, journal, tmp_path / "two", tmp_path, copy=True)
    journal.close()


def test_what_a_killed_run_came_to_is_read_from_its_session(project: Path, tmp_path: Path) -> None:
    aar("run", "--model", script(tmp_path / "m.json", "All done."), "do it", cwd=project)
    (file,) = stored()
    result, ended = result_of_session(file)
    assert (ended, result.status, result.text, result.steps) == (True, "done", "All done.", 1)
    lines = file.read_bytes().splitlines(keepends=True)
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(line for line in lines if b'"end_turn"' not in line or b'"state"' not in line))
    assert result_of_session(cut)[1] is False


def write_batch(folder: Path, count: int) -> tuple[Path, str]:
    """Write a file of tasks and a model that makes a file for each."""
    file = folder / "tasks.jsonl"
    file.write_text("".join(json.dumps({"id": f"t{n}", "prompt": f"Task {n}"}) + "\n" for n in range(count)))
    change = call("write_file", path="out.txt", content="made\n")
    return file, script(folder / "model.json", change, "All done.")


def completed() -> list[Path]:
    return [
        file
        for file in stored()
        if any(event.get("stop_reason") == "end_turn" for event in of_type(events(file), "state"))
    ]


def ends(journal: Path) -> int:
    """Return how many attempts are noted as ended."""
    return journal.read_bytes().count(b'"end"') if journal.exists() else 0


def kill_and_go_on(folder: Path, count: int, kills: int) -> list[dict[str, Any]]:
    """Kill a batch again and again in the middle, let it end, and return its results."""
    root = repository(folder / "project")
    file, model = write_batch(folder, count)
    words = ("batch", file, "--model", model, "--mode", "edit", "-j", "2")
    journal = folder / "tasks.results/journal.jsonl"
    for _ in range(kills):
        before = ends(journal)
        process = start(*words, cwd=root)
        wait_until(lambda: ends(journal) > before or process.poll() is not None, 60)  # noqa: B023
        assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    ran = aar(*words, cwd=root)
    assert ran.code == 0, ran.err
    assert git(root, "worktree", "list").count("\n") == 1
    assert "refs/aar" not in git(root, "for-each-ref")
    return [json.loads(line) for line in (folder / "tasks.results/results.jsonl").read_text().splitlines()]


def test_a_killed_batch_goes_on_and_does_nothing_twice(tmp_path: Path) -> None:
    results = kill_and_go_on(tmp_path, count=3, kills=1)
    assert [(item["id"], item["status"], item["files"]) for item in results] == [
        (f"t{number}", "done", ["out.txt"]) for number in range(3)
    ]
    assert len(completed()) == 3
    assert sorted(path.name for path in (tmp_path / "tasks.results/patches").iterdir()) == [
        "t0.patch",
        "t1.patch",
        "t2.patch",
    ]


@pytest.mark.slow
def test_forty_tasks_and_many_kills_do_nothing_twice(tmp_path: Path) -> None:
    results = kill_and_go_on(tmp_path, count=40, kills=10)
    assert len({item["id"] for item in results if item["status"] == "done"}) == 40
    assert len(completed()) == 40


async def test_a_begun_attempt_without_a_session_is_done_anew(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.begin(Begun(id="t0", digest=TASKS[0].digest, attempt=1, place="/nowhere/t0-1"))
    journal.close()
    doer = ToldDoer()
    _, results = await work(tmp_path, doer, jobs=1)
    assert doer.did[0] == ("t0", 2, None)
    assert results[0].attempts == 2


async def test_what_an_attempt_came_to_is_known_though_its_place_is_gone(tmp_path: Path) -> None:
    task, begun = TASKS[0], Begun(id="t0", digest=TASKS[0].digest, place=str(tmp_path / "work" / "t0-1"))
    journal = Journal(tmp_path / "out")
    journal.begin(begun)
    journal.keep_result(task, done(""))
    journal.close()
    journal = Journal(tmp_path / "out")
    with spawner(tmp_path) as made:
        places = Places(made, Project(tmp_path, "", "copy"), tmp_path / "work")
        doer = LocalDoer(made, places, journal, ChildOptions(cwd=tmp_path), paths())
        result, cost = await doer.recover(task, begun)
    assert result is not None
    assert (result.id, result.status, result.text, cost) == ("t0", "done", "Yes.", 1.0)
    journal.begin(begun)
    journal.close()
    journal = Journal(tmp_path / "out")
    assert journal.kept_result(task) is None, "what was begun anew has come to nothing yet"
    journal.close()


@pytest.mark.parametrize("named", ["", "here"])
async def test_no_folder_is_removed_because_a_journal_names_it(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt on a cluster has no place here, and a journal may come with a repository."""
    root, here = repository(tmp_path / "project"), tmp_path / "here"
    (tmp_path / "work").mkdir()
    (here / "project").mkdir(parents=True)
    monkeypatch.chdir(here)
    journal = Journal(tmp_path / "out")
    begun = Begun(id="t0", digest=TASKS[0].digest, place=str(here) if named else "")
    with spawner(root) as started:
        places = Places(started, Project(root, "", "copy"), tmp_path / "work")
        doer = LocalDoer(started, places, journal, ChildOptions(cwd=root), paths())
        assert await doer.recover(TASKS[0], begun) == (None, 0.0)
    journal.close()
    assert (here / "project").is_dir()


async def test_a_session_that_is_still_held_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "session.jsonl"
    file.write_text("")
    holder = os.open(file, os.O_RDONLY)
    assert try_lock(holder)
    waiting = asyncio.create_task(let_go(file))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    os.close(holder)
    await asyncio.wait_for(waiting, 60)
    await let_go(file)
    assert waiting.done()
