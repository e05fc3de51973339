"""From a session's plan to what a wall must do with each protected path (DESIGN 12)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from aar.safety.paths import SHELL_FILES
from aar.safety.sandbox.base import Limits, Plan
from aar.safety.sandbox.masks import is_mask

_MAX_MODULES = 50
_SHELL_NAMES = frozenset(name.rpartition("/")[2] for name in SHELL_FILES)
Stamp = tuple[tuple[int, ...] | None, ...]


def stamp(paths: Iterable[str]) -> Stamp:
    """Return kind, mode and identity of what lies at each path: what a fence for them depends on."""
    found: list[tuple[int, ...] | None] = []
    for path in paths:
        try:
            status = os.lstat(path)
        except OSError:
            found.append(None)
        else:
            found.append((status.st_mode, status.st_ino))
    return tuple(found)


@dataclass(slots=True)
class Protection:
    """What to do with the protected paths.

    Attributes:
        read_only: Paths that are there, to be bound read-only.
        anchors: Folders above them, to be bound onto themselves: a mount point cannot be renamed.
        absent: First missing part of each path that is not there.
        guarded: Paths that no mount can protect, to be compared afterwards.
        granted: What was unlocked at or below them.
    """

    read_only: list[Path] = field(default_factory=list[Path])
    anchors: list[Path] = field(default_factory=list[Path])
    absent: list[Path] = field(default_factory=list[Path])
    guarded: list[Path] = field(default_factory=list[Path])
    granted: tuple[Path, ...] = ()

    def tidy(self) -> Protection:
        """Return the same without repetitions."""
        lists = (self.read_only, self.anchors, self.absent, self.guarded)
        read_only, anchors, absent, guarded = (list(dict.fromkeys(paths)) for paths in lists)
        return Protection(read_only, anchors, absent, guarded, self.granted)


def protect(plan: Plan, limits: Limits, nested: Iterable[Path] = ()) -> Protection:
    """Sort all protected paths by what can be done for them.

    Args:
        plan: The session.
        limits: Of this command; a path of ``writable`` in the workspace unlocks what is at or below it.
        nested: Git folders deeper in the workspace.
    """
    found = Protection(granted=unlocked_paths(plan, limits))
    if limits.read_only:
        return found
    # The workspace's own may have been made since the plan was.
    tops = dict.fromkeys((plan.workspace / ".git", *plan.git_folders, *nested))
    folders = [folder for top in tops for folder in (top, *_modules(top))]
    bare = is_empty(plan.workspace)
    for path in plan.protected:
        # What ``git clone … .`` brings into an empty folder is the project.
        cloned = bare and limits.git_config and path != plan.workspace / ".aar"
        if cloned or _is_of_git(path, plan) or _unlocked(path, found):
            continue
        if _unlocked_below(path, found):
            found.guarded.append(path)
        else:
            # Of the many files of shells hardly any is there: so many folders would be litter.
            mask = limits.lasting and not bare and path.name not in _SHELL_NAMES
            _sort(path, _root_of(path, plan), found, mask=mask)
    for folder in folders:
        _sort_git(folder, plan, limits, found)
    link = plan.workspace / ".git"
    if link.is_file():
        _sort(link, plan.workspace, found, mask=False)
    elif not link.exists():
        found.guarded += [link / "hooks", link / "config"]
    return found.tidy()


class Layout:
    """Tells cheaply whether `protect` would say something else than before.

    Args:
        plan: The session.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._modules = tuple(
            str(top / "modules") for top in dict.fromkeys((plan.workspace / ".git", *plan.git_folders))
        )
        self._watched: dict[object, tuple[str, ...]] = {}

    def state(self, nested: tuple[Path, ...]) -> object:
        """Return something that is equal as long as `protect` would say the same."""
        listings = tuple(map(_changed, self._modules))
        key = nested, listings
        if key not in self._watched:
            self._watched = {key: tuple(map(str, _depends_on(self._plan, nested)))}
        return key, stamp(self._watched[key]), is_empty(self._plan.workspace)


def _changed(folder: str) -> int:
    """Return when the listing of ``folder`` last changed; 0 where there is none."""
    try:
        return os.stat(folder).st_mtime_ns  # noqa: PTH116 - a plain string is cheaper
    except OSError:
        return 0


