"""Spawners over real processes, with and without the wall."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aar.config.schema import SandboxConfig
from aar.protocol.errors import SandboxError
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


WALLS = ("bubblewrap", "namespaces", "landlock")
"""Walls that this kind of machine can raise."""


def raise_wall(spawner: ProcessSpawner) -> ProcessSpawner:
    """Return ``spawner`` with its wall up; skips where that cannot be."""
    try:
        status = spawner.status()
    except SandboxError as error:
        spawner.close()
        pytest.skip(str(error))
    if not status.enforced:
        spawner.close()
        pytest.skip("no wall here: " + " ".join(status.reasons))
    return spawner


@pytest.fixture(params=WALLS)
def walled(request: pytest.FixtureRequest, workspace: Path) -> Iterator[ProcessSpawner]:
    """A spawner behind each wall in turn; skips where the kernel has none."""
    spawner = raise_wall(ProcessSpawner(workspace, SandboxConfig(mode=request.param)))
    yield spawner
    spawner.close()


async def shell(spawner: ProcessSpawner, command: str, cwd: Path, **options: object) -> SpawnResult:
    return await spawner.run(SpawnRequest(("/bin/sh", "-c", command), cwd, **options))  # type: ignore[arg-type]
