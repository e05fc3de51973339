"""Running ``api_key_command``: the user's own program, outside of the wall, which prints a key."""

from __future__ import annotations

import asyncio
import threading

from aar.protocol.errors import ConfigurationError
from aar.protocol.ports import SpawnRequest, SpawnResult
from aar.providers.keys import KeyCommand
from aar.runtime.base import Base

_TIMEOUT_S = 30.0
_MAX_OUTPUT = 65_536


def key_command(base: Base) -> KeyCommand:
    """Return what runs a command once and remembers what it printed, for as long as the process lives."""
    printed: dict[str, str] = {}

    def run(command: str) -> str:
        if command not in printed:
            printed[command] = _run(base, command)
        return printed[command]

    return run


def _run(base: Base, command: str) -> str:
    """Run ``command`` to its end, from any thread: also where an event loop runs.

    Raises:
        ConfigurationError: It failed. What it printed is not told, as it may be a key.
    """
    outcome: list[SpawnResult | BaseException] = []

    def work() -> None:
        try:
            outcome.append(asyncio.run(_spawned(base, command)))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=work, name="aar-key-command", daemon=True)
    thread.start()
    thread.join(_TIMEOUT_S + 5)
    result = outcome[0] if outcome else None
    if not isinstance(result, SpawnResult) or result.timed_out:
        raise ConfigurationError(
            f"api_key_command `{command}` gave no key within {_TIMEOUT_S:.0f} s. Run it by hand to see."
        )
    if result.exit_code != 0:
        raise ConfigurationError(
            f"api_key_command `{command}` failed ({result.exit_code}). Run it by hand to see why."
        )
    return result.output.decode("utf-8", "replace")


async def _spawned(base: Base, command: str) -> SpawnResult:
    import os

    from aar.safety.spawn import ProcessSpawner

    spawner = ProcessSpawner(base.workspace, base.config.sandbox, own=base.own_folders)
    try:
        request = SpawnRequest(
            argv=("/bin/sh", "-c", command),
            cwd=base.paths.config if base.paths.config.is_dir() else base.cwd,
            env=dict(os.environ),
            kind="helper",
            timeout_s=_TIMEOUT_S,
            network=True,
            max_output=_MAX_OUTPUT,
            merge_stderr=False,
        )
        return await spawner.run(request)
    finally:
        spawner.close()
