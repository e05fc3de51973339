"""Workspaces of every awkward kind: what is kept comes back byte for byte, the user's repository is not touched."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from aar.memory.checkpoints import CheckpointStore, Limits
from aar.protocol.errors import StorageError
from tests.checkpoints.support import git, store_for, tree

ENGINES = pytest.mark.parametrize("engine", ["plain", "git"])


async def back(store: CheckpointStore, wanted: str) -> dict[str, str]:
    """Bring a state back in whole; return the problems."""
    now = await store.peek()
    target, present = await store.state(wanted), await store.state(now)
    deltas = await store.compare(now, wanted)
    made, gone = set(target.empty) - set(present.empty), set(present.empty) - set(target.empty)
    _, problems, _ = await store.restore(deltas, made=tuple(made), gone=tuple(gone))
    return problems


def fingerprint(folder: Path) -> dict[str, str]:
    """Every file below ``folder`` with its content and time."""
    return {
        str(
            path.relative_to(folder)
        ): f"{hashlib.sha1(path.read_bytes()).hexdigest()} {path.stat().st_mtime_ns}"
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def repository(root: Path) -> Path:
    root.mkdir(parents=True)
    git(root, "init", "-q")
    (root / "tracked.txt").write_text("tracked\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    return root


@ENGINES
async def test_the_users_repository_is_not_touched_and_its_code_never_runs(
    tmp_path: Path, engine: str
) -> None:
    root = repository(tmp_path / "w")
    trap = tmp_path / "trap"
    program = tmp_path / "evil"
    program.write_text(f"#!/bin/sh\ntouch {trap}\ncat\n")
    program.chmod(0o755)
    for key in ("core.fsmonitor", "filter.f.clean", "filter.f.smudge", "core.sshCommand", "diff.external"):
        git(root, "config", key, str(program))
    git(root, "config", "core.autocrlf", "true")
    git(root, "config", "filter.f.required", "true")
    shutil.copy(program, root / ".git/hooks/pre-commit")
    (root / ".gitattributes").write_text("* text=auto eol=crlf ident filter=f working-tree-encoding=UTF-16\n")
    (root / "ends.txt").write_bytes(b"$Id$\r\nlf\nno end")
    (root / "staged.txt").write_text("staged")
    trap.unlink(missing_ok=True)
    before = fingerprint(root / ".git")
    start = tree(root)
    with store_for(root, tmp_path / "kept", engine) as store:
        first = await store.peek()
        for path in (root / "ends.txt", root / ".gitattributes", root / "tracked.txt"):
            path.unlink()
        (root / "staged.txt").write_bytes(b"\r\n")
        assert await back(store, first) == {}
    assert tree(root) == start
    assert fingerprint(root / ".git") == before
    assert not trap.exists()


@ENGINES
async def test_links_bits_empty_folders_and_odd_names_come_back(tmp_path: Path, engine: str) -> None:
    root = repository(tmp_path / "w")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("tracked.txt")
    (root / "dangling").symlink_to("/nowhere/at/all")
    (root / "e/m/p/t/y").mkdir(parents=True)
    (root / "full").mkdir()
    (root / "full/inner").mkdir()
    (root / "full/file").write_bytes(b"")
    for name in (
        "  spaces ",
        "new\nline",
        "tab\t",
        "-dash",
        ":(top)x",
        "*?[a]",
        "ü日本",
        "back\\slash",
        "GIT~1",
    ):
        (root / name).write_text(name)
    (root / os.fsdecode(b"latin-\xff")).write_bytes(b"\xff\x00\xfe")
    start = tree(root)
    with store_for(root, tmp_path / "kept", engine) as store:
        first = await store.peek()
        assert (await store.state(first)).skipped == {}
        for path in list(root.iterdir()):
            if path.name == ".git":
                continue
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        (root / "link").mkdir()
        (root / "link/below").write_text("a folder where a link was")
        (root / "full").write_text("a file where a folder was")
        (root / "e").symlink_to(tmp_path)
        second = await store.peek()
        assert await back(store, first) == {}
        assert tree(root) == start
        assert await back(store, second) == {}
        assert (root / "link/below").is_file()
        assert (root / "full").is_file()
        assert (root / "e").is_symlink()


@ENGINES
async def test_repositories_inside_and_submodules_are_kept_too(tmp_path: Path, engine: str) -> None:
    other = repository(tmp_path / "other")
    root = repository(tmp_path / "w")
    git(root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "sub")
    repository(root / "nested")
    repository(root / "nested/deep/er")
    (root / "fresh").mkdir()
    git(root / "fresh", "init", "-q")
    (root / "fresh/new.txt").write_text("in a repository without commits")
    trap = tmp_path / "trap"
    for inner in ("nested", "fresh"):
        git(root / inner, "config", "core.fsmonitor", f"touch {trap}; false")
    trap.unlink(missing_ok=True)
    start = tree(root)
    with store_for(root, tmp_path / "kept", engine) as store:
        first = await store.peek()
        for path in ("sub/tracked.txt", "nested/tracked.txt", "nested/deep/er/tracked.txt", "fresh/new.txt"):
            (root / path).write_text("destroyed")
        (root / "nested/extra").write_text("x")
        changed = [delta.path for delta in await store.compare(first, await store.peek())]
        assert changed == [
            "fresh/new.txt", "nested/deep/er/tracked.txt", "nested/extra", "nested/tracked.txt", "sub/tracked.txt",
        ]  # fmt: skip
        assert await back(store, first) == {}
        assert tree(root) == start
    assert not trap.exists()


@ENGINES
async def test_ignored_files_are_left_alone_and_a_file_ignored_later_is_still_known(
    tmp_path: Path, engine: str
) -> None:
    root = repository(tmp_path / "w")
    (root / ".gitignore").write_text("*.log\nbuild/\n!keep.log\n")
    (root / "x.log").write_text("ignored")
    (root / "keep.log").write_text("kept")
    (root / "build").mkdir()
    (root / "build/o").write_text("ignored")
    (root / ".git/info").mkdir(exist_ok=True)
    (root / ".git/info/exclude").write_text("private\n")
    (root / "private").write_text("mine")
    (root / "data.csv").write_text("1\n")
    with store_for(root, tmp_path / "kept", engine) as store:
        first = await store.peek()
        (root / ".gitignore").write_text("*.csv\n*.log\nbuild/\n")
        (root / "data.csv").write_text("2\n")
        changed = [delta.path for delta in await store.compare(first, await store.peek())]
        assert changed == [".gitignore", "data.csv"]
        (root / "build/o").write_text("changed")
        assert await back(store, first) == {}
    assert (root / "data.csv").read_text() == "1\n"
    assert (root / "build/o").read_text() == "changed"
    assert (root / "private").read_text() == "mine"


@ENGINES
async def test_what_cannot_be_kept_is_told_and_never_touched(tmp_path: Path, engine: str) -> None:
    root = repository(tmp_path / "w")
    (root / "huge").write_bytes(b"x" * 2000)
    os.mkfifo(root / "pipe")
    (root / "grows").write_text("small")
    (root / "secret").write_text("not readable")
    (root / "secret").chmod(0)
    with store_for(root, tmp_path / "kept", engine, limits=Limits(1000, 50)) as store:
        skipped = (await store.state(await store.peek())).skipped
        assert "larger" in skipped["huge"]
        assert skipped.get("pipe") == (None if engine == "git" else "no regular file")
        if not os.access(root / "secret", os.R_OK):  # some users may read everything
            assert skipped["secret"] == "cannot be read"
        (root / "grows").write_bytes(b"y" * 2000)
        assert "grows" in (await store.state(await store.peek())).skipped
        for number in range(60):
            (root / f"f{number}").write_text("many")
        with pytest.raises(StorageError, match="more than 50 files"):
            await store.peek()


@ENGINES
async def test_linked_worktrees_bare_repositories_and_no_repository(tmp_path: Path, engine: str) -> None:
    main = repository(tmp_path / "main")
    git(main, "worktree", "add", "-q", str(tmp_path / "linked"))
    (main / ".git/info").mkdir(exist_ok=True)
    (main / ".git/info/exclude").write_text("ignored-by-all\n")
    git(tmp_path, "init", "-q", "--bare", "bare.git")
    (tmp_path / "none").mkdir()
    (tmp_path / "none/a").write_text("a")
    for name in ("linked", "bare.git", "none"):
        root = tmp_path / name
        (root / "new").write_text("untracked")
        (root / "ignored-by-all").write_text("x")
        start = tree(root)
        with store_for(root, tmp_path / f"kept-{name}", engine) as store:
            first = await store.peek()
            (root / "new").unlink()
            (root / "more").write_text("more")
            changed = [delta.path for delta in await store.compare(first, await store.peek())]
            assert changed == ["more", "new"]
            assert await back(store, first) == {}
            assert tree(root) == start
            if name == "linked" and engine == "git":
                assert "ignored-by-all" not in str(await store._files(await store.state(first)))


async def test_a_workspace_that_grows_goes_over_to_git_and_old_states_stay(tmp_path: Path) -> None:
    root = tmp_path / "w"
    root.mkdir()
    (root / "a").write_text("1")
    with store_for(root, tmp_path / "kept", "git", small=10) as store:
        first = await store.capture("manual")
        for number in range(20):
            (root / f"f{number}").write_text(str(number))
        (root / "a").write_text("2")
        second = await store.capture("manual")
        states = [(await store.state(item.state)).engine for item in (first, second)]
        assert states == ["plain", "git"]
        assert len(await store.compare(first.state, second.state)) == 21
        assert await back(store, first.state) == {}
        assert tree(root) == {"a": ("file", b"1")}
        report = await store.gc(keep_days=0)
        assert report.kept == 0
        third = await store.capture("manual")
        (root / "a").write_text("3")
        await store.gc(keep_days=1, quota_bytes=1)
        assert await back(store, third.state) == {}
        assert (root / "a").read_text() == "1"


@ENGINES
async def test_thrown_away_states_free_their_room_and_kept_ones_come_back(
    tmp_path: Path, engine: str
) -> None:
    root = tmp_path / "w"
    root.mkdir()
    with store_for(root, tmp_path / "kept", engine) as store:
        kept = []
        for _number in range(6):
            (root / "big").write_bytes(os.urandom(100_000))
            kept.append((await store.capture("manual"), (root / "big").read_bytes()))
        report = await store.gc(quota_bytes=350_000)
        assert report.bytes_after <= 350_000 < report.bytes_before
        assert 1 <= report.kept < 6
        assert [item.id for item in store.list()] == [item.id for item, _ in kept[-report.kept :]]
        for checkpoint, content in kept[-report.kept :]:
            assert await back(store, checkpoint.state) == {}
            assert (root / "big").read_bytes() == content
