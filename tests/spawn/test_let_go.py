"""A command that is kept on purpose goes on without aar, behind its wall; all others end."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from aar.config.schema import SandboxConfig
from aar.protocol.ports import SpawnRequest
from aar.runtime.background import Background
from aar.safety.spawn import ProcessSpawner
from aar.safety.spawn_process import ServedProcess
from tests.support.waiting import until

BUSY = "echo begun; until [ -e go ]; do sleep 0.05; done; mkdir .husky; echo out > ../out; echo . > .git/commondir; echo end"


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("wall", ["auto", "none"])
async def test_it_goes_on_with_its_wall_and_its_output_in_a_file(tmp_path: Path, wall: Any) -> None:
    folder, log = tmp_path / "project", tmp_path / "log"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").touch()
    spawner = ProcessSpawner(folder, SandboxConfig(mode=wall))
    shells = Background()
    try:
        for name, command in (("kept", BUSY), ("other", "sleep 1000")):
            shells[name] = await spawner.start(SpawnRequest(("/bin/sh", "-c", command), folder))
        await until(lambda: b"begun" in shells["kept"].output())
        pids = {name: process.pid for name, process in shells.items()}
        kept = shells["kept"]
        assert isinstance(kept, ServedProcess)
        assert kept.outlives
        shells.kept["kept"] = log
        temp = spawner.temp_folder
        await shells.end(spawner)
    finally:
        spawner.close()
    await until(lambda: not alive(pids["other"]))
    assert alive(pids["kept"])
    assert temp.is_dir()
    (folder / "go").touch()
    await until(lambda: log.read_text().endswith("end\n"))
    await until(lambda: not alive(pids["kept"]))
    assert log.stat().st_mode & 0o777 == 0o600
    assert log.read_text().startswith("begun\n")
    if spawner.wall != "none":
        assert "File exists" in log.read_text()
        assert not (tmp_path / "out").exists()
        # Masks of protected paths stay as long as it runs.
        await until(lambda: sorted(path.name for path in folder.iterdir()) == [".git", "go"])
    await until(lambda: not temp.exists())
    if spawner.wall != "none":
        # No wall keeps the command from making this: aar's server removes it.
        assert not list((folder / ".git").glob("com*"))


async def test_what_may_write_files_that_aar_restores_afterwards_does_not_outlive_it(tmp_path: Path) -> None:
    spawner = ProcessSpawner(tmp_path, SandboxConfig())
    try:
        process = await spawner.start(SpawnRequest(("/bin/sh", "-c", "sleep 1000"), tmp_path))
        assert isinstance(process, ServedProcess)
        assert process.outlives == (spawner.wall == "none")  # it could make a repository of the folder
    finally:
        spawner.close()


async def test_a_spawner_that_let_something_go_can_be_used_again_and_kill_ends_it(tmp_path: Path) -> None:
    spawner = ProcessSpawner(tmp_path)
    try:
        process = await spawner.start(SpawnRequest(("/bin/sh", "-c", "sleep 1000"), tmp_path))
        assert process.pid
        spawner.let_go(process, tmp_path / "log")  # pyright: ignore[reportArgumentType]
        assert not process.running
        spawner.close()
        ended = await spawner.run(SpawnRequest(("/bin/sh", "-c", "echo again"), tmp_path))
        assert ended.output == b"again\n"
    finally:
        spawner.close()
    await asyncio.sleep(0)
    assert alive(process.pid)
    os.kill(process.pid, 15)
    await until(lambda: not alive(process.pid))
