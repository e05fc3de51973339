"""Agents in work trees of their own: what they see, what their walls hold, and how their changes come back."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from aar.config.front_matter import read_document
from aar.orchestration.profiles import Profile, profile_of
from aar.protocol.events import Approval, ApprovalRequest
from aar.protocol.state import StopReason
from aar.runtime.work_trees import kept_trees
from aar.transports.cli.doctor import examine
from tests.support.fakes import Turn, call, no_tasks_left
from tests.support.minds import Ask, Place, place
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("clean_environment")
FILES = {"a.txt": "one\ntwo\nthree\n", "b.txt": "b\n", ".gitignore": "left/\n"}


def is_child(ask: Ask) -> bool:
    return "You work for another agent" in ask.system


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ("git", "-c", "user.name=t", "-c", "user.email=t@t", *words),
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


@asynccontextmanager
async def project(
    tmp_path: Path, think: Callable[[Ask], Turn | str], **options: Any
) -> AsyncGenerator[Place]:
    """A repository with a change that is not committed."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    (folder / "b.txt").write_text("b, not committed\n")
    async with place(tmp_path, think, **options) as here:
        yield here


def child_steps(
    *steps: Any, main: Any = None, last: str = "The work is done."
) -> Callable[[Ask], Turn | str]:
    """A main model that gives one task, and a child that makes ``steps``."""
    calls = main or [call("task", prompt="go", agent="coder", worktree=True)]

    def think(ask: Ask) -> Turn | str:
        todo = steps if is_child(ask) else calls
        made = len(ask.results)
        if made < len(todo):
            return Turn(calls=[todo[made]])
        return last if is_child(ask) else "Done."

    return think


def report(here: Place) -> str:
    return here.of("tool_result", agent="main")[-1].output


def trees(root: Path) -> list[str]:
    return [line for line in git(root, "worktree", "list").splitlines() if "aar-agent-" in line]