def _depends_on(plan: Plan, nested: tuple[Path, ...]) -> list[Path]:
    """Return every path whose kind `protect` looks at."""
    tops = dict.fromkeys((plan.workspace / ".git", *plan.git_folders, *nested))
    folders = [folder for top in tops for folder in (top, *_modules(top))]
    ends = [*plan.protected, *(folder / name for folder in folders for name in ("hooks", "config"))]
    steps = [step for path in ends for step in (*_between(_root_of(path, plan), path), path)]
    return list(dict.fromkeys((*tops, *folders, *steps)))


def everything(plan: Plan, limits: Limits, nested: Iterable[Path] = ()) -> tuple[Path, ...]:
    """Return all protected paths, for a wall that can only compare."""
    found = protect(plan, limits, nested)
    known = (*found.read_only, *found.guarded)
    # A mask stands for the first missing part; without masks the whole path is meant.
    below = [path for path in plan.protected if any(path.is_relative_to(top) for top in found.absent)]
    hooks = [top for top in found.absent if top not in below]
    return tuple(dict.fromkeys([*known, *below, *hooks]))


def _sort_git(folder: Path, plan: Plan, limits: Limits, found: Protection) -> None:
    if not folder.is_dir():
        return
    root = _root_of(folder, plan)
    if _unlocked_below(folder / "hooks", found):
        found.guarded.append(folder / "hooks")
    elif not _unlocked(folder / "hooks", found):
        _sort(folder / "hooks", root, found, mask=True)
    if _unlocked(folder / "config", found):
        return
    if limits.git_config:
        found.guarded.append(folder / "config")
        found.anchors += _between(root, folder / "config")
    else:
        _sort(folder / "config", root, found, mask=False)
    found.guarded += [folder / "commondir", folder / "config.worktree"]


def _sort(path: Path, root: Path, found: Protection, *, mask: bool) -> None:
    """Put ``path`` where it belongs. ``root`` is a folder above it that cannot be replaced."""
    steps = [*_between(root, path), path]
    for step in steps:
        try:
            mode = step.lstat().st_mode
        except OSError:
            (found.absent if mask else found.guarded).append(step if mask else path)
            return
        if stat.S_ISLNK(mode) or (step != path and not stat.S_ISDIR(mode)):
            found.guarded.append(path)
            return
        if is_mask(step):
            (found.absent if mask else found.guarded).append(step)
            return
        (found.read_only if step == path else found.anchors).append(step)


def _between(root: Path, path: Path) -> list[Path]:
    """Return the folders below ``root`` and above ``path``, from the top."""
    return [parent for parent in reversed(path.parents) if parent != root and parent.is_relative_to(root)]


def _root_of(path: Path, plan: Plan) -> Path:
    roots = [root for root in (plan.workspace, *plan.writable) if path.is_relative_to(root)]
    return max(roots, key=lambda root: len(root.parts), default=path.parent)


def _is_of_git(path: Path, plan: Plan) -> bool:
    return path.is_relative_to(plan.workspace / ".git")


def unlocked_paths(plan: Plan, limits: Limits) -> tuple[Path, ...]:
    """Return what of ``limits.writable`` lies where commands write anyway: protected paths are meant."""
    if limits.read_only:
        return ()
    roots = (plan.workspace, *plan.writable)
    return tuple(
        path
        for path in limits.writable
        if path not in roots and any(path.is_relative_to(root) for root in roots)
    )


def _unlocked(path: Path, found: Protection) -> bool:
    return any(path.is_relative_to(one) for one in found.granted)


def _unlocked_below(path: Path, found: Protection) -> bool:
    return any(one != path and one.is_relative_to(path) for one in found.granted)


def _modules(folder: Path) -> list[Path]:
    """Return the git folders of submodules."""
    try:
        found = sorted((folder / "modules").iterdir())
    except OSError:
        return []
    return [path for path in found[:_MAX_MODULES] if (path / "HEAD").is_file()]


def is_empty(folder: Path) -> bool:
    """Masks in an empty folder would keep ``git clone … .`` from working; there everything is compared."""
    try:
        with os.scandir(folder) as entries:
            return all(entry.is_dir(follow_symlinks=False) and is_mask(Path(entry.path)) for entry in entries)
    except OSError:
        return False
