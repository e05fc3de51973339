"""Commands that run in the background: which there are, what they wrote, ending one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aar.commands.base import Command, Context, Failure, Result, Table, Text, fence, one_line, starting_with
from aar.config.paths import ensure
from aar.protocol.ports import Process
from aar.safety.spawn_process import ServedProcess

_LINES = 40


async def _shells(context: Context, argument: str) -> Result:
    """Show all, the end of one's output, or end one."""
    background = context.runtime.background
    verb, _, rest = argument.partition(" ")
    name = rest.strip() if verb in ("kill", "keep") else argument
    if not argument:
        rows = tuple(
            (shell, "runs" if process.running else "ended", one_line(_tail(process.output(), 1), 80))
            for shell, process in background.items()
        )
        if not rows:
            return Text("No command runs in the background.")
        return Table("Background commands", ("id", "state", "last line"), rows, "/shells ID shows more.")
    process = background.get(name)
    if process is None:
        known = f"there are: {', '.join(background)}" if background else "there are none"
        return Failure(f"There is no background command {name!r}; {known}.")
    if verb == "keep":
        return await asyncio.to_thread(_keep, context, name, process)
    if verb == "kill":
        await process.kill()
        return Text(f"{name} is ended, with all its children.")
    state = "runs" if process.running else "has ended"
    written = _tail(process.output(), _LINES)
    return Text(f"{name} {state}.\n{fence(written)}" if written else f"{name} {state}; it wrote nothing.")


def _keep(context: Context, name: str, process: Process) -> Result:
    """Let a command go on when aar ends."""
    if not process.running:
        return Failure(f"{name} has ended.")
    if not isinstance(process, ServedProcess) or not process.outlives:
        return Failure(f"{name} cannot go on without aar, which restores protected paths that it may write.")
    folder = ensure(context.runtime.base.paths.data / "kept")
    log = folder / f"{context.session.session_id}-{name}.log"
    context.runtime.background.kept[name] = log
    held = " without a wall" if process.wall == "none" else ", behind its wall and without the network"
    return Text(
        f"{name} goes on when aar ends{held}, as process {process.pid}. "
        f"What it writes is then in {log}; `kill {process.pid}` ends it."
    )


def _tail(output: bytes, lines: int) -> str:
    """Return the last lines of an output; control characters are made visible where it is drawn."""
    return "\n".join(output[-100_000:].decode("utf-8", "replace").rstrip().splitlines()[-lines:])


def _completed(context: Context, text: str) -> Sequence[str]:
    names = list(context.runtime.background)
    return starting_with([*names, *(f"{verb} {name}" for verb in ("kill", "keep") for name in names)], text)


def commands() -> tuple[Command, ...]:
    """Return the commands of this module."""
    return (
        Command(
            "shells",
            "Show the commands in the background and what they wrote; end or keep one.",
            _shells,
            "[ID|kill ID|keep ID]",
            "work",
            complete=_completed,
            example="/shells shell_1",
        ),
    )
