"""Shells whose folder, variables and functions last from one command of an agent to the next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aar.core.session import Session
    from aar.runtime.parts import Runtime
    from aar.safety.spawn import ProcessSpawner
    from aar.tools.builtin.kept_shell import KeptShell


def kept_shell(
    runtime: Runtime, session: Session, agent_id: str, workspace: Path, spawner: ProcessSpawner
) -> KeptShell | None:
    """Return the shell of an agent, the same one when the agent is made again; ``None``: none is wanted."""
    if not runtime.config.tools.persistent_shell:
        return None
    key = (session.session_id, agent_id)
    found = runtime.shells.get(key)
    if found is not None and found.workspace == workspace:
        return found
    from aar.tools.builtin.kept_shell import KeptShell
    from aar.tools.builtin.shell import shell_program

    made = KeptShell(
        shell_program(),
        workspace,
        lambda: spawner.temp_folder,
        renewed=agent_id == "main" and session.totals.tool_calls > 0,
    )

    async def forget() -> None:
        runtime.shells.pop(key, None)

    runtime.shells[key] = made
    session.before_close.append(forget)
    return made
