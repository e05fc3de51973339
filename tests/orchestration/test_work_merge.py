"""Changes of a work tree fitted to what became of the project meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from aar.orchestration.merge_back import left_out, problem_of
from aar.orchestration.work_merge import fit
from aar.orchestration.work_places import Changes, Git, Places, Project, snapshot
from tests.batch.support import git, repository, spawner

pytestmark = pytest.mark.usefixtures("clean_environment")
Change = Callable[[Path], object]
BASE = {"a.txt": "1\n2\n3\n4\n5\n", "gone.txt": "g\n", "run.sh": "one\ntwo\nthree\n", "d/x": "x\n"}


def write(name: str, text: str) -> Change:
    def change(root: Path) -> None:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)

    return change


def link(root: Path) -> None:
    (root / "a.txt").unlink()
    (root / "a.txt").symlink_to("run.sh")


def folder_to_file(root: Path) -> None:
    shutil.rmtree(root / "d")
    (root / "d").write_text("file\n")


async def fitted(tmp_path: Path, ours: list[Change], theirs: list[Change]) -> tuple[Changes, tuple[str, ...]]:
    project = repository(tmp_path / "project")
    for name, text in BASE.items():
        write(name, text)(project)
    work = tmp_path / "work"
    work.mkdir()
    with spawner(project) as run:
        here = Git(run, project)
        base = await snapshot(here, work, "refs/aar/x")
        places = Places(run, Project(project, "", "worktree", base), work)
        place = await places.make("one", "")
        for change in theirs:
            change(place.folder)
        changes = await places.changes(place)
        await places.remove(place)
        for change in ours:
            change(project)
        before = git(project, "status", "--porcelain")
        done = await fit(here, base, changes.tree)
    assert git(project, "status", "--porcelain") == before
    return done


async def test_what_both_changed_is_joined_with_its_modes_and_the_rest_is_taken(tmp_path: Path) -> None:
    changes, conflicts = await fitted(
        tmp_path,
        [
            write("a.txt", "1\n2\n3\n4\nfive\n"),
            lambda root: (root / "run.sh").chmod(0o755),
            write("same", "s\n"),
        ],
        [
            write("a.txt", "one\n2\n3\n4\n5\n"),
            write("run.sh", "one\ntwo\n3\n"),
            write("same", "s\n"),
            write("new/file", "n\n"),
            lambda root: (root / "gone.txt").unlink(),
            folder_to_file,
        ],
    )
    assert conflicts == ()
    assert changes.files == ("a.txt", "d", "d/x", "gone.txt", "new/file", "run.sh")
    assert "-1\n+one\n 2\n 3\n 4\n" in changes.text
    assert " five" not in changes.text.split("diff --git")[2]
    assert "new mode" not in changes.text, "what the user made executable stays so"


@pytest.mark.parametrize(
    ("ours", "theirs", "path"),
    [
        (write("a.txt", "1\nx\n3\n4\n5\n"), write("a.txt", "1\ny\n3\n4\n5\n"), "a.txt"),
        (write("a.txt", "other\n"), lambda root: (root / "a.txt").unlink(), "a.txt"),
        (write("new", "ours\n"), write("new", "theirs\n"), "new"),
        (write("a.txt", "1\n2\n3\n4\nfive\n"), link, "a.txt"),
        (write("d/y", "y\n"), folder_to_file, "d"),
        (write("e", "file\n"), write("e/f", "in a folder\n"), "e"),
    ],
    ids=["lines", "deleted", "both new", "link", "folder", "file"],
)
async def test_what_does_not_fit_is_a_conflict(
    tmp_path: Path, ours: Change, theirs: Change, path: str
) -> None:
    changes, conflicts = await fitted(tmp_path, [ours], [theirs])
    assert path in conflicts
    assert changes.patch == b""


async def test_what_an_edit_cannot_make_is_said(tmp_path: Path) -> None:
    def executable(root: Path) -> None:
        (root / "run.sh").chmod(0o755)

    alone, _ = await fitted(tmp_path, [], [executable])
    assert problem_of(alone) == "they are of modes alone; use chmod: run.sh"
    with_text = Changes(alone.patch + b"@@ -1 +1 @@\n-a\n+b\n")
    assert problem_of(with_text) == ""
    assert left_out(with_text.text) == "Not made executable here, as it was there: run.sh; use chmod."
    linked, _ = await fitted(tmp_path / "project", [], [link])
    assert problem_of(linked) == "links and repositories inside are not taken over: a.txt"


async def test_files_that_are_no_text_are_named(tmp_path: Path) -> None:
    def latin(root: Path) -> None:
        (root / "with space.txt").write_bytes(b"\xe4\n")

    changes, _ = await fitted(
        tmp_path,
        [],
        [lambda root: (root / "a.bin").write_bytes(b"\0\1"), latin, write("fine", "GIT binary patch\n")],
    )
    assert problem_of(changes) == "a patch cannot change what is no text: a.bin, with space.txt"
