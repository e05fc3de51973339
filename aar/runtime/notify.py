"""Tells the ``notification`` hooks of user and project that long work has ended, outside of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aar.extensions.hooks import HookRunner
from aar.runtime.hooks import load_hooks

if TYPE_CHECKING:
    from aar.protocol.ports import Spawner
    from aar.runtime.base import Base


async def notify(base: Base, spawner: Spawner, message: str, session_id: str = "") -> list[str]:
    """Let each ``notification`` hook hear ``message``; return sentences about those that failed.

    Raises:
        ConfigurationError: A hook in a config file is wrong.
    """
    hooks, _, problems = load_hooks(base)
    mode = base.config.permissions.mode or "plan"
    runner = HookRunner(
        hooks,
        spawner,
        base.workspace,
        session_id,
        "",
        mode=lambda: mode,
        wall=lambda: spawner.wall,
        tell=problems.append,
    )
    if runner.wants("notification"):
        await runner.fire("notification", {"message": message})
    return problems
