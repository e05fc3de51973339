"""What checkpoints of other tools of this field are known to fail at, and work that other tools destroyed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.checkpoints.support import bash, git, store_for, tree, world_of, write
from tests.policy.support import check

ENGINES = pytest.mark.parametrize("engine", ["plain", "git"])


def busy_repository(root: Path) -> Path:
    """Make a repository with staged, changed, stashed and untracked work in it."""
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    for name in ("committed.txt", "staged.txt", "changed.txt"):
        (root / name).write_text("first\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    (root / "changed.txt").write_text("put aside\n")
    git(root, "stash")
    (root / "staged.txt").write_text("staged\n")
    git(root, "add", "staged.txt")
    (root / "changed.txt").write_text("not committed\n")
    (root / "new.txt").write_text("never added\n")
    return root


def facts_of(root: Path) -> list[str]:
    """Return what git knows: refs, index, stash, state."""
    asked = (["for-each-ref"], ["ls-files", "--stage"], ["stash", "list"], ["status", "--porcelain"],
             ["count-objects"], ["config", "--list", "--local"])  # fmt: skip
    return [git(root, *words) for words in asked]


@ENGINES
async def test_refs_index_and_stash_of_the_user_are_the_same_after_checkpoints_and_undo(
    tmp_path: Path, engine: str
) -> None:
    root = busy_repository(tmp_path / "w")
    before, start = facts_of(root), tree(root)
    async with world_of(root, [write("new.txt", "other\n"), "Done."], engine) as (world, undo, checkpoints):
        await world.run()
        await checkpoints.aclose()
        assert (await undo.undo()).done
    assert facts_of(root) == before
    assert tree(root) == start
    assert git(root, "fsck", "--strict") == ""


@pytest.mark.parametrize(
    ("engine", "command"),
    [("plain", "git reset -q --hard"), ("git", "git checkout -q -- . && git clean -fdq"),
     ("plain", "git stash -q -u && git stash drop -q"), ("git", "rm -rf -- *"),
     ("plain", "find . -name '*.txt' -delete; : > src/deep.py")],
)  # fmt: skip
async def test_work_that_was_never_committed_comes_back_after_a_program_destroyed_it(
    tmp_path: Path, engine: str, command: str
) -> None:
    root = busy_repository(tmp_path / "w")
    (root / "src").mkdir()
    (root / "src" / "deep.py").write_text("untracked = True\n")
    (root / "wreck.sh").write_text(f"{command}\n")  # as a line it would be a hard stop
    start = tree(root)
    async with world_of(root, [bash("sh wreck.sh"), "Oh."], engine) as (world, undo, checkpoints):
        await world.run()
        await checkpoints.aclose()
        assert tree(root) != start
        report = await undo.undo(scope="files")
        assert report.done
        assert not report.problems
    assert tree(root) == start


@ENGINES
async def test_many_checkpoints_of_a_large_workspace_take_little_more_room_than_one(
    tmp_path: Path, engine: str
) -> None:
    root = tmp_path / "w"
    root.mkdir()
    for number in range(20):
        (root / f"big-{number}").write_bytes(os.urandom(50_000))
    with store_for(root, tmp_path / "kept", engine) as store:
        await store.capture("manual")
        one = _size(tmp_path / "kept")
        for number in range(5):
            (root / "small.txt").write_text(f"{number}\n")
            await store.capture("manual")
        assert len(store.list()) == 6
        assert _size(tmp_path / "kept") < 1.2 * one
        for number in range(3):
            (root / f"big-{number}").write_bytes(os.urandom(50_000))
            await store.capture("manual")
        report = await store.gc(quota_bytes=1_100_000)
        assert report.bytes_after <= 1_100_000 < report.bytes_before


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "command",
    ["rm -rf /", "rm -rf ~", "rm -rf .", "rm -rf .git", "git reset --hard HEAD~3", "git clean -fdx",
     "git push --force origin main", "cd src && rm -rf ../.git", "sh -c 'rm -rf /'", "dd if=/dev/zero of=/dev/sda"],
)  # fmt: skip
def test_what_destroyed_the_work_of_others_is_never_run_unasked(tmp_path: Path, command: str) -> None:
    asked = check(tmp_path, command, "unsafe", allow=["bash(*)"])
    assert (asked.decision, asked.hard_stop) == ("ask", True)
    assert check(tmp_path, command, "unsafe", allow=["bash(*)"], headless=True).decision == "deny"
