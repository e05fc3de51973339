"""The way of a command into namespaces of its own, without the help of any program.

Processes: the forked child makes the namespaces and stays outside of the process namespace, as the stand-in
whom the supervisor watches. Its child is the namespace's first process: it makes the view (see
`aar.safety.spawn_server.mounts`), drops all rights, forks the command and collects orphans. It ends with the
command, and all that is left in the namespace with it.
"""

from __future__ import annotations

import os

from aar.safety.spawn_server.kernel import (
    CLONE_NEWCGROUP,
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    StageError,
    check,
    libc,
    prctl,
    signal,
)
from aar.safety.spawn_server.mounts import make_view
from aar.safety.spawn_server.network import PrivateNetwork, loopback_up, map_own_user
from aar.safety.spawn_server.walls import drop_capabilities, install_filter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_ALL_DESCRIPTORS = 1 << 20


def enter_view(wall: dict[str, Any], cwd: str, supervisor: int, network: PrivateNetwork) -> None:
    """Return in the process that is to become the command; those above it stay in here.

    Args:
        wall: See the package: ``private_network``, ``own_network``, ``view`` and ``filter``.
        cwd: Working folder, as it is called inside.
        supervisor: Process id of the parent.
        network: The session's, entered where the wall asks for it.
    """
    if wall["private_network"]:
        network.enter()
    flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP
    uid, gid = os.geteuid(), os.getegid()
    check(libc.unshare(flags | (CLONE_NEWNET if wall["own_network"] else 0)), "unshare")
    map_own_user(uid, gid)
    if wall["own_network"]:
        loopback_up()
    # The change of user namespace has cleared it.
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)
    first = os.fork()
    if first:
        _stand_for(first)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    make_view(wall["view"])
    try:
        os.chdir(cwd)
    except OSError as error:
        raise StageError("chdir", error.errno or 0, error.strerror or "") from error
    prctl(PR_SET_NO_NEW_PRIVS, 1, "no_new_privs")
    drop_capabilities(0)
    install_filter(wall["filter"].encode("latin-1"))
    command = os.fork()
    if command:
        _be_first(command)
    os.setsid()


def _stand_for(first: int) -> NoReturn:
    """Wait for the namespace's end and end likewise."""
    os.closerange(0, _ALL_DESCRIPTORS)
    os._exit(_exit_status(os.waitpid(first, 0)[1]))


def _be_first(command: int) -> NoReturn:
    """Collect whatever ends, until the command does: the end of this process kills the rest."""
    os.closerange(0, _ALL_DESCRIPTORS)
    # The command has the same user, and should see nothing of what is in here.
    prctl(PR_SET_DUMPABLE, 0)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == command:
            os._exit(_exit_status(status))


def _exit_status(status: int) -> int:
    """Return what a shell calls the end of a process: 128 and the signal, where one killed it."""
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code
