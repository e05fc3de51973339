"""What a wall is: a kernel mechanism around commands, with words for what it does not cover."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

CAP_DAC_OVERRIDE = 1 << 1
"""Mask of the one capability that root keeps in a workspace that belongs to somebody else."""

Step = tuple[str | int, ...]
"""One step on the way to a private view of the file system (see `aar.safety.sandbox.view`)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a command may do; from this a wall makes its `Fence`.

    Attributes:
        writable: Paths that may be written, besides the workspace or though they are protected in it.
        read_only: Whether the workspace may not be written either.
        network: Whether the network may be used.
        git_config: Whether ``.git/config`` may be written; what it may execute is compared afterwards.
        lasting: Whether the command has no end that is known: then what it makes cannot wait to be compared.
    """

    writable: tuple[Path, ...] = ()
    read_only: bool = False
    network: bool = False
    git_config: bool = False
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class Fence:
    """What the spawn server puts around one process.

    Attributes:
        steps: The ``wall`` object of the server's request (see `aar.safety.spawn_server.walls`).
        ruleset: Landlock ruleset that is handed over, or ``None``. It stays the wall's.
        prefix: Words put before the command's own (a wall that is a program).
        masks: Absent paths that must be empty folders while the process runs.
        guarded: Paths that are compared after it, because the wall lets them be written.
        granted: Paths at or below them that it may change.
    """

    steps: Mapping[str, object] = field(default_factory=dict[str, object])
    ruleset: int | None = None
    prefix: tuple[str, ...] = ()
    masks: tuple[Path, ...] = ()
    guarded: tuple[Path, ...] = ()
    granted: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Probe:
    """What a process inside the wall could do, as the preflight saw it.

    Attributes:
        error: Why the wall could not be raised; ``None`` when it stands.
        write: Whether a file outside was written.
        network: Whether another host could be addressed.
    """

    error: str | None = None
    write: bool = True
    network: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything about a session that walls need to know, with resolved absolute paths.

    Attributes:
        workspace: Root of the project.
        writable: Folders that may be written besides (`--add-dir`, the git folder of a worktree).
        temp: Private folder for temporary files.
        home: The user's home.
        secrets: Paths that may not be read.
        protected: Paths in the workspace that commands should not write.
        git_folders: Git folders of the workspace and of the added folders.
        readable: Paths that may be read although they look secret.
        seen: Folders that are seen, not written, wherever they lie.
        caches: Folders in the home where package managers keep what they have fetched.
        blank: Folder with the empty file ``file`` and the empty folder ``folder``, neither to be opened, and
            the empty folder ``mask``, which may be listed.
    """

    workspace: Path
    writable: tuple[Path, ...]
    temp: Path
    home: Path
    secrets: tuple[Path, ...]
    protected: tuple[Path, ...] = ()
    git_folders: tuple[Path, ...] = ()
    caches: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    seen: tuple[Path, ...] = ()
    blank: Path = Path("/nonexistent")


class Wall(Protocol):
    """One rung of the ladder."""

    @property
    def name(self) -> str:
        """Name in the config and in results."""
        ...

    @property
    def covers(self) -> tuple[str, ...]:
        """What it holds, in words for people."""
        ...

    @property
    def gaps(self) -> tuple[str, ...]:
        """What it does not hold, in words for people."""
        ...

    def missing(self) -> str | None:
        """Return why this machine cannot have it, or ``None`` when it is worth a try."""
        ...

    def fence(self, limits: Limits) -> Fence:
        """Return what to put around one process.

        Raises:
            SandboxError: It cannot be made.
        """
        ...

    def mask_step(self, path: Path) -> Step:
        """Return what makes one of `Fence.masks` read-only; it comes after the fence's own ``view``."""
        ...

    @property
    def slow(self) -> bool:
        """Whether `refresh` should run in a thread before the next fence."""
        ...

    def refresh(self) -> None:
        """Look at what fences depend on. Thread-safe."""
        ...

    def weaken(self, probe: Probe) -> bool:
        """Adapt to what the preflight saw; ``True`` when another try with the rest is worth it."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


@dataclass(frozen=True, slots=True)
class WallStatus:
    """The wall as it stands, for the screen and ``aar sandbox status``.

    Attributes:
        name: ``landlock``, ``none`` …
        enforced: Whether the kernel holds anything at all.
        reasons: Why a stronger wall was not taken, one sentence each.
        covers: What is held.
        gaps: What is not.
    """

    name: str
    enforced: bool
    reasons: tuple[str, ...] = ()
    covers: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
