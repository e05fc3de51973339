"""Git that aar runs itself: what a repository inside of the repository names does not run either."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aar.config.schema import SandboxConfig
from aar.safety.git_calls import inner_repositories, run_git
from aar.safety.spawn import ProcessSpawner


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "advice.addEmbeddedRepo=false")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with another one inside, whose settings run a program for each changed file."""
    inner = tmp_path / "project" / "in ner"
    inner.mkdir(parents=True)
    git(inner, "init", "-q")
    (inner / ".gitattributes").write_text("* filter=evil\n")
    (inner / "a.txt").write_text("one\n")
    git(inner, "add", "-A")
    git(inner, "commit", "-qm", "one")
    git(inner, "config", "filter.evil.clean", f"touch '{tmp_path}/canary'; cat")
    git(inner, "config", "filter.evil.process", f"touch '{tmp_path}/canary'")
    git(inner, "config", "core.fsmonitor", f"touch '{tmp_path}/canary'; false")
    project = inner.parent
    git(project, "init", "-q")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "one")
    return project


@pytest.fixture
async def bare(project: Path) -> AsyncIterator[ProcessSpawner]:
    spawner = ProcessSpawner(project, SandboxConfig(mode="none"))
    yield spawner
    spawner.close()


def stir(project: Path, canary: Path) -> None:
    """Make git doubt what it knows of the inner repository."""
    canary.unlink(missing_ok=True)
    for file in (project / "in ner").glob("*.*"):
        os.utime(file, (1, 1))
    os.utime(project / "in ner/.gitattributes", (1, 1))


async def test_t6_the_canary_is_a_canary(project: Path, tmp_path: Path) -> None:
    stir(project, tmp_path / "canary")
    subprocess.run(["git", "status"], cwd=project, check=False, capture_output=True)
    assert (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("status", "--short"),
        ("diff",),
        ("diff", "HEAD", "--stat"),
        ("diff", "--cached"),
        ("diff-index", "-p", "HEAD"),
        ("diff-files",),
        ("log", "-p", "-1"),
        ("ls-files", "-m"),
        ("add", "-A"),
    ],
)
async def test_t6_nothing_that_an_inner_repository_names_runs(
    project: Path, tmp_path: Path, bare: ProcessSpawner, words: tuple[str, ...]
) -> None:
    # The outer repository asks for it, as loudly as it can.
    git(project, "config", "-f", ".gitmodules", "submodule.x.path", "in ner")
    git(project, "config", "-f", ".gitmodules", "submodule.x.ignore", "none")
    git(project, "config", "submodule.x.ignore", "none")
    git(project, "config", "diff.submodule", "diff")
    git(project, "config", "status.submoduleSummary", "true")
    (project / "other.txt").write_text("x")
    stir(project, tmp_path / "canary")
    ended = await run_git(bare, project, words)
    assert ended.exit_code == 0, ended.stderr
    assert not (tmp_path / "canary").exists()


async def test_what_is_added_is_all_but_repositories_inside(project: Path, bare: ProcessSpawner) -> None:
    (project / "*.odd").write_text("x")
    (project / "in ner/a.txt").write_text("two\n")
    assert (await run_git(bare, project, ("add", "-A"))).exit_code == 0
    names = await run_git(bare, project, ("diff", "--cached", "--name-only", "-z"))
    assert names.output == b"*.odd\0"


def test_inner_repositories_are_read_by_kind_whatever_their_names() -> None:
    listed = "100644 aa 0\ta\x00160000 bb 0\tsub/x\ty\x00160000 bb 2\tsub/x\ty\x00120000 cc 0\tlink\x00"
    assert inner_repositories(listed) == ("sub/x\ty",)
    assert inner_repositories("") == ()
