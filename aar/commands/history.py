"""Back and forth: undo, redo, rewind, checkpoints; and the conversation as the model sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, cast

from aar.commands.base import (
    Choice,
    ChoiceItem,
    Command,
    Context,
    Result,
    Text,
    fence,
    one_line,
    starting_with,
)
from aar.core.file_diffs import FileDiff
from aar.core.rewind import Scope
from aar.protocol.errors import UsageError

if TYPE_CHECKING:
    from aar.runtime.undo import OnConflict, UndoReport

_SCOPES = ("both", "files", "conversation")
_GOING = {"both": "Files and conversation", "files": "Files only", "conversation": "Conversation only"}
_CONFLICTS = {"force": "force", "keep-both": "keep_both"}
_KINDS = {"auto": "before a change", "undo": "before an undo", "redo": "before a redo", "manual": "yours"}
_MOST = 30
_MOST_INLINE = 3
_MOST_PROMPTS = 200


def _words(argument: str, command: str) -> tuple[list[str], Scope, OnConflict]:
    """Take scope and what to do about conflicts out of the words of a command; return the rest first."""
    rest: list[str] = []
    scope, conflict = "both", "refuse"
    for word in argument.split():
        if word in _SCOPES:
            scope = word
        elif word in _CONFLICTS:
            conflict = _CONFLICTS[word]
        else:
            rest.append(word)
    if len(rest) > 1:
        raise UsageError(f"/{command} does not know {rest[1]!r}; /help {command} tells what it takes.")
    return rest, scope, cast("OnConflict", conflict)


async def _undo(context: Context, argument: str) -> Result:
    """Go back to before the last steps that changed files."""
    rest, scope, conflict = _words(argument, "undo")
    if rest and not (rest[0].isdigit() and int(rest[0]) > 0):
        raise UsageError("/undo takes the number of steps, or nothing for one.")
    steps = int(rest[0]) if rest else 1
    report = await context.conversation.undo.undo(steps, scope, on_conflict=conflict)
    return _told(report, f"/undo {steps} {scope}")


async def _redo(context: Context, argument: str) -> Result:
    """Take the last undo back."""
    rest, _, conflict = _words(argument, "redo")
    if rest:
        raise UsageError("/redo takes keep-both, force, or nothing.")
    return _told(await context.conversation.undo.redo(on_conflict=conflict), "/redo")


async def _rewind(context: Context, argument: str) -> Result:
    """Go back to before a prompt: show the prompts to choose from, or go."""
    rest, scope, conflict = _words(argument, "rewind")
    undo = context.conversation.undo
    if rest:
        if not rest[0].isdigit():
            raise UsageError(
                "/rewind takes the number of a prompt's event; without one it lists the prompts."
            )
        report = await undo.rewind_to(int(rest[0]), scope, on_conflict=conflict)
        return _told(report, f"/rewind {rest[0]} {scope}")
    places = (await asyncio.to_thread(undo.history)).prompts
    if not places:
        return Text("There is no prompt to go back to yet.")
    shown = places[-_MOST_PROMPTS:][::-1]
    items = tuple(
        ChoiceItem(
            one_line(place.text, 80) or "(no text)",
            f"/rewind {place.seq} {scope}",
            "the last one" if back == 1 else f"{back} prompts back",
        )
        for back, place in enumerate(shown, 1)
    )
    return Choice("Go back to before which prompt?", items, f"{_GOING[scope]}; /redo comes back.")


def _told(report: UndoReport, line: str) -> Result:
    """Return what an undo, redo or rewind did; with conflicts the ways to go on."""
    if report.conflicts and not report.done:
        names = ", ".join(conflict.path for conflict in report.conflicts[:_MOST])
        items = (
            ChoiceItem("Keep both", f"{line} keep-both", "saves your versions as NAME.yours"),
            ChoiceItem("Overwrite", f"{line} force", "checkpoints and redo still have yours"),
        )
        return Choice(f"You changed these files since, so nothing was done: {names}", items)
    verb = {"undo": "Undone", "redo": "Done again"}[report.kind]
    parts = [f"**{verb}**: {_GOING[report.scope].lower()}."]
    restored = "Files put back" if report.kind == "undo" else "Files changed again"
    others = (report.beside, report.left_alone, report.not_kept, report.problems, report.irreversible)
    if len(report.restored) <= _MOST_INLINE and not any(others):
        names = ", ".join(f"`{path}`" for path in report.restored)
        back = " /redo takes it back." if report.kind == "undo" else ""
        return Text(f"{parts[0]}{f' {restored}: {names}.' if names else ''}{back}")
    for title, lines in (
        (restored, [f"`{path}`" for path in report.restored]),
        ("Your versions are in", [f"`{path}`" for path in report.beside.values()]),
        ("Changed by you only, left as they are", [f"`{path}`" for path in report.left_alone]),
        ("No checkpoint has them", [f"`{path}`: {why}" for path, why in report.not_kept.items()]),
        ("Could not be written", [f"`{path}`: {why}" for path, why in report.problems.items()]),
        ("Cannot be undone", [f"{item.what}: {item.why}" for item in report.irreversible]),
    ):
        if lines:
            more = [f"- and {len(lines) - _MOST} more"] if len(lines) > _MOST else []
            parts.append("\n".join((f"{title}:\n", *(f"- {text}" for text in lines[:_MOST]), *more)))
    return Text("\n\n".join(parts))


# --- checkpoints -----------------------------------------------------------------------------------------


async def _checkpoints(context: Context, argument: str) -> Result:
    """List the checkpoints of the session, make one, show or restore one."""
    word, _, rest = argument.partition(" ")
    acts: dict[str, Callable[[Context, str], Awaitable[Result]]] = {
        "create": _create,
        "show": _show,
        "restore": _restore,
    }
    if word in acts:
        return await acts[word](context, rest.strip())
    if argument:
        raise UsageError("/checkpoints takes create LABEL, show ID, restore ID, or nothing.")
    found = (await asyncio.to_thread(context.conversation.undo.list))[::-1]
    if not found:
        return Text("There are no checkpoints of this session yet; aar makes one before it changes files.")
    items = tuple(
        ChoiceItem(
            _when(item.ts),
            f"/checkpoints show {item.id}",
            f"{one_line(item.label, 60) or _KINDS.get(item.kind, item.kind)} · {item.id}",
        )
        for item in found[:_MOST_PROMPTS]
    )
    return Choice("What differs since which checkpoint?", items, "/checkpoints restore ID brings files back.")


async def _create(context: Context, label: str) -> Result:
    made = await context.conversation.undo.create(label)
    return Text(f"Kept as checkpoint `{made.id}`.")


async def _show(context: Context, name: str) -> Result:
    if not name:
        raise UsageError("Say which: /checkpoints show ID.")
    diffs = await context.conversation.undo.changes_since(name)
    if not diffs:
        return Text("Nothing differs from that checkpoint.")
    text = "\n".join(_diff_text(diff) for diff in diffs)
    return Text(f"**Since checkpoint {name}**\n\n{fence(text, 'diff')}")


async def _restore(context: Context, argument: str) -> Result:
    rest, _, conflict = _words(argument, "checkpoints")
    if not rest:
        raise UsageError("Say which: /checkpoints restore ID.")
    report = await context.conversation.undo.undo(scope="files", checkpoint=rest[0], on_conflict=conflict)
    return _told(report, f"/checkpoints restore {rest[0]}")


def _diff_text(diff: FileDiff) -> str:
    counts = "binary" if diff.binary else f"+{diff.added} -{diff.removed}"
    lines = [f"{diff.path} ({diff.action}, {counts}{', ' + diff.mode if diff.mode else ''})"]
    for hunk in diff.hunks:
        lines.append(f"@@ line {hunk.old_start} -> {hunk.new_start} @@")
        for sign, texts in (("-", hunk.old), ("+", hunk.new)):
            lines += [f"{sign}{text.decode('utf-8', 'replace').rstrip()}" for text in texts]
    return "\n".join(lines)


def _when(ts: float) -> str:
    return datetime.fromtimestamp(ts).astimezone().strftime("%m-%d %H:%M")


def _complete(context: Context, text: str) -> Sequence[str]:
    head, space, last = text.rpartition(" ")
    return [f"{head}{space}{word}" for word in starting_with((*_SCOPES, *_CONFLICTS), last)]


def commands() -> list[Command]:
    """Return the commands of this family."""
    scopes = "[both | files | conversation] [keep-both | force]"
    return [
        Command("undo", "Take back what the last steps did to files and conversation.", _undo,
                usage=f"[N] {scopes}", group="work", complete=_complete, example="/undo 2 files"),
        Command("redo", "Take the last undo or rewind back.", _redo, usage="[keep-both | force]",
                group="work", complete=lambda context, text: starting_with([*_CONFLICTS], text)),
        Command("rewind", "Go back to before an earlier prompt.", _rewind, usage=f"[SEQ] {scopes}",
                group="work", complete=_complete),
        Command("checkpoints", "List kept states of the files; keep, show or restore one.", _checkpoints,
                usage="[create LABEL | show ID | restore ID]", group="work",
                complete=lambda context, text: starting_with(("create ", "show ", "restore "), text)),
    ]  # fmt: skip
