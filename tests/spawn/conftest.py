"""Spawners over real processes, with and without the wall."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aar.config.schema import SandboxConfig
from aar.protocol.ports import SpawnRequest, SpawnResult
from aar.safety.spawn import ProcessSpawner


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def bare(workspace: Path) -> Iterator[ProcessSpawner]:
    """A spawner without a wall."""
    spawner = ProcessSpawner(workspace, SandboxConfig(mode="none"))
    yield spawner
    spawner.close()


@pytest.fixture
def walled(workspace: Path) -> Iterator[ProcessSpawner]:
    """A spawner behind the strongest wall; skips where the kernel has none."""
    spawner = ProcessSpawner(workspace)
    status = spawner.status()
    if not status.enforced:
        spawner.close()
        pytest.skip("no wall here: " + " ".join(status.reasons))
    yield spawner
    spawner.close()


async def shell(spawner: ProcessSpawner, command: str, cwd: Path, **options: object) -> SpawnResult:
    return await spawner.run(SpawnRequest(("/bin/sh", "-c", command), cwd, **options))  # type: ignore[arg-type]
