"""Where aar keeps its own files, and what a project is called (DESIGN 4)."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aar.protocol.errors import StorageError

_SOCKET_FOLDER_CHARS = 80
"""Longest runtime folder: a Unix socket's whole path has about 104 bytes (macOS) or 108 (Linux)."""

_MARKERS = (".git", ".aar")


@dataclass(frozen=True, slots=True)
class Paths:
    """aar's own folders. None of them exists before `ensure` was called for it.

    Attributes:
        data: What must never be lost: sessions, models, logs, trust.
        config: ``config.toml``, ``AGENTS.md`` and what else the user writes.
        cache: What can be made again.
        runtime: Sockets and locks of running processes; a short path.
    """

    data: Path
    config: Path
    cache: Path
    runtime: Path

    @property
    def sessions(self) -> Path:
        """Session files, one folder for each project."""
        return self.data / "sessions"

    @property
    def models(self) -> Path:
        """Weights of embedded models."""
        return self.data / "models"

    @property
    def logs(self) -> Path:
        """The diagnostics log."""
        return self.data / "logs"

    @property
    def outputs(self) -> Path:
        """Whole outputs of tools that belong to no stored session."""
        return self.data / "outputs"

    @property
    def spending(self) -> Path:
        """What was spent, a file for each day."""
        return self.data / "spending"

    @property
    def user_config(self) -> Path:
        """The user's config file."""
        return self.config / "config.toml"


def paths(environ: Mapping[str, str] | None = None) -> Paths:
    """Return aar's folders: below ``AAR_HOME`` when that is set, else where the platform puts them.

    Args:
        environ: Environment to read; none: the process's own.
    """
    environ = os.environ if environ is None else environ
    home = environ.get("AAR_HOME")
    if home:
        data = Path(home).expanduser().absolute()
        config, cache = data / "config", data / "cache"
        name = "aar-" + _digest(data)[:8]
    else:
        data = _platform_folder(environ, "XDG_DATA_HOME", "user_data_path")
        config = _platform_folder(environ, "XDG_CONFIG_HOME", "user_config_path")
        cache = _platform_folder(environ, "XDG_CACHE_HOME", "user_cache_path")
        name = "aar"
    return Paths(data, config, cache, _runtime_folder(environ, cache, name))


def _platform_folder(environ: Mapping[str, str], variable: str, function: str) -> Path:
    base = environ.get(variable, "")
    if base and Path(base).is_absolute():
        return Path(base) / "aar"
    import platformdirs

    return Path(getattr(platformdirs, function)("aar", appauthor=False))


def _runtime_folder(environ: Mapping[str, str], cache: Path, name: str) -> Path:
    given = environ.get("XDG_RUNTIME_DIR", "")
    if given and Path(given).is_absolute() and _is_private(Path(given)):
        return Path(given) / name
    inside = cache / "run"
    if len(os.fsencode(inside)) <= _SOCKET_FOLDER_CHARS:
        return inside
    import tempfile

    digest = _digest(cache)[:8]
    return Path(tempfile.gettempdir()) / f"aar-{os.getuid()}-{digest}"


def _is_private(folder: Path) -> bool:
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def ensure(folder: Path) -> Path:
    """Make ``folder`` and its missing parents, for the owner only (0700), and return it.

    Raises:
        StorageError: It cannot be made, or it is a link, no folder, everybody's, or another user's.
    """
    try:
        for parent in [*reversed(folder.parents), folder]:
            if not parent.exists():
                parent.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if stat.S_ISLNK(status.st_mode):
            status = _owned_link(folder)
        if not stat.S_ISDIR(status.st_mode):
            raise StorageError(f"{folder} is in the way: aar needs a folder of that name. Move it aside.")
        if status.st_uid != os.getuid():
            raise StorageError(f"{folder} belongs to another user; set AAR_HOME to a folder of your own.")
        if status.st_mode & stat.S_ISVTX:
            # Such as /tmp, which root owns: closing it would break the machine.
            raise StorageError(f"{folder} is everybody's folder; set AAR_HOME to a folder of your own.")
        if status.st_mode & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        raise StorageError(
            f"The folder {folder} cannot be used ({error.strerror}); make it writable or set AAR_HOME."
        ) from error
    return folder


def _owned_link(folder: Path) -> os.stat_result:
    """Follow a link only when this user made it: others may plant links in shared folders."""
    if folder.lstat().st_uid != os.getuid():
        raise StorageError(f"{folder} is another user's link; remove it or set AAR_HOME.")
    return folder.stat()


def project_root(cwd: Path) -> Path:
    """Return the nearest folder at or above ``cwd`` that holds ``.git`` or ``.aar``, else ``cwd``, resolved.

    git is not asked: what a repository's own config names must not run before trust.
    """
    resolved = cwd.resolve()
    for folder in (resolved, *resolved.parents):
        if any(os.path.lexists(folder / marker) for marker in _MARKERS):
            return folder
    return resolved


def project_key(root: Path) -> str:
    """Return the folder name of a project's sessions: base name, ``-``, 12 hex of the path's SHA-256."""
    resolved = root.resolve()
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", resolved.name).strip("-.")[:40] or "root"
    return f"{name}-{_digest(resolved)[:12]}"


def _digest(path: Path) -> str:
    # Imported here: it loads a large library, and the first frame needs no digest.
    import hashlib

    return hashlib.sha256(os.fsencode(path)).hexdigest()
