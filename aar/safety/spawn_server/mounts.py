"""Makes the private view of the file system of which `aar.safety.sandbox.view` gives the steps.

Runs in new user and mount namespaces. All sources are taken (open_tree(2)) before the first target is
covered, so that every step means the file system as it lies outside; then the whole tree is made read-only at
once (mount_setattr(2)) and the steps are put on top of it. Nothing is ever unmounted: what is covered stays
out of reach because the command has no rights to unmount and no way to a namespace where it would have them.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct

from aar.safety.spawn_server.kernel import StageError, libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
"""Numbers that are the same on every architecture."""
_CWD = -100
_EMPTY_PATH, _RECURSIVE = 0x1000, 0x8000
_CLONE = 1
_MOVE_FROM_DESCRIPTOR = 0x4
_READ_ONLY, _NO_SUID, _NO_DEVICES = 0x1, 0x2, 0x4
"""MOUNT_ATTR_*; mount(2) has the same values under other names."""
_NO_PROGRAMS = 0x8
_PRIVATE = 1 << 18
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
          "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx"}  # fmt: skip


def make_view(steps: Sequence[tuple[str, ...]]) -> None:
    """Do ``steps``; raises `StageError` naming the first that fails."""
    nodes = {name: _take(f"/dev/{name}") for name in _DEVICES}
    sources = [_source(step) for step in steps]
    for step, source in zip(steps, sources, strict=True):
        operation, target = step[0], step[-1]
        if operation in ("bind", "ro-bind", "ro-bind-try"):
            if target == "/":
                _set("/", _READ_ONLY | _NO_SUID | _NO_DEVICES, _RECURSIVE, _PRIVATE)
            elif source is not None:
                read_only = 0 if operation == "bind" else _READ_ONLY
                _place(source, target, read_only | _NO_SUID | _NO_DEVICES)
        elif operation == "tmpfs":
            _tmpfs(step[1], int(step[2]))
        elif operation == "dev":
            _devices(target, nodes)
        elif operation == "proc":
            _mount("proc", target, _NO_SUID | _NO_DEVICES | _NO_PROGRAMS, "")
        else:
            _set(target, _READ_ONLY, 0, 0)


def _source(step: tuple[str, ...]) -> int | None:
    if step[0] not in ("bind", "ro-bind", "ro-bind-try") or step[-1] == "/":
        return None
    try:
        return _take(step[1])
    except StageError:
        if step[0] == "ro-bind-try":
            return None
        raise


def _take(path: str) -> int:
    """Return a descriptor of a copy of the tree of mounts at ``path``, which is nowhere yet."""
    flags = _CLONE | os.O_CLOEXEC | _RECURSIVE
    return _call(f"open_tree {path}", _OPEN_TREE, _CWD, os.fsencode(path), flags)


def _place(tree: int, target: str, attributes: int) -> None:
    """Put a copy where it belongs, made there as a file or folder if nothing is."""
    if attributes:
        _set("", attributes, _RECURSIVE | _EMPTY_PATH, 0, tree)
    _make_target(target, folder=stat.S_ISDIR(os.fstat(tree).st_mode))
    _call(f"move_mount {target}", _MOVE_MOUNT, tree, b"", _CWD, os.fsencode(target), _MOVE_FROM_DESCRIPTOR)
    os.close(tree)


def _make_target(path: str, *, folder: bool) -> None:
    try:
        os.stat(path)  # noqa: PTH116 - pathlib is slow to import here
    except FileNotFoundError:
        try:
            os.makedirs(path if folder else path.rpartition("/")[0], exist_ok=True)  # noqa: PTH103 - as above
            if not folder:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise StageError("wall", error.errno or 0, f"{path}: {error.strerror}") from error


def _set(path: str, attributes: int, flags: int, propagation: int, at: int = _CWD) -> None:
    """Set attributes of mounts (struct mount_attr: set, clear, propagation, user namespace)."""
    wanted = struct.pack("4Q", attributes, 0, propagation, 0)
    what = f"mount_setattr {path}".rstrip()
    _call(what, _MOUNT_SETATTR, at, os.fsencode(path), flags, wanted, len(wanted))


def _tmpfs(target: str, size: int) -> None:
    _make_target(target, folder=True)
    limit = f",size={size}" if size else ""
    _mount("tmpfs", target, _NO_SUID | _NO_DEVICES, "mode=0755" + limit)


def _devices(target: str, nodes: dict[str, int]) -> None:
    """Make a ``/dev`` of the devices that everybody may use, and terminals of its own."""
    _mount("tmpfs", target, _NO_SUID | _NO_PROGRAMS, "mode=0755")
    for name, node in nodes.items():
        _place(node, f"{target}/{name}", 0)
    for name, goal in _LINKS.items():
        os.symlink(goal, f"{target}/{name}")  # noqa: PTH211 - as above
    os.mkdir(f"{target}/pts")  # noqa: PTH102 - as above
    _mount("devpts", f"{target}/pts", _NO_SUID | _NO_PROGRAMS, "newinstance,ptmxmode=0666,mode=620")


def _mount(kind: str, target: str, flags: int, options: str) -> None:
    name = kind.encode()
    done = libc.mount(name, os.fsencode(target), name, ctypes.c_ulong(flags), options.encode())
    if done == -1:
        code = ctypes.get_errno()
        raise StageError("wall", code, f"mount {kind} on {target}: {os.strerror(code)}")


def _call(what: str, number: int, *arguments: int | bytes) -> int:
    """Make a system call; raises `StageError` when it fails."""
    ready = [ctypes.c_long(item) if isinstance(item, int) else item for item in arguments]
    result = libc.syscall(ctypes.c_long(number), *ready)
    if result == -1:
        code = ctypes.get_errno()
        raise StageError("wall", code, f"{what}: {os.strerror(code)}")
    return result
