"""A normal day's work inside each wall: clone, venv, install from an allowed index, test, commit, branch, build."""

from __future__ import annotations

import base64
import hashlib
import http.server
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from aar.config.schema import SandboxConfig
from aar.protocol.ports import SpawnResult
from aar.safety.spawn import ProcessSpawner
from tests.sandbox.conftest import git
from tests.spawn.conftest import WALLS, raise_wall, shell

ADDRESS = "127.0.0.2"
"""Loopback, but not among the addresses that programs reach without a proxy."""


def make_wheel(folder: Path) -> None:
    """Write the smallest package that pip installs."""
    name = folder / "tinypack-1.0-py3-none-any.whl"
    files = {
        "tinypack.py": b"ANSWER = 42\n",
        "tinypack-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tinypack\nVersion: 1.0\n",
        "tinypack-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(data)}\n"
    with zipfile.ZipFile(name, "w") as archive:
        for path, data in files.items():
            archive.writestr(path, data)
        archive.writestr("tinypack-1.0.dist-info/RECORD", record + "tinypack-1.0.dist-info/RECORD,,\n")


@pytest.fixture
def index(tmp_path: Path) -> Iterator[int]:
    """A package index; returns its port."""
    folder = tmp_path / "index" / "simple" / "tinypack"
    folder.mkdir(parents=True)
    make_wheel(folder)
    (folder / "index.html").write_text(
        '<a href="tinypack-1.0-py3-none-any.whl">tinypack-1.0-py3-none-any.whl</a>'
    )

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(tmp_path / "index"))  # type: ignore[arg-type]

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer((ADDRESS, 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


_LIKE_BUBBLEWRAP = pytest.mark.slow if shutil.which("bwrap") else ()
"""Bubblewrap raises the same namespaces, so a day's work behind both is for the long run."""


@pytest.fixture(params=[pytest.param(w, marks=_LIKE_BUBBLEWRAP if w == "namespaces" else ()) for w in WALLS])
def desk(request: pytest.FixtureRequest, tmp_path: Path, clean_environment: Path) -> Iterator[ProcessSpawner]:
    """An empty workspace, and a repository to clone in an added folder."""
    (clean_environment / "gitconfig").write_text("[user]\n\tname = T\n\temail = t@example.org\n")
    origin, seed, work = tmp_path / "added/origin.git", tmp_path / "seed", tmp_path / "work"
    seed.mkdir()
    work.mkdir()
    git("init", "-q", cwd=seed)
    (seed / "calc.py").write_text("from tinypack import ANSWER\n")
    (seed / "test_calc.py").write_text("from calc import ANSWER\n\ndef test_it(): assert ANSWER == 42\n")
    (seed / "Makefile").write_text("all:\n\techo built > built\n")
    (seed / "AGENTS.md").write_text("be kind\n")
    git("add", "-A", cwd=seed)
    git("commit", "-qm", "first", cwd=seed)
    git("clone", "-q", "--bare", str(seed), str(origin), cwd=tmp_path)
    config = SandboxConfig(mode=request.param)
    spawner = raise_wall(ProcessSpawner(work, config, (origin.parent,)))
    yield spawner
    spawner.close()


async def ok(spawner: ProcessSpawner, command: str, cwd: Path) -> SpawnResult:
    result = await shell(spawner, command, cwd)
    assert result.exit_code == 0, (command, result.output.decode())
    return result


async def test_a_days_work_passes(desk: ProcessSpawner, tmp_path: Path, index: int) -> None:
    work = tmp_path / "work"
    await ok(desk, f"git clone -q {tmp_path}/added/origin.git .", work)
    assert (work / ".git/hooks").is_dir()
    await ok(
        desk,
        f"{sys.executable} -m venv --without-pip --system-site-packages .venv && echo .venv > .gitignore",
        work,
    )
    install = f".venv/bin/python -m pip install -q --index-url http://{ADDRESS}:{index}/simple --trusted-host {ADDRESS} tinypack"
    refused = await shell(desk, install + " --retries 0", work)
    assert refused.exit_code != 0
    rule = f"{ADDRESS}:{index}"
    assert (refused.blocked[0].host, refused.blocked[0].port, refused.blocked[0].rule) == (
        ADDRESS,
        index,
        rule,
    )
    desk.allow_domain(rule)
    await ok(desk, install, work)
    pytest_path = Path(pytest.__file__).parents[1]
    await ok(desk, f"PYTHONPATH={pytest_path} .venv/bin/python -m pytest -q -p no:cacheprovider", work)
    await ok(desk, "echo '# more' >> calc.py && git add -A && git commit -qm 'Say more'", work)
    await ok(
        desk,
        "git checkout -q -b topic && git branch -m topic better && git status -sb && git log --oneline",
        work,
    )
    await ok(desk, "git branch --set-upstream-to=origin/HEAD better && git push -q origin better", work)
    await ok(desk, "git stash list && git diff HEAD~1 --stat && git tag v1 && git gc -q", work)
    await ok(desk, "make && cat built && rm built", work)
    result = await ok(desk, "git status --porcelain", work)
    assert result.output == b""
    assert not result.notices
    assert (work / "AGENTS.md").read_text() == "be kind\n"


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
async def test_npm_runs_a_script(desk: ProcessSpawner, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "package.json").write_text(
        '{"name": "t", "version": "1.0.0", "scripts": {"test": "node -e \\"console.log(6*7)\\""}}'
    )
    assert b"42" in (await ok(desk, "npm test --silent && npm install --offline --silent", work)).output


async def test_a_submodule_can_be_committed_in(desk: ProcessSpawner, tmp_path: Path) -> None:
    work = tmp_path / "work"
    command = [
        "git",
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "add",
        "-q",
        str(tmp_path / "added/origin.git"),
        "sub",
    ]
    git("init", "-q", cwd=work)
    subprocess.run(command, cwd=work, check=True, capture_output=True)
    git("commit", "-qm", "with submodule", cwd=work)
    await ok(
        desk,
        "cd sub && echo x > x && git add x && git commit -qm inner && cd .. && git add -A && git commit -qm outer",
        work,
    )
    result = await shell(desk, "echo evil > .git/modules/sub/hooks/post-commit; true", work)
    assert not os.path.lexists(work / ".git/modules/sub/hooks/post-commit"), result.output


async def test_a_pull_that_changes_protected_files_is_told_and_works_once_they_are_granted(
    desk: ProcessSpawner, tmp_path: Path
) -> None:
    work, seed = tmp_path / "work", tmp_path / "seed"
    await ok(desk, f"git clone -q {tmp_path}/added/origin.git .", work)
    (seed / ".github/workflows").mkdir(parents=True)
    (seed / ".github/workflows/ci.yml").write_text("on: push\n")
    (seed / "AGENTS.md").write_text("be quick\n")
    git("add", "-A", cwd=seed)
    git("commit", "-qm", "second", cwd=seed)
    git("push", "-q", f"{tmp_path}/added/origin.git", "HEAD", cwd=seed)
    refused = await shell(desk, "git pull -q", work, timeout_s=60)
    assert b"AGENTS.md" in refused.output
    assert refused.exit_code != 0 or refused.notices
    assert (work / "AGENTS.md").read_text() == "be kind\n"
    assert not (work / ".github/workflows/ci.yml").exists()
    assert b"AGENTS.md is protected" in refused.output
    granted = (work / ".github/workflows", work / "AGENTS.md")
    command = "git fetch -q && git reset -q --hard origin/HEAD"
    result = await shell(desk, command, work, timeout_s=60, writable=granted)
    assert (result.exit_code, result.notices) == (0, ()), result.output
    assert (work / "AGENTS.md").read_text() == "be quick\n"
    assert (work / ".github/workflows/ci.yml").read_text() == "on: push\n"
