"""The paths of a session that a wall keeps unreadable, or should keep unwritten (DESIGN 12)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from aar.safety.paths import PROTECTED, SECRETS, SHELL_FILES

_NEEDED = ("/etc/passwd", "/proc")
"""Looked up by nearly every program (names of users), or guarded by the kernel in another way."""


def expand(path: str, home: Path, base: Path) -> Path:
    """Return ``path`` of the config as an absolute path without symlinks: ``~/`` is the home."""
    if path == "~" or path.startswith("~/"):
        return (home / path[2:]).resolve()
    return (base / path).resolve()


def protected_paths(workspace: Path, home: Path, extra: Iterable[str]) -> tuple[Path, ...]:
    """Return every path that commands should not write in ``workspace``, absent ones too."""
    return tuple(workspace / name for name in (*PROTECTED, *SHELL_FILES)) + tuple(
        expand(name, home, workspace) for name in extra
    )


def secret_paths(
    home: Path, workspace: Path, *, own: Iterable[Path], extra: Iterable[str], readable: Iterable[str]
) -> tuple[Path, ...]:
    """Return every path that commands may not read; those of ``readable`` are left out.

    A secret that is a symlink counts as both, the link and what it points to.
    """
    fixed = [name for name in SECRETS if not name.startswith(_NEEDED)]
    named = [home / name[2:] if name.startswith("~/") else Path(name) for name in fixed] + list(own)
    found = {path for item in named for path in (Path(os.path.abspath(item)), item.resolve())}  # noqa: PTH100 - the link itself, without `..`
    found |= {expand(item, home, workspace) for item in extra}
    opened = {expand(item, home, workspace) for item in readable}
    return tuple(sorted(path for path in found if not any(path.is_relative_to(item) for item in opened)))


def own_folders(environ: Mapping[str, str], home: Path) -> tuple[Path, ...]:
    """Return aar's own data, config and cache folders as the environment places them."""
    if moved := environ.get("AAR_HOME"):
        return (Path(moved).expanduser().absolute(),)
    defaults = {"XDG_CONFIG_HOME": ".config", "XDG_DATA_HOME": ".local/share", "XDG_CACHE_HOME": ".cache"}
    return tuple(Path(environ.get(name) or home / default) / "aar" for name, default in defaults.items())
