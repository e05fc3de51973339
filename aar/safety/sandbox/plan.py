"""Putting a session's `Plan` together, and its private folder."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from aar.config.schema import SandboxConfig
from aar.safety.sandbox.base import Plan
from aar.safety.sandbox.caches import cache_folders
from aar.safety.sandbox.git_folders import outside_git_folders
from aar.safety.sandbox.secrets import expand, protected_paths, secret_paths


def make_private_folder() -> Path:
    """Make the folder (0700) that holds ``tmp``, for commands, and ``blank``, what hides and masks."""
    private = Path(tempfile.mkdtemp(prefix="aar-")).resolve()
    (private / "tmp").mkdir(mode=0o700)
    blank = private / "blank"
    (blank / "mask").mkdir(parents=True)
    (blank / "mask").chmod(0o555)
    (blank / "folder").mkdir(mode=0)
    (blank / "file").touch(mode=0)
    (blank / "file").chmod(0)
    return private


def make_plan(
    config: SandboxConfig,
    workspace: Path,
    home: Path,
    extra: tuple[Path, ...],
    own: tuple[Path, ...],
    temp: Path,
    *,
    shared_git: bool = True,
) -> Plan:
    """Return the plan of a session.

    Args:
        config: ``[sandbox]``.
        workspace: Root of the project, resolved.
        home: The user's home, resolved.
        extra: ``--add-dir``, resolved.
        own: aar's folders.
        temp: ``tmp`` of the private folder.
        shared_git: Whether the git folder that a work tree shares with its repository may be written.
    """
    found = outside_git_folders(workspace)
    outside = found if shared_git else ()
    added = (*extra, *(expand(name, home, workspace) for name in config.writable))
    roots = (workspace, *added)
    return Plan(
        workspace=workspace,
        writable=(*added, *outside),
        temp=temp,
        home=home,
        secrets=secret_paths(home, workspace, own=own, extra=config.secrets, readable=config.readable),
        protected=protected_paths(workspace, home, config.protected),
        git_folders=(*(root / ".git" for root in roots if (root / ".git").is_dir()), *outside),
        caches=cache_folders(os.environ, home) if config.shared_caches else (),
        readable=tuple(expand(name, home, workspace) for name in config.readable),
        seen=() if shared_git else found,
        blank=temp.parent / "blank",
    )
