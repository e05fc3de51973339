"""One session behind each wall: a project, a home with secrets, and things outside that must stay as they are."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from aar.config.schema import SandboxConfig
from aar.protocol.ports import SpawnRequest, SpawnResult
from aar.safety.spawn import ProcessSpawner
from tests.spawn.conftest import WALLS, raise_wall

SECRET = "canary-7f3a"


def git(*args: str, cwd: Path) -> None:
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *identity, *args], cwd=cwd, check=True, capture_output=True)


@dataclass
class Stage:
    """What an attack finds."""

    spawner: ProcessSpawner
    home: Path
    workspace: Path
    outside: Path
    victim: subprocess.Popen[bytes]
    server: socket.socket

    async def attack(self, code: str, **options: object) -> SpawnResult:
        """Run Python ``code`` inside, with names for what is outside; it prints ESCAPED when it got its way."""
        head = f"""
            import ctypes, errno, os, signal, socket, subprocess, sys, time
            out, home, work = {str(self.outside)!r}, {str(self.home)!r}, {str(self.workspace)!r}
            victim, aar, port = {self.victim.pid}, {os.getpid()}, {self.server.getsockname()[1]}
            libc = ctypes.CDLL(None, use_errno=True)
            def escaped(what=True):
                print("ESCAPED" if what else "held")
        """
        text = textwrap.dedent(head) + textwrap.dedent(code)
        options.setdefault("timeout_s", 10)
        argv = (sys.executable, "-I", "-S", "-c", text)
        request = SpawnRequest(argv, self.workspace, env={"HOME": str(self.home)}, **options)  # type: ignore[arg-type]
        return await self.spawner.run(request)

    async def shell(self, command: str, **options: object) -> SpawnResult:
        env = {"HOME": str(self.home)} | dict(options.pop("env", {}))  # type: ignore[call-overload]
        request = SpawnRequest(("/bin/sh", "-c", command), self.workspace, env=env, **options)  # type: ignore[arg-type]
        return await self.spawner.run(request)

    def picture(self) -> list[object]:
        """Everything about the files outside that could change."""
        return [
            (
                str(path),
                path.lstat().st_mode,
                path.lstat().st_mtime_ns,
                path.read_bytes() if path.is_file() else b"",
            )
            for path in sorted(self.outside.rglob("*"))
        ]


@pytest.fixture(scope="module", params=WALLS)
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    base = tmp_path_factory.mktemp("stage").resolve()
    home, outside = base / "home", base / "home" / "outside"
    workspace = base / "home" / "project"
    for folder in (workspace, outside / "empty", home / ".ssh", home / ".aws", home / "aar"):
        folder.mkdir(parents=True)
    (outside / "file").write_text("kept")
    for name in (".ssh/id_rsa", ".aws/credentials", ".netrc", "aar/config.toml"):
        (home / name).write_text(SECRET)
    git("init", "-q", cwd=workspace)
    (workspace / ".gitignore").write_text(".env\nscratch*\n")
    (workspace / "main.py").write_text("print(1)\n")
    git("add", "-A", cwd=workspace)
    git("commit", "-qm", "first", cwd=workspace)
    (workspace / ".env").write_text(SECRET)
    (workspace / ".github").mkdir()
    (workspace / ".husky").mkdir()
    (workspace / ".husky/pre-commit").write_text("true\n")
    with pytest.MonkeyPatch.context() as patch, socket.create_server(("127.0.0.1", 0)) as server:
        patch.setenv("HOME", str(home))
        patch.setenv("AAR_HOME", str(home / "aar"))
        server.setblocking(False)
        spawner = raise_wall(ProcessSpawner(workspace, SandboxConfig(mode=request.param, processes=150)))
        victim = subprocess.Popen(["sleep", "600"], env={"SECRET": SECRET})
        try:
            yield Stage(spawner, home, workspace, outside, victim, server)
        finally:
            victim.kill()
            victim.wait()
            spawner.close()
