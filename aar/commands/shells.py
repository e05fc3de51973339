"""Commands that run in the background: which there are, what they wrote, ending one."""

from __future__ import annotations

from collections.abc import Sequence

from aar.commands.base import Command, Context, Failure, Result, Table, Text, fence, one_line, starting_with

_LINES = 40


async def _shells(context: Context, argument: str) -> Result:
    """Show all, the end of one's output, or end one."""
    background = context.runtime.background
    verb, _, rest = argument.partition(" ")
    name = rest.strip() if verb == "kill" else argument
    if not argument:
        rows = tuple(
            (shell, "runs" if process.running else "ended", one_line(_tail(process.output(), 1), 80))
            for shell, process in background.items()
        )
        if not rows:
            return Text("No command runs in the background.")
        return Table("Background commands", ("ID", "STATE", "LAST LINE"), rows, "/shells ID shows more.")
    process = background.get(name)
    if process is None:
        known = f"there are: {', '.join(background)}" if background else "there are none"
        return Failure(f"There is no background command {name!r}; {known}.")
    if verb == "kill":
        await process.kill()
        return Text(f"{name} is ended, with all its children.")
    state = "runs" if process.running else "has ended"
    written = _tail(process.output(), _LINES)
    return Text(f"{name} {state}.\n{fence(written)}" if written else f"{name} {state}; it wrote nothing.")


def _tail(output: bytes, lines: int) -> str:
    """Return the last lines of an output; control characters are made visible where it is drawn."""
    return "\n".join(output[-100_000:].decode("utf-8", "replace").rstrip().splitlines()[-lines:])


def _completed(context: Context, text: str) -> Sequence[str]:
    names = list(context.runtime.background)
    return starting_with([*names, *(f"kill {name}" for name in names)], text)


def commands() -> tuple[Command, ...]:
    """Return the commands of this module."""
    return (
        Command(
            "shells",
            "Show the commands that run in the background, and what they wrote; end one.",
            _shells,
            "[ID|kill ID]",
            "work",
            complete=_completed,
            example="/shells shell_1",
        ),
    )
