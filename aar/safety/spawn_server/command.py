"""The forked child on its way to becoming the command."""

from __future__ import annotations

import errno
import os
import stat

from aar.safety.spawn_server.kernel import (
    LINUX,
    PR_SET_PDEATHSIG,
    StageError,
    prctl,
    quietly,
    signal,
)
from aar.safety.spawn_server.walls import raise_wall, set_limits, tasks_of_machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from aar.safety.spawn_server.network import PrivateNetwork

SECCOMP_FD, STATUS_FD = 60, 61
"""Numbers under which bubblewrap finds its filter and tells how it fares; above all that are in use."""


def run_command(
    request: dict[str, Any], fds: list[int], supervisor: int, network: PrivateNetwork, status: int
) -> None:
    """Become the command (in the forked child). Returns only by `StageError`.

    Args:
        request: See the package.
        fds: Its descriptors.
        supervisor: Process id of the parent.
        network: Entered where the wall asks for it.
        status: Pipe to which bubblewrap tells how it fares.
    """
    for target, fd in enumerate(fds[1:4]):
        os.dup2(fd, target)
    try:
        os.chdir(request["cwd"])
    except OSError as error:
        raise StageError("chdir", error.errno or 0, error.strerror or "") from error
    limits = dict(request["limits"])
    if "NPROC" in limits and LINUX:
        # The kernel counts all threads of the user, of which there are at most as many as on the machine.
        limits["NPROC"] += tasks_of_machine()
    set_limits(limits)
    if LINUX and request.get("sacrifice"):
        # When memory runs out the kernel should take commands, not aar or the desktop.
        quietly(_write, "/proc/self/oom_score_adj", b"500")
    if LINUX and request["wall"].get("namespaces"):
        from aar.safety.spawn_server.namespaces import enter_view

        # Returns in another process.
        enter_view(request["wall"], request["cwd"], supervisor, network)
    elif LINUX:
        raise_wall(request["wall"], fds[4] if len(fds) > 4 else None, network)
        # Last, because a change of user namespace clears it.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)
    try:
        if "bubblewrap" in request["wall"]:
            find_program(request["argv"][0], request["env"])
            execute(bubblewrap_command(request, status), request["env"])
        execute(request["argv"], request["env"])
    except OSError as error:
        raise StageError("exec", error.errno or 0, error.strerror or "") from error
    except ValueError as error:
        raise StageError("exec", errno.EINVAL, str(error)) from error


def execute(argv: list[str], env: dict[str, str]) -> NoReturn:
    """Become the program, looked up in the PATH of ``env`` as execvp(3) does.

    ``os.execvpe`` would import a module first, behind the wall.
    """
    name = argv[0]
    if "/" in name:
        os.execve(name, argv, env)  # noqa: S606 - that is what it is for
    refused: OSError | None = None
    for folder in env.get("PATH", os.defpath).split(":"):
        try:
            os.execve(f"{folder or '.'}/{name}", argv, env)  # noqa: S606 - as above
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            refused = refused or error
    raise refused or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def bubblewrap_command(request: dict[str, Any], status: int) -> list[str]:
    """Return the command with bubblewrap before it, and its descriptors in place."""
    wall = request["wall"]
    words = list(wall["bubblewrap"])
    for operation, *names in wall["view"]:
        if operation == "tmpfs" and names[1]:
            words += ["--size", str(names[1])]
        words += ["--" + operation, *(names[:1] if operation == "tmpfs" else names)]
    if program := wall.get("filter"):
        source = os.memfd_create("filter", 0)
        os.write(source, program.encode("latin-1"))
        os.lseek(source, 0, os.SEEK_SET)
        os.dup2(source, SECCOMP_FD)
        os.close(source)
        words += ["--seccomp", str(SECCOMP_FD)]
    os.dup2(status, STATUS_FD)
    words += ["--json-status-fd", str(STATUS_FD), "--chdir", request["cwd"], "--"]
    return words + list(request["argv"])


def find_program(name: str, env: dict[str, str]) -> None:
    """Raise what exec would: behind bubblewrap nobody could tell it from the command's own end."""
    folders = (
        [""] if "/" in name else [(folder or ".") + "/" for folder in env.get("PATH", os.defpath).split(":")]
    )
    refused: OSError | None = None
    for folder in folders:
        try:
            mode = os.stat(folder + name).st_mode  # noqa: PTH116 - pathlib is slow to import here
        except OSError as error:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                refused = refused or error
            continue
        if stat.S_ISREG(mode) and os.access(folder + name, os.X_OK):
            return
        refused = refused or PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    raise refused or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