class Person:
    """Somebody who answers in order, and remembers what was asked."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[ApprovalRequest] = []

    async def decide(self, request: ApprovalRequest) -> Approval:
        self.asked.append(request)
        answer = self.answers.pop(0) if self.answers else "allow"
        return Approval.model_validate(
            {
                "call_id": request.call_id,
                "decision": "allow" if answer == "allow" else "reject",
                "by": "user",
                "feedback": None if answer == "allow" else answer,
            }
        )


async def test_changes_come_back_as_one_edit_with_a_checkpoint_and_the_tree_is_gone(tmp_path: Path) -> None:
    steps = [
        call("bash", command="pwd; cat b.txt; echo new > made.txt; : > 'empty ä'; rm .gitignore"),
        call("edit_file", path="a.txt", old_text="two", new_text="TWO"),
    ]
    async with project(tmp_path, child_steps(*steps)) as here:
        result = await here.run()
        root = here.root
        [start, end] = here.of("subagent")
        assert start.work_tree != str(root)
        first = here.of("tool_result", agent=start.agent_id)[0]
        assert first.output == f"{start.work_tree}\nb, not committed"
        assert (root / "a.txt").read_text() == "one\nTWO\nthree\n"
        assert (root / "made.txt").read_text() == "new\n"
        assert (root / "empty ä").read_bytes() == b""
        assert not (root / ".gitignore").exists()
        said = report(here)
        assert "Its changes are in the project now: .gitignore, a.txt, empty ä, made.txt (+2 -2)." in said
        assert end.stop_reason is StopReason.END_TURN
        assert sorted(change.path for change in result.file_changes) == [
            ".gitignore",
            "a.txt",
            "empty ä",
            "made.txt",
        ]
        edits = [e for e in here.of("tool_result") if e.file_changes]
        assert [e.tool_name for e in edits] == ["apply_patch"]
        assert edits[0].agent_id == start.agent_id
        [checkpoint] = here.of("checkpoint", agent=start.agent_id)
        assert checkpoint.checkpoint_id
        assert not Path(start.work_tree).exists()
        assert trees(root) == []
        assert "aar-agent" not in git(root, "for-each-ref")
    assert no_tasks_left() == []


async def test_the_wall_holds_the_tree_alone_and_nothing_wider_is_offered(tmp_path: Path) -> None:
    project_file = tmp_path / "project" / "a.txt"
    steps = [
        call(
            "bash",
            command=f"echo x > {project_file}; echo y > here.txt; cat here.txt; git status -s; git branch other",
        ),
        call("write_file", path=str(project_file), content="x"),
        call("task", prompt="below", agent="tester"),
    ]
    seen: list[Ask] = []
    think = child_steps(*steps)

    def watched(ask: Ask) -> Turn | str:
        if is_child(ask):
            seen.append(ask)
            if ask.prompt == "below":
                return Turn(calls=[call("bash", command=f"pwd; rm {project_file}")]) if ask.first else "ok"
        return think(ask)

    async with project(tmp_path, watched) as here:
        await here.run()
        assert project_file.read_text() == FILES["a.txt"]
        start = here.of("subagent")[0]
        by_bash, by_tool, *_ = here.of("tool_result", agent=start.agent_id)
        assert "y\n" in by_bash.output
        assert "?? here.txt" in by_bash.output
        assert "other" not in git(here.root, "branch")
        assert by_tool.is_error
        below = here.of("subagent")[1]
        [output] = [e.output for e in here.of("tool_result", agent=below.agent_id)]
        assert output.startswith(start.work_tree)
        assert start.work_tree in seen[0].system
        assert (here.root / "here.txt").read_text() == "y\n"


async def test_a_person_reviews_the_changes_and_a_no_keeps_them_for_the_next_try(tmp_path: Path) -> None:
    person = Person("Keep two as it is.")
    edit = call("edit_file", path="a.txt", old_text="two", new_text="TWO")
    places: list[Place] = []

    def think(ask: Ask) -> Turn | str:
        if is_child(ask):
            if "again" not in ask.said:
                return Turn(calls=[edit]) if ask.first else "Changed."
            if "2" not in Path(places[0].of("subagent")[0].work_tree, "a.txt").read_text():
                return Turn(calls=[call("edit_file", path="a.txt", old_text="TWO", new_text="2")])
            return "Changed again."
        if ask.first:
            return Turn(calls=[call("task", prompt="go", agent="coder", worktree=True)])
        if len(ask.results) == 1:
            return Turn(calls=[call("task", prompt="again", resume=places[0].of("subagent")[0].agent_id)])
        return "Done."

    async with project(tmp_path, think, mode="ask", interactive=True) as here:
        here.agent.executor.approver = person
        places.append(here)
        await here.run()
        refused, merged = [e.output for e in here.of("tool_result", agent="main")]
        assert "were not let into the project" in refused
        assert "Keep two as it is." in refused
        assert f"resume {here.of('subagent')[0].agent_id}" in refused
        assert "are in the project now: a.txt (+1 -1)" in merged
        assert (here.root / "a.txt").read_text() == "one\n2\nthree\n"
        merges = [e for e in person.asked if e.tool_name == "apply_patch"]
        assert "+TWO" in (merges[0].diff or "")
        assert "+2" in (merges[1].diff or "")
        assert merges == person.asked
        [notice] = [e for e in here.of("notice") if e.code == "work_tree"]
        assert "git worktree remove --force" in notice.message
        assert trees(here.root) == []


async def test_changes_that_conflict_are_told_with_what_they_were_and_kept(tmp_path: Path) -> None:
    edit = call("edit_file", path="a.txt", old_text="two", new_text="child")
    here_ref: list[Place] = []

    def think(ask: Ask) -> Turn | str:
        if is_child(ask):
            if ask.first:
                return Turn(calls=[edit])
            (here_ref[0].root / "a.txt").write_text("one\nmeanwhile\nthree\n")
            return "Changed."
        return Turn(calls=[call("task", prompt="go", worktree=True)]) if ask.first else "Done."

    async with project(tmp_path, think) as here:
        here_ref.append(here)
        await here.run()
        said = report(here)
        assert "conflict with the project, which was changed meanwhile in the same lines of a.txt" in said
        assert "a.txt" in said
        assert "+child" in said
        assert (here.root / "a.txt").read_text() == "one\nmeanwhile\nthree\n"
        folder = Path(here.of("subagent")[0].work_tree)
        assert (folder / "a.txt").read_text() == "one\nchild\nthree\n"
        assert "+child" in git(folder, "diff", "HEAD")
        git(here.root, "worktree", "remove", "--force", str(folder))


async def test_two_agents_change_one_file_side_by_side_and_both_changes_arrive(tmp_path: Path) -> None:
    both = asyncio.Event()
    begun: list[str] = []

    def think(ask: Ask) -> Turn | str:
        if is_child(ask):
            old, new = ask.prompt.split()
            if not ask.first:
                return "ok"
            begun.append(old)
            if len(begun) == 2:
                both.set()
            return Turn(calls=[call("edit_file", path="a.txt", old_text=old, new_text=new)], gate=both)
        if ask.first:
            return Turn(calls=[call("task", prompt=text, worktree=True) for text in ("one 1", "three 3")])
        return "Done."

    async with project(tmp_path, think) as here:
        await here.run()
        assert (here.root / "a.txt").read_text() == "1\ntwo\n3\n"


async def test_a_cancel_keeps_what_was_done_and_removes_a_tree_without_changes(tmp_path: Path) -> None:
    def think(ask: Ask) -> Turn | str:
        if is_child(ask):
            if ask.prompt == "changes" and ask.first:
                return Turn(calls=[call("bash", command="echo x > made.txt; sleep 1000 & echo begun")])
            return Turn(hang=True)
        calls = [call("task", prompt=text, worktree=True) for text in ("changes", "nothing")]
        return Turn(calls=calls) if ask.first else "Done."

    async with project(tmp_path, think) as here:
        running = asyncio.ensure_future(here.run())
        await until(lambda: here.mind.open == 2 and any(e.exit_code == 0 for e in here.of("tool_result")))
        assert kept_trees(here.root) == [], "agents work in them"
        here.agent.cancel()
        await running
        paths = {e.agent_id: Path(e.work_tree) for e in here.of("subagent") if e.action == "start"}
        kept = [folder for folder in paths.values() if folder.exists()]
        assert [(folder / "made.txt").read_text() for folder in kept] == ["x\n"]
        assert not (here.root / "made.txt").exists()
        [notice] = [e for e in here.of("notice") if e.code == "work_tree"]
        assert str(kept[0]) in notice.message
        assert kept_trees(here.root) == kept
        (check,) = [check for check in examine({"cwd": here.root}) if check.name == "work trees"]
        assert (check.status, f"remove --force {kept[0]}`" in check.fix) == ("warn", True)
        git(here.root, "worktree", "remove", "--force", str(kept[0]))
        assert kept_trees(here.root) == []
    assert no_tasks_left() == []


async def test_without_a_repository_the_caller_is_told_what_is_missing(tmp_path: Path) -> None:
    async with place(tmp_path, child_steps()) as here:
        await here.run()
        assert "need a git repository" in report(here)


async def test_links_and_bytes_are_not_merged_but_kept(tmp_path: Path) -> None:
    steps = [call("bash", command="ln -s /etc/passwd link; printf '\\000\\377' > data.bin")]
    async with project(tmp_path, child_steps(*steps)) as here:
        await here.run()
        assert "are not in the project: a patch cannot change what is no text: data.bin. The" in report(here)
        assert not (here.root / "link").is_symlink()
        git(here.root, "worktree", "remove", "--force", here.of("subagent")[0].work_tree)


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [("worktree: true", True), ("isolation: worktree", True), ("worktree: false", False), ("", False)],
)
def test_the_file_of_an_agent_asks_for_a_work_tree(tmp_path: Path, lines: str, wanted: bool) -> None:
    file = tmp_path / "x.md"
    file.write_text(f"---\nname: x\ndescription: y\n{lines}\n---\nDo it.\n")
    document = read_document(file)
    assert document is not None
    profile = profile_of(document)
    assert isinstance(profile, Profile)
    assert profile.worktree is wanted
    assert profile.unused == ()
