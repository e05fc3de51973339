"""The tool edit_file: replace one piece of text in a file."""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from pydantic import Field, model_validator

from aar.protocol.errors import ToolCategory, ToolFailure
from aar.protocol.ports import ToolContext
from aar.protocol.tool import SideEffect, ToolOutcome, ToolSpec
from aar.tools.builtin.common import (
    PATH_ALIASES,
    Change,
    demand_writable,
    describe_change,
    label,
    numbered,
    plural,
    streaming,
)
from aar.tools.builtin.edit_match import Found, find, nearest, splice
from aar.tools.builtin.text_file import decode
from aar.tools.schema import ToolArgs, tool_spec

_LARGE: Final = 200_000

DESCRIPTION: Final = """\
Replace one piece of text in a file.
When: for every change to an existing file that leaves most of it as it is. Read the file first.
Inputs: path; old_text, the text to replace, copied from the file without line numbers and with enough lines \
around it to be unique; new_text, what stands there afterwards; replace_all to replace every occurrence. \
An empty old_text makes a new file.
Output: how the text was found, the line, and how many lines changed.
Limits: text that occurs several times is refused with the line numbers unless replace_all is set. Small \
slips in white space, indentation or quotes are forgiven; anything else fails and shows the nearest lines."""


class EditArgs(ToolArgs):
    """Arguments of edit_file."""

    path: str = Field(description="File to change, relative to the workspace.")
    old_text: str = Field(description="Text to replace, as it stands in the file.")
    new_text: str = Field(description="Text to put there.")
    replace_all: bool = Field(default=False, description="Replace every occurrence.")

    @model_validator(mode="before")
    @classmethod
    def _accept_foreign(cls, data: Any) -> Any:
        """Take the count and the explanation that other assistants' edit tools know."""
        if not isinstance(data, dict):
            return data
        given = dict(cast("dict[str, Any]", data))
        expected = given.pop("expected_replacements", None)
        if isinstance(expected, int) and expected > 1:
            given.setdefault("replace_all", True)
        given.pop("instruction", None)
        return given


async def edit_file(args: EditArgs, ctx: ToolContext) -> ToolOutcome:
    """Handle a call."""
    demand_writable(ctx)
    if args.old_text == args.new_text:
        raise ToolFailure(
            ToolCategory.INVALID_ARGUMENTS, "old_text and new_text are the same; there is nothing to change."
        )
    if getattr(ctx.files, "blocks", False):  # an editor has the files, and is waited for
        return await asyncio.to_thread(_edit_now, args, ctx)
    if not args.old_text:
        return _create(args, ctx)
    data = streaming(ctx.files).peek_bytes(args.path)
    if len(data) > _LARGE:
        return await asyncio.to_thread(_edit, args, ctx, data)
    return _edit(args, ctx, data)


def _edit_now(args: EditArgs, ctx: ToolContext) -> ToolOutcome:
    if not args.old_text:
        return _create(args, ctx)
    return _edit(args, ctx, streaming(ctx.files).peek_bytes(args.path))


def _create(args: EditArgs, ctx: ToolContext) -> ToolOutcome:
    name = label(ctx, args.path)
    if ctx.files.exists(args.path):
        raise ToolFailure(
            ToolCategory.INVALID_ARGUMENTS,
            f"{name} exists, and an empty old_text only makes new files. Give the text to replace, "
            "or use write_file to replace the whole file.",
        )
    data = args.new_text.encode()
    ctx.files.write_bytes(args.path, data)
    change, diff = describe_change(ctx, Change(name, None, data))
    return ToolOutcome(f"Created {name} ({plural(change.added, 'line')}).", file_changes=(change,), diff=diff)


def _edit(args: EditArgs, ctx: ToolContext, data: bytes) -> ToolOutcome:
    name = label(ctx, args.path)
    file = decode(data, name)
    found = find(file.text, args.old_text, args.new_text)
    if found is None:
        raise ToolFailure(ToolCategory.NOT_FOUND, _not_found(name, file.text, args))
    if len(found.matches) > 1 and not args.replace_all:
        raise ToolFailure(ToolCategory.AMBIGUOUS, _ambiguous(name, found))
    text = splice(file.text, found.matches)
    if text == file.text:
        raise ToolFailure(
            ToolCategory.INVALID_ARGUMENTS,
            f"{name} already reads as new_text would make it.",
        )
    after = file.encode(text)
    ctx.files.write_bytes(args.path, after)
    change, diff = describe_change(ctx, Change(name, data, after))
    return ToolOutcome(_told(name, found, change.added, change.removed), file_changes=(change,), diff=diff)


def _told(name: str, found: Found, added: int, removed: int) -> str:
    lines = [match.line for match in found.matches]
    where = f"line {lines[0]}" if len(lines) == 1 else f"{len(lines)} places (lines {_numbers(lines)})"
    how = (
        ""
        if found.strategy == "exact"
        else f" The text was not there exactly ({found.strategy}): check the result."
    )
    return f"Edited {name} at {where}, +{added} -{removed} ({found.strategy} match).{how}"


def _numbers(lines: list[int]) -> str:
    shown = ", ".join(str(line) for line in lines[:20])
    return shown + (" …" if len(lines) > 20 else "")


def _ambiguous(name: str, found: Found) -> str:
    lines = [match.line for match in found.matches]
    return (
        f"old_text occurs {len(lines)} times in {name} (lines {_numbers(lines)}). Add lines before or "
        "after it until it is unique, or set replace_all."
    )


def _not_found(name: str, text: str, args: EditArgs) -> str:
    message = f"old_text was not found in {name}."
    if args.new_text.strip() and args.new_text.replace("\r\n", "\n") in text.replace("\r\n", "\n"):
        message += " new_text is already in the file: was this edit made before?"
    near = nearest(text, args.old_text)
    if near is None:
        return message + " Nothing in it is much like it. Read the file again and copy the text exactly."
    shown = numbered(list(near.lines[:12]), near.line)
    more = f"\n  … {len(near.lines) - 12} more lines" if len(near.lines) > 12 else ""
    return (
        f"{message} The nearest lines ({near.ratio:.0%} alike) are:\n{shown}{more}\n"
        "Copy old_text exactly from the file, without line numbers."
    )


def tools() -> list[ToolSpec]:
    """Return the tools of this family."""
    return [
        tool_spec(
            "edit_file",
            DESCRIPTION,
            EditArgs,
            {SideEffect.READ, SideEffect.WRITE},
            edit_file,
            summary="Replace text in a file.",
            dry_run=True,
            aliases={
                **PATH_ALIASES,
                "old_string": "old_text",
                "new_string": "new_text",
                "old_str": "old_text",
                "new_str": "new_text",
                "search": "old_text",
                "old": "old_text",
                "new": "new_text",
            },
        )
    ]
