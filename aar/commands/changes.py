"""What was changed: by this session, and in the working tree."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aar.commands import git_facts
from aar.commands.base import Command, Context, Failure, Result, Text, fence, starting_with
from aar.protocol.events import ToolResult

_WAYS = ("git", "staged", "session")
_MAX_CHARS = 60_000


async def _diff(context: Context, argument: str) -> Result:
    """Show the changes of this session, or those of the working tree."""
    way, _, path = argument.partition(" ")
    if way in ("git", "staged"):
        branch = await git_facts.need_repository(context)
        words = ("--cached",) if way == "staged" else ("HEAD",)
        text = await git_facts.diff(context, *words, *(("--", path) if path else ()))
        what = "staged" if way == "staged" else "not committed"
        return _shown(f"Changes on {branch} that are {what}", text)
    wanted = path.strip() if way == "session" else argument
    found = await asyncio.to_thread(_of_session, context, wanted)
    if found is None:
        return Failure(f"This session did not change {wanted}." if wanted else
                       "This session changed no files yet; /diff git shows the working tree.")  # fmt: skip
    return _shown("Changes of this session", found)


def _of_session(context: Context, wanted: str) -> str | None:
    """Return the diffs of all calls in order; with ``wanted`` only those of that file."""
    diffs: list[str] = []
    for event in context.session.events():
        if not isinstance(event, ToolResult) or not event.diff:
            continue
        paths = {change.path for change in event.file_changes}
        paths |= {change.old_path for change in event.file_changes if change.old_path}
        if not wanted or wanted in paths:
            diffs.append(event.diff.rstrip("\n"))
    return "\n".join(diffs) if diffs else None


def _shown(title: str, text: str) -> Result:
    if not text.strip():
        return Text(f"{title}: none.")
    cut = text[:_MAX_CHARS]
    note = f"\n\nCut: {len(text) - len(cut):,} more characters." if len(cut) < len(text) else ""
    lines = text.splitlines()
    added = sum(line.startswith("+") and not line.startswith("+++ ") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("--- ") for line in lines)
    return Text(f"**{title}** (+{added} −{removed})\n\n{fence(cut, 'diff')}{note}")


def _complete(context: Context, text: str) -> Sequence[str]:
    return starting_with(_WAYS, text)


def commands() -> list[Command]:
    """Return the commands of this family."""
    return [
        Command("diff", "Show what this session changed, or what is not committed.", _diff,
                usage="[PATH | git [PATH] | staged]", group="work", complete=_complete,
                example="/diff git"),
    ]  # fmt: skip
