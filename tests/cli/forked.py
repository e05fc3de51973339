"""Runs aar in processes that are forked from one in which its modules are imported already.

Such a process has its own streams, folder and environment, and costs 20 ms instead of half a second. What
depends on how Python starts, and what gets signals, needs `tests.cli.support.start` instead.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

MODULES = [
    "tests.cli.forked",
    "aar.transports.cli.main",
    "aar.transports.cli.run",
    "aar.transports.cli.sessions",
    "aar.transports.cli.doctor",
    "aar.transports.cli.models",
    "aar.transports.cli.config",
    "aar.transports.cli.printers",
    "aar.runtime.parts",
    "aar.providers.scripted",
    "aar.providers.openai_compatible",
    "aar.tools.builtin.catalogue",
    "httpx2",
]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(MODULES)


def run(
    args: Sequence[str], cwd: Path, env: dict[str, str], stdin: bytes | None, timeout_s: float
) -> tuple[int, bytes, bytes]:
    """Run aar to its end; return exit code, standard output and standard error."""
    with tempfile.TemporaryDirectory(prefix="aar-test-") as name:
        folder = Path(name)
        if stdin is not None:
            (folder / "in").write_bytes(stdin)
        process = _context.Process(target=_child, args=(list(args), str(cwd), env, name))
        process.start()
        process.join(timeout_s)
        if process.exitcode is None:
            process.kill()
            raise AssertionError(f"aar {' '.join(args)} did not end within {timeout_s} s")
        return process.exitcode, (folder / "out").read_bytes(), (folder / "err").read_bytes()


def _child(args: list[str], cwd: str, env: dict[str, str], name: str) -> None:
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    folder = Path(name)
    given = folder / "in"
    for number, path, flags in (
        (0, given if given.exists() else Path(os.devnull), os.O_RDONLY),
        (1, folder / "out", os.O_WRONLY | os.O_CREAT),
        (2, folder / "err", os.O_WRONLY | os.O_CREAT),
    ):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
    sys.argv = ["aar", *args]
    from aar.__main__ import main

    code = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
