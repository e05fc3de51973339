"""The installation and its parts: help, tools, doctor, log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aar.commands.base import (
    Command,
    Context,
    Failure,
    Result,
    Table,
    Text,
    fence,
    need_no_argument,
    starting_with,
)
from aar.commands.registry import GROUPS

_LOG_LINES = 60
_MAX_LOG_LINES = 2000


async def _help(context: Context, argument: str) -> Result:
    """List all commands, or tell about one."""
    if argument:
        command = context.registry.find(argument)
        if command is None:
            near = context.registry.nearest(argument, 1)
            hint = f" Did you mean /{near[0]}?" if near else ""
            return Failure(f"There is no command /{argument.removeprefix('/')}.{hint}")
        lines = [f"`{command.title}`", "", command.summary]
        if command.aliases:
            lines += ["", "Also: " + ", ".join(f"`/{name}`" for name in command.aliases)]
        if command.example:
            lines += ["", f"Example: `{command.example}`"]
        return Text("\n".join(lines))
    rows: list[tuple[str, str]] = []
    usable = context.registry.all(context)
    for group, title in GROUPS.items():
        found = [(f"/{item.name}", item.summary) for item in usable if item.group == group]
        rows += [(title, ""), *found] if found else []
    note = "/help NAME tells what may follow a command. @file shows a file to the model, !command runs one."
    return Table("Commands", (), tuple(rows), note)


async def _tools(context: Context, argument: str) -> Result:
    """List the tools, those that the model gets now marked."""
    need_no_argument(argument, "tools")
    given = {spec.name for spec in context.runtime.tools()}
    rows = tuple(
        (spec.name, "yes" if spec.name in given else "no", _effects(spec.side_effects), spec.summary)
        for spec in context.runtime.registry.specs()
    )
    return Table("Tools", ("tool", "in use", "touches", "what it does"), rows)


def _effects(effects: frozenset[object]) -> str:
    return ", ".join(sorted(str(effect).lower() for effect in effects)) or "nothing"


async def _doctor(context: Context, argument: str) -> Result:
    """Examine the installation."""
    need_no_argument(argument, "doctor")
    assert context.doctor is not None
    checks = await asyncio.to_thread(context.doctor)
    rows = tuple(
        (check.status, check.name, f"{check.detail} → {check.fix}" if check.fix else check.detail)
        for check in checks
    )
    usable = all(check.status != "fail" for check in checks)
    note = "aar is usable." if usable else "aar is not usable yet: see the lines that begin with fail."
    return Table("Doctor", ("", "what", "found"), rows, note)


async def _log(context: Context, argument: str) -> Result:
    """Show the end of the diagnostics log."""
    from aar.observability.diagnostics_log import tail

    if argument and not argument.isdigit():
        return Failure("/log takes a number of lines, or nothing.")
    count = min(max(int(argument or _LOG_LINES), 1), _MAX_LOG_LINES)
    folder = context.runtime.base.paths.logs
    lines = await asyncio.to_thread(lambda: list(tail(folder, count)))
    if not lines:
        return Text(f"The diagnostics log in {folder} is empty.")
    return Text(f"The end of the log in `{folder}`:\n\n{fence(chr(10).join(lines))}")


def _complete_help(context: Context, text: str) -> Sequence[str]:
    return starting_with([item.name for item in context.registry.all(context)], text.removeprefix("/"))


def commands() -> list[Command]:
    """Return the commands of this family."""
    return [
        Command("help", "List the commands, or tell more about one.", _help, usage="[NAME]", group="session",
                aliases=("?",), complete=_complete_help),
        Command("tools", "List the tools and which of them the model gets.", _tools, group="look"),
        Command("doctor", "Check this installation.", _doctor, group="look",
                available=lambda context: context.doctor is not None),
        Command("log", "Show the end of the diagnostics log.", _log, usage="[LINES]", group="look",
                aliases=("logs",)),
    ]  # fmt: skip
