"""Running ripgrep as a helper process."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from aar.protocol.errors import SandboxError, ToolCategory, ToolFailure
from aar.protocol.ports import SpawnRequest, SpawnResult, ToolContext

TIMEOUT_S: Final = 60.0
_MAX_OUTPUT: Final = 64 * 1024 * 1024
_MAX_UNKEPT: Final = 4096
_COMMON: Final = ("--no-config", "--hidden", "--no-require-git", "--no-ignore-global", "--no-messages")


def program(workspace: Path) -> str | None:
    """Return the path of ripgrep, or ``None``; one that lies in the workspace is not trusted."""
    found = shutil.which("rg")
    if found is None:
        return None
    path = Path(found).resolve()
    return None if path.is_relative_to(workspace) else str(path)


async def run(
    ctx: ToolContext,
    root: Path,
    arguments: Sequence[str],
    on_output: Callable[[bytes], None] | None = None,
) -> SpawnResult | None:
    """Run ripgrep in ``root``; ``None`` when it cannot be started.

    With ``on_output`` the output is handed on as it comes, and hardly any of it is kept.

    Raises:
        ToolFailure: ``timeout``.
    """
    executable = program(ctx.workspace)
    if executable is None:
        return None
    request = SpawnRequest(
        argv=(executable, *_COMMON, "--glob=!.git", *arguments),
        cwd=root,
        kind="helper",
        timeout_s=TIMEOUT_S,
        max_output=_MAX_OUTPUT if on_output is None else _MAX_UNKEPT,
        merge_stderr=False,
    )
    try:
        result = await ctx.spawner.run(request, on_output)
    except (FileNotFoundError, PermissionError, SandboxError):
        return None
    if result.timed_out:
        raise ToolFailure(
            ToolCategory.TIMEOUT, f"The search took more than {TIMEOUT_S:.0f} s. Search a smaller folder."
        )
    return result


def name_filter(glob: str | None) -> list[str]:
    """Return arguments that leave out files which ``glob`` cannot match by their name.

    A file type is used, since ripgrep's own ``--glob`` would bring ignored files back.
    """
    name = (glob or "").rsplit("/", 1)[-1]
    if not name.strip("*") or "**" in name or not all(char.isalnum() or char in "*?._-" for char in name):
        return []
    return [f"--type-add=wanted:{name}", "--type=wanted"]


def filters_fully(glob: str) -> bool:
    """Tell whether `name_filter` leaves nothing of ``glob`` to be matched."""
    # A question mark stands for a byte there and for a character here.
    return "/" not in glob and "?" not in glob and (bool(name_filter(glob)) or set(glob) == {"*"})
