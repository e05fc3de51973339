"""What keeps protected paths: comparison and masks, on real files (SECURITY T4, T27)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aar.config.schema import SandboxConfig
from aar.protocol.ports import SpawnRequest
from aar.safety.files import WorkspaceFiles
from aar.safety.sandbox.base import Limits, Plan
from aar.safety.sandbox.guard import MAX_FILE_BYTES, Guard, Keeper
from aar.safety.sandbox.layout import Layout, protect
from aar.safety.sandbox.masks import MASK_MODE, Masks, is_mask
from aar.safety.sandbox.secrets import protected_paths
from aar.safety.spawn import ProcessSpawner
from tests.sandbox.conftest import git
from tests.spawn.conftest import WALLS, raise_wall, shell
from tests.spawn.test_processes import pids_in


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = (tmp_path / "root").resolve()
    folder.mkdir()
    return folder


@pytest.fixture
def aside(tmp_path: Path) -> Path:
    return tmp_path / "aside"


def guard(root: Path, aside: Path, *names: str) -> Guard:
    return Guard(Keeper(), root, [root / name for name in names], aside)


# --- comparison ---


def test_a_change_is_undone_told_and_kept_aside(root: Path, aside: Path) -> None:
    (root / "AGENTS.md").write_text("mine")
    (root / "AGENTS.md").chmod(0o640)
    watch = guard(root, aside, "AGENTS.md")
    (root / "AGENTS.md").write_text("theirs")
    (notice,) = watch.undo()
    assert "AGENTS.md" in notice
    assert (root / "AGENTS.md").read_text() == "mine"
    assert (root / "AGENTS.md").stat().st_mode & 0o777 == 0o640
    (kept,) = aside.iterdir()
    assert kept.read_text() == "theirs"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert watch.undo() == ()


@pytest.mark.parametrize("kind", ["file", "folder", "full folder", "link", "pipe"])
def test_what_was_made_is_removed_whatever_it_is(root: Path, aside: Path, kind: str) -> None:
    watch = guard(root, aside, ".claude")
    made = root / ".claude"
    if kind == "file":
        made.write_text("x")
    elif kind == "link":
        made.symlink_to("/etc")
    elif kind == "pipe":
        os.mkfifo(made)
    else:
        made.mkdir()
        if kind == "full folder":
            (made / "deep").mkdir()
            (made / "deep" / "settings.json").write_text("{}")
    assert watch.undo()
    assert not os.path.lexists(made)
    assert Path("/etc/passwd").exists()


def test_what_was_removed_comes_back(root: Path, aside: Path) -> None:
    (root / ".husky" / "_").mkdir(parents=True)
    (root / ".husky" / "pre-commit").write_text("true\n")
    (root / ".husky" / "pre-commit").chmod(0o755)
    (root / ".husky" / "link").symlink_to("pre-commit")
    watch = guard(root, aside, ".husky")
    (root / ".husky").rename(root / "gone")
    assert watch.undo()
    assert (root / ".husky" / "pre-commit").read_text() == "true\n"
    assert (root / ".husky" / "pre-commit").stat().st_mode & 0o777 == 0o755
    assert os.readlink(root / ".husky" / "link") == "pre-commit"
    assert (root / ".husky" / "_").is_dir()


def test_a_mode_alone_counts_a_time_stamp_does_not(root: Path, aside: Path) -> None:
    (root / "hook").write_text("x")
    (root / "hook").chmod(0o644)
    watch = guard(root, aside, "hook")
    os.utime(root / "hook", (1, 1))
    assert watch.undo() == ()
    (root / "hook").chmod(0o755)
    assert watch.undo()
    assert (root / "hook").stat().st_mode & 0o777 == 0o644


def test_a_folder_swapped_for_a_link_leads_the_repair_nowhere(
    root: Path, aside: Path, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "workflows").write_text("precious")
    (root / ".github").mkdir()
    watch = guard(root, aside, ".github/workflows")
    (root / ".github").rename(root / "old")
    (root / ".github").symlink_to(victim)
    watch.undo()
    assert (victim / "workflows").read_text() == "precious"
    assert sorted(path.name for path in victim.iterdir()) == ["workflows"]


def test_aars_own_change_is_accepted(root: Path, aside: Path) -> None:
    watch = guard(root, aside, "AGENTS.md")
    (root / "AGENTS.md").write_text("approved")
    watch.accept(root / "AGENTS.md")
    assert watch.undo() == ()
    (root / "AGENTS.md").write_text("changed after that")
    assert watch.undo()
    assert (root / "AGENTS.md").read_text() == "approved"


def test_a_file_too_large_to_keep_is_told_when_it_changes(root: Path, aside: Path) -> None:
    (root / "big").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    watch = guard(root, aside, "big")
    assert watch.undo() == ()
    with (root / "big").open("ab") as file:
        file.write(b"y")
    (notice,) = watch.undo()
    assert "big" in notice
    assert "too large" in notice


def test_odd_names_are_shown_harmless(root: Path, aside: Path) -> None:
    watch = guard(root, aside, ".claude")
    (root / ".claude").mkdir()
    (root / ".claude" / "a\n\x1b[31mb").write_text("x")
    notices = watch.undo()
    assert notices
    assert all(notice.isprintable() for notice in notices)


def test_git_may_write_its_config_but_nothing_that_executes(root: Path, aside: Path) -> None:
    git("init", "-q", cwd=root)
    watch = guard(root, aside, ".git/config", ".git/hooks")
    git("remote", "add", "origin", "https://example.org/a.git", cwd=root)
    assert watch.undo() == ()
    git("config", "core.hooksPath", "/tmp/x", cwd=root)
    (notice,) = watch.undo()
    assert ".git/config" in notice
    assert "hooksPath" not in (root / ".git" / "config").read_text()


# --- masks ---


def test_a_mask_lasts_as_long_as_somebody_uses_it(root: Path) -> None:
    masks = Masks()
    first = masks.acquire([root / ".claude"])
    second = masks.acquire([root / ".claude"])
    assert first == second == (root / ".claude",)
    assert is_mask(root / ".claude")
    masks.release(first)
    assert is_mask(root / ".claude")
    masks.release(second)
    assert not (root / ".claude").exists()


def test_a_mask_of_another_aar_is_left_to_it(root: Path) -> None:
    mine, theirs = Masks(), Masks()
    held = theirs.acquire([root / ".claude"])
    mine.release(mine.acquire([root / ".claude"]))
    assert is_mask(root / ".claude")
    theirs.release(held)
    assert not (root / ".claude").exists()


def test_a_mask_that_a_killed_aar_left_behind_is_taken_over_and_removed(root: Path) -> None:
    (root / ".claude").mkdir()
    (root / ".claude").chmod(MASK_MODE)
    masks = Masks()
    masks.release(masks.acquire([root / ".claude"]))
    assert not (root / ".claude").exists()


@pytest.mark.parametrize("kind", ["file", "folder", "link", "full"])
def test_what_the_user_has_is_no_mask(root: Path, kind: str) -> None:
    place = root / "AGENTS.md"
    if kind == "file":
        place.write_text("x")
    elif kind == "link":
        place.symlink_to(root)
    else:
        place.mkdir()
        if kind == "full":
            (place / "x").touch()
            place.chmod(MASK_MODE)
    masks = Masks()
    assert masks.acquire([place]) == ()
    assert os.path.lexists(place)


def test_a_lifted_mask_makes_room_and_is_not_removed_twice(root: Path) -> None:
    masks = Masks()
    held = masks.acquire([root / ".github", root / "AGENTS.md"])
    masks.lift(root / ".github" / "workflows")
    assert not (root / ".github").exists()
    (root / ".github").mkdir()
    masks.release(held)
    assert (root / ".github").is_dir()
    assert not (root / "AGENTS.md").exists()


# --- both, as the spawner uses them ---


async def test_an_approved_write_stays_although_commands_run(root: Path) -> None:
    for wall in WALLS:
        git("init", "-q", cwd=root)
        spawner = raise_wall(ProcessSpawner(root, SandboxConfig(mode=wall)))
        try:
            files = WorkspaceFiles(root, changing=spawner.own_change)
            argv = ("/bin/sh", "-c", "echo $$ >> ready; while [ ! -e stop ]; do sleep 0.02; done")
            limited = await spawner.start(SpawnRequest(argv, root, timeout_s=20))
            lasting = await spawner.start(SpawnRequest(argv, root))
            await pids_in(root / "ready", 2)
            files.write_bytes("AGENTS.md", b"approved")
            files.write_bytes(".github/workflows/ci.yml", b"on: push")
            (root / "stop").touch()
            results = [await limited.wait(), await lasting.wait()]
        finally:
            spawner.close()
        assert [result.notices for result in results] == [(), ()]
        assert (root / "AGENTS.md").read_bytes() == b"approved"
        assert (root / ".github/workflows/ci.yml").read_bytes() == b"on: push"
        for name in ("AGENTS.md", ".github/workflows/ci.yml", "stop", "ready"):
            (root / name).unlink()


@pytest.mark.parametrize("wall", WALLS)
async def test_what_was_unlocked_stays_although_other_commands_end(root: Path, wall: str) -> None:
    git("init", "-q", cwd=root)
    spawner = raise_wall(ProcessSpawner(root, SandboxConfig(mode=wall)))  # type: ignore[arg-type]
    unlocked = (root / "AGENTS.md", root / ".git/hooks/pre-commit", root / ".claude/hooks/a.sh")
    write = "mkdir -p .git/hooks .claude/hooks; for f in AGENTS.md .git/hooks/pre-commit .claude/hooks/a.sh; do echo yes > $f; done"
    other = "echo evil > .git/hooks/post-commit; echo evil > .claude/settings.json"
    argv = ("/bin/sh", "-c", "echo $$ >> ready; while [ ! -e stop ]; do sleep 0.02; done")
    try:
        waiting = [await spawner.start(SpawnRequest(argv, root, timeout_s=limit)) for limit in (20, None)]
        await pids_in(root / "ready", 2)
        done = await shell(spawner, f"{write}; {other}", root, timeout_s=20, writable=unlocked)
        (root / "stop").touch()
        results = [await process.wait() for process in waiting]
    finally:
        spawner.close()
    assert [path.read_text() for path in unlocked] == ["yes\n"] * 3, done.output
    assert [result.notices for result in results] == [(), ()]
    assert sorted(notice.partition(" ")[0] for notice in done.notices) == [
        ".claude/settings.json",
        ".git/hooks/post-commit",
    ]
    assert not (root / ".git/hooks/post-commit").exists()
    assert not (root / ".claude/settings.json").exists()


async def test_fences_follow_what_appears_between_commands(root: Path) -> None:
    git("init", "-q", cwd=root)
    spawner = raise_wall(ProcessSpawner(root, SandboxConfig(mode="bubblewrap")))
    try:
        await shell(spawner, "true", root, timeout_s=10)
        (root / "AGENTS.md").write_text("new")
        (root / ".git/modules/sub/hooks").mkdir(parents=True)
        (root / ".git/modules/sub/HEAD").write_text("ref: refs/heads/main\n")
        command = "echo evil > AGENTS.md; echo evil > .git/modules/sub/hooks/post-commit"
        result = await shell(spawner, command, root, timeout_s=10)
        assert result.output.count(b"Read-only file system") == 2
        (root / "AGENTS.md").unlink()
        result = await shell(spawner, "echo evil > AGENTS.md", root, timeout_s=10)
        assert result.notices
        assert not (root / "AGENTS.md").exists()
    finally:
        spawner.close()


def test_the_state_of_a_layout_changes_with_what_it_depends_on(root: Path, tmp_path: Path) -> None:
    plan = Plan(root, (), tmp_path / "t", tmp_path, (), protected_paths(root, tmp_path, ()))
    layout = Layout(plan)
    states = [layout.state(())]

    def step(change: object) -> None:
        assert layout.state(()) != states[-1], change
        states.append(layout.state(()))

    assert layout.state(()) == states[0]
    step((root / "main.py").write_text("x"))
    step((root / "AGENTS.md").write_text("x"))
    step((root / ".github").mkdir())
    step((root / ".git" / "hooks").mkdir(parents=True))
    step((root / ".git" / "modules").mkdir())
    step((root / ".git" / "modules" / "sub").mkdir())
    step((root / "AGENTS.md").unlink())
    (root / "main.py").write_text("other")
    assert layout.state(()) == states[-1]


def test_short_commands_get_masks_for_git_hooks_only(root: Path, tmp_path: Path) -> None:
    (root / "main.py").touch()
    (root / ".git").mkdir()
    plan = Plan(root, (), tmp_path / "t", tmp_path, (), protected_paths(root, tmp_path, ()))
    short, lasting = protect(plan, Limits()), protect(plan, Limits(lasting=True))
    assert short.absent == [root / ".git" / "hooks"]
    assert {root / "AGENTS.md", root / ".github/workflows", root / ".claude"} <= set(short.guarded)
    assert {root / "AGENTS.md", root / ".github", root / ".claude"} <= set(lasting.absent)
