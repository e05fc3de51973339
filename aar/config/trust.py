"""Which projects the user trusts, pinned to all that could run or steer (DESIGN 7, SECURITY T1 and T5).

Nothing here runs or interprets what it reads: files are hashed, names are listed. A project whose
fingerprint has changed is no longer trusted.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tomllib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from aar.config.files import UnusableFileError, read_regular, write_atomic
from aar.config.paths import Paths, ensure
from aar.protocol.errors import ConfigurationError, StorageError

NOTE = "AGENTS.md and CLAUDE.md in folders below are rules of a trusted project too."
_MAX_ENTRIES = 3000
_MAX_FILE_BYTES = 2_000_000
_MAX_TOTAL_BYTES = 64_000_000
_FOLDER_KINDS = ("hooks", "agents", "commands", "extensions", "skills")
_SINGLE_FILES = {
    "AGENTS.md": "rules",
    "CLAUDE.md": "rules",
    "CLAUDE.local.md": "rules",
    ".mcp.json": "mcp",
    ".cursor/mcp.json": "mcp",
    ".vscode/mcp.json": "mcp",
    ".env": "environment",
}
_TREES = (".aar", ".agents")
_CLAUDE_PARTS = (
    "settings.json",
    "settings.local.json",
    "CLAUDE.md",
    "agents",
    "commands",
    "hooks",
    "rules",
    "skills",
)
"""The parts of ``.claude`` that configure; it may also hold whole work trees."""


@dataclass(frozen=True, slots=True)
class TrustItem:
    """One thing that trust lets in.

    Attributes:
        kind: ``config hooks agents commands extensions skills rules mcp environment other``.
        path: Relative to the project's root, as written there: not safe to show raw.
        summary: What it sets or how large it is; names in it come from the project.
        sha256: Of what counts of it (content, mode, where links lead); hex.
    """

    kind: str
    path: str
    summary: str
    sha256: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """All of a project that could run something or steer the model.

    Attributes:
        sha256: Changes when any of it changes; hex.
        items: What there is, in order of paths.
        complete: False when there is too much to look at; such a project cannot be trusted.
    """

    sha256: str
    items: tuple[TrustItem, ...]
    complete: bool = True


def fingerprint(root: Path) -> Fingerprint:
    """Hash and list all that could run or steer in the project at ``root``. Reads, and never runs."""
    root = root.resolve()
    digest = hashlib.sha256(b"aar trust 1\n")
    items: list[TrustItem] = []
    complete = True
    total = 0
    for count, path in enumerate(_candidates(root)):
        total += min(path.lstat().st_size, _MAX_FILE_BYTES) if os.path.lexists(path) else 0
        if count >= _MAX_ENTRIES or total > _MAX_TOTAL_BYTES:
            complete = False
            break
        name = path.relative_to(root).as_posix()
        state, summary = _state(root, path)
        digest.update(hashlib.sha256(os.fsencode(name)).digest() + hashlib.sha256(state).digest())
        items.append(TrustItem(_kind(name), name, summary, hashlib.sha256(state).hexdigest()))
    return Fingerprint(digest.hexdigest(), tuple(items), complete)


def untrusted_notice(found: Fingerprint) -> str | None:
    """Return the one line for a run without trust, or ``None`` when there is nothing to trust."""
    if not found.items:
        return None
    kinds = ", ".join(sorted({item.kind for item in found.items}))
    return f"This project is not trusted: its {kinds} are not used. Look at them, then run with --trust."


def _candidates(root: Path) -> Iterator[Path]:
    starts = [root / name for name in (*_SINGLE_FILES, *_TREES)]
    starts += [root / ".claude" / name for name in _CLAUDE_PARTS]
    seen: set[Path] = set()
    for start in sorted(starts):
        yield from _walk(root, start, seen)


def _walk(root: Path, path: Path, seen: set[Path]) -> Iterator[Path]:
    """Yield files and links at and below ``path``; folders behind links only inside the project."""
    if not os.path.lexists(path):
        return
    if path.is_symlink():
        yield path
    if not path.is_dir():
        if not path.is_symlink():
            yield path
        return
    real = path.resolve()
    if real in seen or not real.is_relative_to(root):
        return
    seen.add(real)
    try:
        names = sorted(entry.name for entry in os.scandir(path))
    except OSError:
        yield path
        return
    for name in names:
        yield from _walk(root, path / name, seen)


def _state(root: Path, path: Path) -> tuple[bytes, str]:
    """Return what goes into the hash for one file, and what is told about it."""
    link = os.fsencode(path.readlink()) if path.is_symlink() else b""
    if path.is_dir():
        return b"folder:" + link, "a link to a folder" if link else "an unreadable folder"
    try:
        data = read_regular(path, _MAX_FILE_BYTES, inside=root)
    except UnusableFileError as error:
        return b"unusable:" + link, f"not read: {error}"
    if data is None:
        return b"absent", "gone"
    if len(data) > _MAX_FILE_BYTES:
        status = path.stat()
        identity = f"{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"
        return b"huge:" + link + identity.encode(), f"{status.st_size:,} bytes"
    executable = b"x" if path.stat().st_mode & stat.S_IXUSR else b"-"
    return executable + link + b":" + hashlib.sha256(data).digest(), _summary(path, data)


def _kind(name: str) -> str:
    if name in _SINGLE_FILES:
        return _SINGLE_FILES[name]
    parts = name.split("/")
    if name == ".aar/config.toml" or parts[-1] in ("settings.json", "settings.local.json"):
        return "config"
    if parts[-1] in ("AGENTS.md", "CLAUDE.md") or "rules" in parts[1:2]:
        return "rules"
    return parts[1] if len(parts) > 1 and parts[1] in _FOLDER_KINDS else "other"


def _summary(path: Path, data: bytes) -> str:
    if path.name == "config.toml":
        return _toml_summary(data)
    if path.suffix == ".json":
        return _json_summary(data)
    return f"{len(data):,} bytes"


def _toml_summary(data: bytes) -> str:
    try:
        tables = tomllib.loads(data.decode())
    except (ValueError, RecursionError):
        return "not valid TOML"
    return _names("sets", tables)


def _json_summary(data: bytes) -> str:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return "not valid JSON"
    if not isinstance(value, dict):
        return f"{len(data):,} bytes"
    tables = cast("dict[str, Any]", value)
    servers = tables.get("mcpServers")
    if isinstance(servers, dict):
        return _names("servers", cast("dict[str, Any]", servers))
    return _names("sets", tables)


def _names(verb: str, names: dict[str, Any]) -> str:
    shown = ", ".join(str(name)[:40] for name in list(names)[:8])
    return f"{verb} {shown or 'nothing'}" + (f" and {len(names) - 8} more" if len(names) > 8 else "")


class TrustStore:
    """The user's decisions, in ``<data>/trust.json`` (0600), out of reach of any project."""

    def __init__(self, paths: Paths) -> None:
        self._file = paths.data / "trust.json"

    def is_trusted(self, root: Path, found: Fingerprint | None = None) -> bool:
        """Tell whether the user trusts the project as it is now. A damaged store trusts nothing."""
        entry = self._read().get(_key(root))
        if entry is None:
            return False
        found = fingerprint(root) if found is None else found
        return found.complete and entry.get("sha256") == found.sha256

    def is_known(self, root: Path) -> bool:
        """Tell whether the project was trusted once, perhaps in another state."""
        return _key(root) in self._read()

    def changed(self, root: Path, found: Fingerprint) -> tuple[str, ...]:
        """Return the paths that are new, other or gone since the project was trusted last."""
        files = self._read().get(_key(root), {}).get("files")
        before = cast("dict[str, Any]", files) if isinstance(files, dict) else {}
        now = {item.path: item.sha256 for item in found.items}
        return tuple(sorted(path for path in {*before, *now} if before.get(path) != now.get(path)))

    def record(self, root: Path, found: Fingerprint | None = None) -> Fingerprint:
        """Trust the project as it is now, or as it was when ``found`` was shown to the user.

        Raises:
            ConfigurationError: There is too much in it to look at.
            StorageError: The store cannot be written.
        """
        found = fingerprint(root) if found is None else found
        if not found.complete:
            raise ConfigurationError(
                f"{root} cannot be trusted: it has too many or too large files that configure or run."
            )
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with self._changing() as projects:
            files = {item.path: item.sha256 for item in found.items}
            projects[_key(root)] = {"sha256": found.sha256, "since": now, "files": files}
        return found

    def forget(self, root: Path) -> bool:
        """Take trust back; tell whether there was any."""
        if not self.is_known(root):
            return False
        with self._changing() as projects:
            return projects.pop(_key(root), None) is not None

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            data = json.loads(self._file.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        projects = cast("dict[str, Any]", data).get("projects") if isinstance(data, dict) else None
        if not isinstance(projects, dict):
            return {}
        entries = cast("dict[str, Any]", projects).items()
        return {key: cast("dict[str, Any]", entry) for key, entry in entries if isinstance(entry, dict)}

    @contextmanager
    def _changing(self) -> Generator[dict[str, dict[str, Any]]]:
        """Read, let the caller change, write; one process at a time."""
        import fcntl

        ensure(self._file.parent)
        try:
            lock = os.open(self._file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                projects = self._read()
                yield projects
                text = json.dumps({"version": 1, "projects": projects}, indent=1)
                write_atomic(self._file, text.encode())
            finally:
                os.close(lock)
        except OSError as error:
            raise StorageError(
                f"{self._file} cannot be written ({error.strerror}); free or unlock it."
            ) from error


def _key(root: Path) -> str:
    return str(root.resolve())
