"""The preflight: a process inside a wall tries what the wall must refuse."""

from __future__ import annotations

import os
import select
import socket
import sys
import tempfile
import time
from pathlib import Path

from aar.safety.sandbox.base import Fence, Plan, Probe
from aar.safety.spawn_link import SpawnServer
from aar.safety.spawn_server import probe

_TIMEOUT_S = 10.0


def probe_wall(server: SpawnServer, fence: Fence, plan: Plan) -> Probe:
    """Try ``fence``; blocks for some 20 milliseconds.

    Raises:
        SandboxError: The spawn server cannot be started.
    """
    code = Path(probe.__file__).read_text()
    ours, far = socket.socketpair()
    reader, writer = os.pipe()
    with ours, far, tempfile.NamedTemporaryFile(prefix="aar-preflight-") as outside:
        try:
            with Path(os.devnull).open("rb") as null:
                fds = [far.fileno(), null.fileno(), writer, writer]
                if fence.ruleset is not None:
                    fds.append(fence.ruleset)
                argv = [
                    *fence.prefix,
                    sys.executable,
                    "-I",
                    "-S",
                    "-E",
                    "-c",
                    code,
                    outside.name,
                    _home(plan),
                ]
                body: dict[str, object] = {
                    "argv": argv, "cwd": "/", "env": {"PATH": os.defpath}, "limits": {},
                    "wall": dict(fence.steps),
                }  # fmt: skip
                server.send(body, fds)
        finally:
            os.close(writer)
        far.close()
        try:
            return _answer(_read(reader), _drain(ours))
        finally:
            os.close(reader)


def _home(plan: Plan) -> str:
    """Return the home, where no command may write, unless it belongs to what they may."""
    roots = (plan.workspace, *plan.writable)
    return "" if any(plan.home.is_relative_to(root) for root in roots) else str(plan.home)


def _read(reader: int) -> str:
    data = b""
    deadline = time.monotonic() + _TIMEOUT_S
    while (left := deadline - time.monotonic()) > 0 and select.select([reader], [], [], left)[0]:
        part = os.read(reader, 4096)
        if not part:
            break
        data += part
    return data.decode(errors="replace").strip()


def _drain(sock: socket.socket) -> str:
    """Return why the process could not be started, if it said so."""
    data = b""
    deadline = time.monotonic() + _TIMEOUT_S
    while b"gone" not in data and (left := deadline - time.monotonic()) > 0:
        if not select.select([sock], [], [], left)[0]:
            break
        part = sock.recv(4096)
        if not part:
            break
        data += part
    failed = [line for line in data.decode(errors="replace").splitlines() if line.startswith("failed ")]
    return failed[0].split(" ", 3)[-1] if failed else ""


def _answer(output: str, failure: str) -> Probe:
    words = output.splitlines()[-1].split() if output else []
    if len(words) == 3 and words[0] == "probe":
        return Probe(write=words[1] == "1", network=words[2] == "1")
    said = output.splitlines()[-1] if output else ""
    return Probe(error=": ".join(part for part in (failure, said) if part) or "the preflight gave no answer")
