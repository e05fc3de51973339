"""Places where tasks and attempts work: work trees of git at one state of the project, or whole copies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from aar.protocol.errors import NotThereError, StorageError, UsageError
from aar.protocol.ports import Spawner
from aar.safety.git_calls import run_git

Kind = Literal["worktree", "copy"]
_TIMEOUT_S: Final = 600.0
_MAX_PATCH: Final = 50_000_000
_MOST_FILES: Final = 5000
_MOST_BYTES: Final = 200_000_000
_AUTHOR: Final = {
    "GIT_AUTHOR_NAME": "aar",
    "GIT_AUTHOR_EMAIL": "aar@localhost",
    "GIT_COMMITTER_NAME": "aar",
    "GIT_COMMITTER_EMAIL": "aar@localhost",
}
_COMMIT: Final = ("-q", "--no-verify", "--no-gpg-sign", "--allow-empty", "-m", "base")


class Git:
    """Calls of git in one repository; nothing that the repository names runs."""

    def __init__(self, spawner: Spawner, root: Path) -> None:
        self._spawner, self.root = spawner, root

    async def run(
        self, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, failing: bool = True
    ) -> bytes | None:
        """Return what git prints; ``None`` when it fails and ``failing`` is off.

        Raises:
            StorageError: It failed.
            UsageError: There is no git.
        """
        try:
            ended = await run_git(
                self._spawner,
                cwd or self.root,
                words,
                timeout_s=_TIMEOUT_S,
                env={**_AUTHOR, **(env or {})},
                max_output=_MAX_PATCH,
            )
        except FileNotFoundError as error:
            raise NotThereError("Work trees need git, which is not here.") from error
        if ended.exit_code != 0:
            if not failing:
                return None
            told = " ".join(ended.stderr.decode("utf-8", "replace").split())[:300]
            raise StorageError(f"git {words[0]} failed: {told or 'it took too long'}")
        if ended.truncated:
            raise StorageError(f"git {words[0]} wrote more than {_MAX_PATCH // 1_000_000} MB.")
        return ended.output

    async def text(self, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
        """Return what git prints, stripped."""
        return (await self.run(*words, cwd=cwd, env=env) or b"").decode("utf-8", "replace").strip()


@dataclass(frozen=True, slots=True)
class Changes:
    """What a task changed.

    Attributes:
        patch: For ``git apply``; empty: nothing.
        files: Paths.
        added: Lines.
        removed: Lines.
        tree: The state with the changes, as a tree of git.
    """

    patch: bytes = b""
    files: tuple[str, ...] = ()
    added: int = 0
    removed: int = 0
    tree: str = ""

    @property
    def text(self) -> str:
        """The patch, as far as it is text."""
        return self.patch.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Place:
    """One place.

    Attributes:
        outer: Folder that is removed with it.
        folder: The project in it.
        cwd: Where the work begins.
        base: State of the project that changes are told against: a commit or a tree.
        env: Variables with which git finds that state.
    """

    outer: Path
    folder: Path
    cwd: Path
    base: str
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Project:
    """What the places are made from.

    Attributes:
        root: Top folder of what is copied.
        prefix: Folder below it where aar was started.
        kind: Work trees or copies.
        base: Commit of the state that all work trees have; empty for copies.
    """

    root: Path
    prefix: str
    kind: Kind
    base: str = ""


async def find_project(spawner: Spawner, cwd: Path, *, copy: bool) -> tuple[Path, str, Kind]:
    """Return the folder that is copied, the place of ``cwd`` (resolved) in it, and how it is copied."""
    git = Git(spawner, cwd)
    top = await git.run("rev-parse", "--show-toplevel", failing=False)
    if top is None:
        return cwd, "", "copy"
    root = await asyncio.to_thread(Path(os.fsdecode(top.removesuffix(b"\n"))).resolve)
    prefix = "" if cwd == root else cwd.relative_to(root).as_posix()
    return root, prefix, "copy" if copy else "worktree"


async def snapshot(git: Git, work: Path, ref: str) -> str:
    """Commit the present state of a work tree, new files included, touching neither branch nor index.

    Args:
        git: Of the repository.
        work: Folder for a temporary index.
        ref: Name that keeps the commit from being collected.
    """
    tree = await written_tree(git, work)
    head = await git.run("rev-parse", "-q", "--verify", "HEAD^{commit}", failing=False)
    parents = ("-p", head.decode().strip()) if head else ()
    commit = await git.text("commit-tree", tree, *parents, "-m", "State of the project for agents")
    await git.run("update-ref", ref, commit)
    return commit


async def written_tree(git: Git, work: Path) -> str:
    """Return the present state of a work tree, new files included, as a tree of git.

    Args:
        git: Of the repository.
        work: Folder for a temporary index.
    """
    index = work / "snapshot.index"
    own = await git.text("rev-parse", "--git-path", "index")
    if (git.root / own).exists():
        # With the files' times in it, git need not read what is unchanged.
        await asyncio.to_thread(shutil.copyfile, git.root / own, index)
    env = {"GIT_INDEX_FILE": str(index)}
    try:
        await git.run("add", "-A", env=env)
        return await git.text("write-tree", env=env)
    finally:
        index.unlink(missing_ok=True)


async def check_amount(git: Git) -> None:
    """Refuse to put very much that is not committed into the repository.

    Raises:
        UsageError: It is too much.
    """
    listed = ("--modified", "--others", "--exclude-standard")
    found = await git.run("ls-files", "-z", *listed) or b""
    names = [name for name in os.fsdecode(found).split("\0") if name]
    if len(names) > _MOST_FILES:
        raise UsageError(f"{len(names):,} files are not committed; commit or ignore some of them first.")
    if await asyncio.to_thread(_bytes_of, git.root, names) > _MOST_BYTES:
        raise UsageError("Too much is not committed to copy it; commit or ignore some of it first.")


def _bytes_of(root: Path, names: Sequence[str]) -> int:
    total = 0
    for name in names:
        # What is gone has no size.
        with contextlib.suppress(OSError):
            total += (root / name).lstat().st_size
    return total


async def changes_between(
    git: Git, base: str, tree: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Changes:
    """Return how one state differs from another."""
    # Whatever a user's settings make of a diff.
    diff = ("diff", "--no-renames", "--no-color", "--src-prefix=a/", "--dst-prefix=b/")
    sides = (base, tree)
    listed = await git.run(*diff, "--numstat", "-z", *sides, cwd=cwd, env=env)
    if not listed:
        return Changes(tree=tree)
    patch = await git.run(*diff, "--binary", *sides, cwd=cwd, env=env)
    rows = [row.split("\t", 2) for row in os.fsdecode(listed).split("\0") if row]
    return Changes(
        patch or b"",
        tuple(row[2] for row in rows),
        sum(int(row[0]) for row in rows if row[0].isdigit()),
        sum(int(row[1]) for row in rows if row[1].isdigit()),
        tree,
    )


class Places:
    """Makes and removes places.

    Args:
        spawner: Starts git.
        project: What they hold.
        work: Folder of theirs; may hold places of an aar that was killed.
        leave_out: Folder in the project that is not copied (that of the results).
        one: Held while git's list of work trees changes, where others change it too.
    """

    def __init__(
        self,
        spawner: Spawner,
        project: Project,
        work: Path,
        leave_out: Path | None = None,
        one: asyncio.Lock | None = None,
    ) -> None:
        self.project = project
        self.git = Git(spawner, project.root)
        self._work, self._leave_out = work, leave_out
        # Git's list of work trees is one file tree, which it does not lock.
        self._one = one or asyncio.Lock()

    def outer(self, name: str) -> Path:
        """Return the folder that holds the place ``name``."""
        return self._work / name

    def find(self, outer: Path, below: str) -> Place:
        """Return the place that lies, or will lie, in ``outer``."""
        folder = outer / self.project.root.name
        cwd = folder / self.project.prefix / below
        if self.project.kind == "worktree":
            return Place(outer, folder, cwd, self.project.base, {})
        env = {"GIT_DIR": str(outer / "base.git"), "GIT_WORK_TREE": str(folder)}
        return Place(outer, folder, cwd, "HEAD", env)

    async def make(self, name: str, below: str) -> Place:
        """Make a place.

        Raises:
            StorageError: There is no room.
            UsageError: ``below`` is no folder of the project.
        """
        place = self.find(self.outer(name), below)
        await self.remove(place)
        place.outer.mkdir(mode=0o700)
        if self.project.kind == "worktree":
            async with self._one:
                await self.git.run("worktree", "add", "--detach", str(place.folder), self.project.base)
        else:
            await self._copy(place)
        if not place.cwd.is_dir():
            await self.remove(place)
            raise NotThereError(
                f"The project has no folder {below or self.project.prefix}, where a task begins."
            )
        return place

    async def _copy(self, place: Place) -> None:
        left_out = self._leave_out

        def ignore(folder: str, names: Sequence[str]) -> list[str]:
            here = Path(folder)
            # A file `.git` leads to another repository, in which nothing may change.
            linked = [".git"] if ".git" in names and (here / ".git").is_file() else []
            return linked + [name for name in names if here / name == left_out or _special(here / name)]

        try:
            await asyncio.to_thread(
                shutil.copytree, self.project.root, place.folder, symlinks=True, ignore=ignore
            )
        except (OSError, shutil.Error) as error:
            raise StorageError(f"The project cannot be copied: {str(error)[:300]}") from error
        await self.git.run("init", "-q", cwd=place.outer, env=place.env)
        await self.git.run("add", "-A", cwd=place.folder, env=place.env)
        await self.git.run("commit", *_COMMIT, cwd=place.folder, env=place.env)

    async def changes(self, place: Place) -> Changes:
        """Return what was changed in a place."""
        await self.git.run("add", "-A", cwd=place.folder, env=place.env)
        tree = await self.git.text("write-tree", cwd=place.folder, env=place.env)
        return await changes_between(self.git, place.base, tree, place.folder, place.env)

    async def remove(self, place: Place) -> None:
        """Remove a place, and what git knows of it."""
        if place.outer.exists():
            await asyncio.to_thread(shutil.rmtree, place.outer, ignore_errors=True)
            if self.project.kind == "worktree":
                async with self._one:
                    await self.git.run("worktree", "prune", failing=False)


def _special(path: Path) -> bool:
    return not (path.is_symlink() or path.is_dir() or path.is_file())
