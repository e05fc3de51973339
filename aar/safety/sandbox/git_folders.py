"""Git folders outside the workspace that commands must write, so that git works in worktrees and submodules.

A workspace may be an attack: its ``.git`` file is believed only when the folder that it names is a git
folder that points back to this very workspace, as git itself makes them (gitrepository-layout(5)).
"""

from __future__ import annotations

from pathlib import Path

_MAX_BYTES = 64_000


def outside_git_folders(workspace: Path) -> tuple[Path, ...]:
    """Return the git folder of a worktree or submodule whose root is ``workspace``, and its common folder."""
    link = workspace / ".git"
    if not link.is_file():
        return ()
    target = _named(link, "gitdir:", workspace)
    if target is None or not (target / "HEAD").is_file():
        return ()
    common = _named(target / "commondir", "", target)
    if common is not None:
        back = _named(target / "gitdir", "", target)
        genuine = target.parent == common / "worktrees" and back == link
        return (common,) if genuine and _is_git_folder(common) else ()
    return (target,) if _is_git_folder(target) and _worktree_of(target) == workspace else ()


def _is_git_folder(folder: Path) -> bool:
    return all((folder / name).exists() for name in ("HEAD", "objects", "refs"))


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _named(file: Path, prefix: str, base: Path) -> Path | None:
    text = _read(file).strip()
    if not text.startswith(prefix) or not text.removeprefix(prefix).strip() or "\0" in text:
        return None
    return (base / text.removeprefix(prefix).strip()).resolve()


def _worktree_of(folder: Path) -> Path | None:
    """Return ``core.worktree`` of a submodule's git folder."""
    for line in _read(folder / "config").splitlines():
        key, _, value = line.partition("=")
        if key.strip().lower() == "worktree":
            return (folder / value.strip().strip('"')).resolve()
    return None
