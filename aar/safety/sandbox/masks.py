"""Empty folders that stand for absent protected paths while commands run.

A path that is not there cannot be bound read-only, and what is bound over must exist (DESIGN 12). So an
empty folder is made for as long as a command runs: for git hooks, and for every path when the command has
no time limit. For the others it would cost a millisecond each, and mislead who lists the folder. Every user
holds a shared lock on it: who gets it alone was the last one and removes it, also what a killed aar has left
behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterable
from pathlib import Path

MASK_MODE = 0o1555
"""Tells such a folder from one of the user's. `aar.safety.spawn_server.serve` knows it too."""


def is_mask(path: Path) -> bool:
    """Return whether an empty folder of ours lies at ``path``."""
    try:
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or stat.S_IMODE(found.st_mode) != MASK_MODE:
            return False
        return found.st_uid == os.geteuid() and not any(path.iterdir())
    except OSError:
        return False


class Masks:
    """The masks that this process uses now, counted."""

    def __init__(self) -> None:
        self._held: dict[Path, tuple[int, int]] = {}

    def acquire(self, paths: Iterable[Path]) -> tuple[Path, ...]:
        """Make sure that each path is a mask; returns those that are (another may have made something)."""
        return tuple(path for path in paths if self._take(path))

    def _take(self, path: Path) -> bool:
        if path in self._held:
            fd, count = self._held[path]
            self._held[path] = (fd, count + 1)
            return True
        fd = _made_or_found(path)
        if fd is None:
            return False
        fcntl.flock(fd, fcntl.LOCK_SH)
        self._held[path] = (fd, 1)
        return True

    def lift(self, path: Path) -> None:
        """Remove the mask at or above ``path``, though commands run: something real is about to be there.

        What is bound over it in their view goes with it, so that they see and may change what comes.
        """
        for mask in [mask for mask in self._held if path.is_relative_to(mask)]:
            os.close(self._held.pop(mask)[0])
            with contextlib.suppress(OSError):
                mask.rmdir()

    def release(self, paths: Iterable[Path]) -> None:
        """Give back what `acquire` returned, and remove what nobody uses any more."""
        for path in paths:
            if path not in self._held:
                continue
            fd, count = self._held.pop(path)
            if count > 1:
                self._held[path] = (fd, count - 1)
                continue
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue  # Another aar in the same workspace still needs it.
            else:
                with contextlib.suppress(OSError):
                    path.rmdir()
            finally:
                os.close(fd)


def _made_or_found(path: Path) -> int | None:
    """Open the mask at ``path``, made where nothing is; ``None`` when something else is there."""
    try:
        made = True
        try:
            path.mkdir(MASK_MODE)
        except FileExistsError:
            made = False
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        # By its descriptor: a command that runs may have put a link to another folder here meanwhile.
        if made and not os.listdir(fd):  # noqa: PTH208 - a descriptor is no path
            os.fchmod(fd, MASK_MODE)
        if is_mask(path):
            return fd
    os.close(fd)
    return None
