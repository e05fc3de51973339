"""Limits of commands, with processes that go over them; and what is left when aar is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aar.config.schema import SandboxConfig
from aar.protocol.ports import SpawnResult
from aar.safety.sandbox.masks import is_mask
from aar.safety.spawn import ProcessSpawner
from tests.spawn.conftest import WALLS, raise_wall, shell
from tests.spawn.test_processes import TREE, pids_in
from tests.support.waiting import gone, until

ALL = ("none", *WALLS)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


async def limited(wall: str, root: Path, command: str, **limits: int) -> SpawnResult:
    spawner = ProcessSpawner(root, SandboxConfig(mode=wall, **limits))  # type: ignore[arg-type]
    if wall != "none":
        raise_wall(spawner)
    try:
        return await shell(spawner, command, root, timeout_s=20)
    finally:
        spawner.close()


@pytest.mark.parametrize("wall", ALL)
async def test_a_command_that_burns_time_is_ended(wall: str, workspace: Path) -> None:
    began = time.monotonic()
    result = await limited(wall, workspace, "while :; do :; done", cpu_seconds=1)
    assert result.exit_code not in (0, None)
    assert not result.timed_out
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("wall", ALL)
async def test_a_file_does_not_grow_over_its_limit(wall: str, workspace: Path) -> None:
    result = await limited(wall, workspace, "head -c 9000000 /dev/zero > big; echo after", file_mb=2)
    assert (workspace / "big").stat().st_size <= 2 << 20
    assert b"after" in result.output


@pytest.mark.parametrize("wall", ALL)
async def test_a_process_gets_no_more_memory_than_its_limit(wall: str, workspace: Path) -> None:
    command = f"{sys.executable} -I -c 'bytearray(900_000_000)'"
    result = await limited(wall, workspace, command, memory_mb=300)
    assert b"MemoryError" in result.output
    assert result.exit_code == 1
    usual = await limited(
        wall, workspace, f"{sys.executable} -I -c 'print(len(bytearray(50_000_000)))'", memory_mb=300
    )
    assert usual.output == b"50000000\n"


@pytest.mark.parametrize("wall", ["bubblewrap", "namespaces"])
async def test_shared_memory_of_a_private_view_has_an_end(wall: str, workspace: Path) -> None:
    command = "df -k --output=size /dev/shm | tail -1; echo x > /dev/x || df -k --output=size /run | tail -1"
    result = await limited(wall, workspace, command)
    assert int(result.output.split()[0]) == 1 << 20
    assert b"x: " in result.output


@pytest.mark.parametrize("wall", ALL)
async def test_endless_output_fills_neither_memory_nor_disk(
    wall: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aar.safety.stream_buffer.SPOOL_LIMIT", 1_000_000)
    spool = workspace.parent / "spool"
    spawner = ProcessSpawner(workspace, SandboxConfig(mode=wall))  # type: ignore[arg-type]
    if wall != "none":
        raise_wall(spawner)
    try:
        command = "head -c 20000000 /dev/zero; echo end"
        result = await shell(spawner, command, workspace, timeout_s=20, spool=spool, max_output=10_000)
    finally:
        spawner.close()
    assert result.total_bytes == 20_000_004
    assert len(result.output) < 10_200
    assert result.output.endswith(b"end\n")
    assert spool.stat().st_size == 1_000_000


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
async def test_a_full_disk_ends_the_spool_not_the_command(workspace: Path) -> None:
    spawner = ProcessSpawner(workspace, SandboxConfig(mode="none"))
    try:
        result = await shell(
            spawner, "head -c 300000 /dev/zero; echo end", workspace, spool=Path("/dev/full"), max_output=1000
        )
    finally:
        spawner.close()
    assert (result.exit_code, result.total_bytes) == (0, 300_004)
    assert result.output.endswith(b"end\n")


PARENT = """
import asyncio, sys
from pathlib import Path
from aar.protocol.ports import SpawnRequest
from aar.safety.spawn import ProcessSpawner
from aar.config.schema import SandboxConfig

async def main():
    spawner = ProcessSpawner(Path(sys.argv[1]), SandboxConfig(mode=sys.argv[3]))
    await spawner.run(SpawnRequest(("sh", "-c", sys.argv[2]), Path(sys.argv[1])))

asyncio.run(main())
"""


def host_pids(mark: str) -> list[int]:
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "cmdline").read_bytes().decode(errors="replace"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("wall", WALLS)
async def test_kill_9_of_aar_leaves_no_process_and_no_mask(wall: str, workspace: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    raise_wall(ProcessSpawner(workspace, SandboxConfig(mode=wall))).close()  # type: ignore[arg-type]
    before = {path.name for path in workspace.iterdir()}
    mark = f"5{os.getpid()}.25"
    command = TREE.replace("sleep 50", f"sleep {mark}")
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(workspace), command, wall])
    try:
        await pids_in(workspace / "pids", 3)
        pids = [pid for pid in host_pids(mark) if pid != parent.pid]
        assert len(pids) >= 2
        if wall != "landlock":
            assert is_mask(workspace / "AGENTS.md")
    finally:
        parent.kill()
        parent.wait()
    assert await gone(pids)
    await until(
        lambda: {path.name for path in workspace.iterdir()} == before | {"pids"},
        told=lambda: list(workspace.iterdir()),
    )
